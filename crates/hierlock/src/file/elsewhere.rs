//! `file:` where there are no open-file-description locks: one clear error.

use crate::backend::{Backend, Demand, Hold};
use crate::error::{Result, UrlError};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan};
use crate::snapshot::Holder;
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::path::Path;

/// There is none.
#[derive(Debug)]
pub(crate) enum FileBackend {}

/// There is none.
#[derive(Debug)]
pub(crate) enum FileHold {}

impl FileBackend {
    pub(crate) fn open(path: &Path, _: Hierarchy) -> Result<Self> {
        Err(UrlError::NotLinux { url: format!("file:{}", path.display()).into() }.into())
    }
}

impl Backend for FileBackend {
    type Hold = FileHold;

    fn plan(&self, _: SmallVec<[Claim; 1]>) -> Result<Plan> {
        match *self {}
    }

    async fn acquire(&self, _: Demand) -> Result<FileHold> {
        match *self {}
    }

    fn holders(&self) -> Vec<Holder> {
        match *self {}
    }
}

impl Hold for FileHold {
    async fn extend(&mut self, _: Demand) -> Result<()> {
        match *self {}
    }

    async fn release(self) -> Result<()> {
        match self {}
    }

    fn claims(&self) -> BTreeMap<Target, Mode> {
        match *self {}
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        match *self {}
    }

    fn id(&self) -> u64 {
        match *self {}
    }

    async fn token(&self) -> Result<u64> {
        match *self {}
    }

    async fn lost(&self) -> crate::Error {
        match *self {}
    }
}
