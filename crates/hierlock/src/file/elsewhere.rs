//! `file:` where there are no open-file-description locks: one clear error.

use crate::backend::{AcquireRequest, Backend, FencingHold, Hold};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, ModeSet, SlotMode};
use crate::plan::Slots;
use crate::snapshot::Holder;
use crate::target::Target;
use std::collections::BTreeMap;
use std::path::Path;

/// The backend of `file:`. There is none here.
#[derive(Debug)]
pub enum FileBackend {}

/// What a [`FileBackend`] keeps while locked.
#[derive(Debug)]
pub enum FileHold {}

impl FileBackend {
    /// Opens a lock file.
    ///
    /// # Errors
    /// Always: `file:` needs Linux.
    pub fn open(path: &Path, _: Hierarchy) -> Result<Self> {
        Err(UrlError::NotLinux { url: format!("file:{}", path.display()).into() }.into())
    }
}

impl Backend for FileBackend {
    type Hold = FileHold;

    fn hierarchy(&self) -> &Hierarchy {
        match *self {}
    }

    fn slots(&self) -> Slots {
        match *self {}
    }

    fn modes(&self) -> ModeSet {
        match *self {}
    }

    async fn acquire(&self, _: AcquireRequest) -> Result<FileHold> {
        match *self {}
    }

    fn holders(&self) -> Vec<Holder> {
        match *self {}
    }
}

impl Hold for FileHold {
    async fn extend(&mut self, _: AcquireRequest) -> Result<()> {
        match *self {}
    }

    async fn release(self) -> Result<()> {
        match self {}
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        match *self {}
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        match *self {}
    }

    fn id(&self) -> u64 {
        match *self {}
    }
}

impl FencingHold for FileHold {
    async fn token(&self) -> Result<u64> {
        match *self {}
    }
}
