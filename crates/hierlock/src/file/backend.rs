//! The backend of `file:`: locks the bytes of a plan one by one.

use super::lock_file::LockFile;
use super::{MODES, SLOTS, token};
use crate::backend::{AcquireRequest, Backend, FencingHold, Hold, WaitLimit};
use crate::error::{FileError, LockConflict};
use crate::registry::{Registry, RegistryEntry};
use crate::{
    Blocker, Error, Hierarchy, Holder, Mode, ModeSet, Plan, Result, SlotMode, Slots, Step, Target,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often [`FileHold::lost`] checks whether the file is still in place.
const IN_PLACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of times that an acquire opens a file that is replaced while it is being locked.
const MAX_REOPENS: usize = 20;

/// The backend of `file:`, on Linux.
#[derive(Debug)]
pub struct FileBackend {
    path: Arc<Path>,
    hierarchy: Hierarchy,
    registry: Arc<Registry>,
}

impl FileBackend {
    /// Opens a lock file, and creates it if it does not exist. Fails if that is impossible, or on systems other than Linux.
    pub fn open(path: &Path, hierarchy: Hierarchy) -> Result<Self> {
        // A later change of the working directory must not lead to another file.
        let path = std::path::absolute(path).map_err(FileError::io("resolve the path", path))?;
        let path = Arc::from(path);
        // Checks that the file can be locked. The byte is no slot, and the lock is shared, so nothing is blocked.
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

/// Locked bytes of one open file description; closing it releases them.
#[derive(Debug)]
#[must_use = "dropping the hold releases the lock"]
pub struct FileHold {
    file: LockFile,
    entry: RegistryEntry,
    hierarchy: Hierarchy,
}

impl FileHold {
    /// Locks the bytes of a plan that are not held yet. If the future fails or is dropped, the hold is as before.
    async fn take(&self, plan: &Plan, limit: WaitLimit) -> Result<()> {
        let steps: Vec<Step> = plan.steps().collect();
        let mut undo = UndoOnDrop { file: &self.file, bytes: Vec::new() };
        for (index, step) in steps.iter().enumerate() {
            let (held, in_order) = self
                .entry
                .with(|record| (record.held(plan, step), record.is_after_all(plan, step)));
            let mode = held.map_or(step.mode, |held| held.join(step.mode));
            if held == Some(mode) {
                continue;
            }
            if !self.file.set(step.slot, Some(mode))? {
                // The kernel has no queue order, so a waiter never blocks.
                let (node, blocker) = (step.target.clone(), Blocker::Holder);
                let conflict = LockConflict::new(node, plan.claims(), blocker);
                if !limit.waits() {
                    return Err(Error::would_block(conflict));
                }
                if !in_order {
                    return Err(Error::out_of_order(conflict));
                }
                let _wait_guard = self.entry.waits(plan, &steps[..index], step);
                let mut wait = self.file.wait(step.slot, mode)?;
                let timeout = |waited| Err(Error::timeout(conflict, waited));
                limit.limit(wait.done()).await.unwrap_or_else(timeout)?;
            }
            undo.bytes.push((step.slot, held));
        }
        undo.bytes.clear();
        self.entry.record_plan(plan.clone());
        Ok(())
    }

    fn lost_because(&self, why: impl Into<String>) -> Error {
        Error::lost(self.targets().into_keys(), why)
    }
}

/// The bytes that an unfinished plan has locked, with their modes before. Dropping it restores those modes.
struct UndoOnDrop<'a> {
    file: &'a LockFile,
    bytes: Vec<(u64, Option<SlotMode>)>,
}

impl Drop for UndoOnDrop<'_> {
    fn drop(&mut self) {
        for (byte, before) in self.bytes.iter().rev() {
            // Unlocking and downgrading never wait, and never fail on an open file that was locked.
            if let Err(error) = self.file.set(*byte, *before) {
                tracing::error!(%error, "a byte of the lock file could not be unlocked");
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
            Err(error) => format!("its lock file cannot be checked: {error}"),
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
