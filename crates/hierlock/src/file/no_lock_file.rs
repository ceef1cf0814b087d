//! The lock file on systems without open-file-description locks: opening it fails.

use crate::error::{Result, UrlError};
use crate::mode::SlotMode;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum LockFile {}

impl LockFile {
    pub(super) fn open(path: &Arc<Path>) -> Result<Self> {
        Err(UrlError::NotLinux { url: format!("file:{}", path.display()).into() }.into())
    }

    pub(super) fn path(&self) -> &Path {
        match *self {}
    }

    pub(super) fn is_in_place(&self) -> Result<bool> {
        match *self {}
    }

    pub(super) fn set(&self, _: u64, _: Option<SlotMode>) -> Result<bool> {
        match *self {}
    }

    pub(super) fn wait(&self, _: u64, _: SlotMode) -> Result<Self> {
        match *self {}
    }

    pub(super) async fn done(&mut self) -> Result<()> {
        match *self {}
    }
}
