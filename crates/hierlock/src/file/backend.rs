//! The backend of `file:`: walks a plan byte by byte.

use super::lock_file::LockFile;
use super::{MODES, SLOTS, token};
use crate::backend::{AcquireRequest, Backend, FencingHold, Hold, WaitLimit};
use crate::error::{FileError, LockConflict};
use crate::plan::targets_of;
use crate::registry::{Record, Registry, RegistryEntry};
use crate::{
    Blocker, Error, Hierarchy, Holder, Mode, ModeSet, Plan, Result, SlotMode, Slots, Step, Target,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often [`FileHold::lost`] looks whether the file is still in place.
const IN_PLACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a file that is replaced while it is being locked is opened again.
const MAX_REOPENS: usize = 20;

/// The backend of `file:`, which is for Linux.
#[derive(Debug)]
pub struct FileBackend {
    path: Arc<Path>,
    hierarchy: Hierarchy,
    registry: Arc<Registry>,
}

impl FileBackend {
    /// Opens a lock file, and makes it if it is not there.
    ///
    /// # Errors
    /// It cannot be opened or locked, or this is not Linux.
    pub fn open(path: &Path, hierarchy: Hierarchy) -> Result<Self> {
        // A later change of the working directory must not lead to another file.
        let path = std::path::absolute(path).map_err(FileError::io("find the place of", path))?;
        let path = Arc::from(path);
        // A shared lock of a byte that is no slot disturbs nobody.
        const NO_SLOT: u64 = i64::MAX as u64;
        LockFile::open(&path)?.set(NO_SLOT, Some(SlotMode::Shared))?;
        Ok(Self { path, hierarchy, registry: Arc::default() })
    }
}

impl Backend for FileBackend {
    type Hold = FileHold;

    fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    fn slots(&self) -> Slots {
        SLOTS
    }

    fn modes(&self) -> ModeSet {
        MODES
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<FileHold> {
        let plan = self.plan(&request.claims)?;
        for _ in 0..MAX_REOPENS {
            let hold = FileHold {
                file: LockFile::open(&self.path)?,
                entry: self.registry.enter(request.name.clone()),
                hierarchy: self.hierarchy.clone(),
            };
            hold.take(&plan, request.limit).await?;
            if hold.file.is_in_place()? {
                return Ok(hold);
            }
        }
        Err(FileError::Replaced { path: self.path.to_path_buf() }.into())
    }

    fn holders(&self) -> Vec<Holder> {
        self.registry.holders()
    }
}

/// Bytes of one open file description; closing it frees them.
#[derive(Debug)]
#[must_use = "dropping it frees the lock"]
pub struct FileHold {
    file: LockFile,
    entry: RegistryEntry,
    hierarchy: Hierarchy,
}

impl FileHold {
    /// Takes the bytes of a plan beyond those that are held. Dropped or failed before its end, the hold is what it was.
    async fn take(&self, plan: &Plan, limit: WaitLimit) -> Result<()> {
        let steps: Vec<Step> = plan.steps().collect();
        let mut undo = UndoOnDrop { file: &self.file, bytes: Vec::new() };
        for (place, step) in steps.iter().enumerate() {
            let look =
                |record: &mut Record| (record.held(plan, step), record.is_after_all(plan, step));
            let (held, in_order) = self.entry.with(look);
            let mode = held.map_or(step.mode, |held| held.join(step.mode));
            if held == Some(mode) {
                continue;
            }
            if !self.file.set(step.slot, Some(mode))? {
                let conflict = LockConflict {
                    blocked_on: step.target.clone(),
                    wanted: targets_of(plan.claims()),
                    // The kernel lets everybody past those who wait.
                    blocker: Blocker::Holder,
                };
                if !limit.waits() {
                    return Err(Error::would_block(conflict));
                }
                if !in_order {
                    return Err(Error::out_of_order(conflict));
                }
                let _listed = self.entry.waits(plan, &steps[..place], step);
                let mut wait = self.file.wait(step.slot, mode)?;
                let timeout = |waited| Err(Error::timeout(conflict, waited));
                limit.limit(wait.done()).await.unwrap_or_else(timeout)?;
            }
            undo.bytes.push((step.slot, held));
        }
        undo.bytes.clear();
        self.entry.note(plan.clone());
        Ok(())
    }

    fn lost_because(&self, why: impl Into<String>) -> Error {
        Error::lost(self.targets().into_keys(), why)
    }
}

/// The bytes of a plan that is half taken, and how they were held before. Dropped, it puts them back.
struct UndoOnDrop<'a> {
    file: &'a LockFile,
    bytes: Vec<(u64, Option<SlotMode>)>,
}

impl Drop for UndoOnDrop<'_> {
    fn drop(&mut self) {
        for (byte, before) in self.bytes.iter().rev() {
            // Freeing and weakening never wait and never fail on a file that is open and was locked.
            if let Err(error) = self.file.set(*byte, *before) {
                tracing::error!(%error, "a byte could not be given back");
            }
        }
    }
}

const REPLACED: &str = "its lock file was removed or replaced, so others lock another one";

impl Hold for FileHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        let plan = Plan::new(&self.hierarchy, request.claims, SLOTS, MODES)?;
        self.take(&plan, request.limit).await
    }

    async fn release(self) -> Result<()> {
        let why = match self.file.is_in_place() {
            Ok(true) => return Ok(()),
            Ok(false) => REPLACED.to_owned(),
            Err(error) => format!("its lock file cannot be looked at: {error}"),
        };
        Err(self.lost_because(why))
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        self.entry.claims()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.entry.modes()
    }

    fn id(&self) -> u64 {
        self.entry.id
    }

    async fn lost(&self) -> Error {
        while self.file.is_in_place().unwrap_or(true) {
            tokio::time::sleep(IN_PLACE_CHECK_INTERVAL).await;
        }
        self.lost_because(REPLACED)
    }
}

impl FencingHold for FileHold {
    async fn token(&self) -> Result<u64> {
        token::next(self.file.path())
    }
}
