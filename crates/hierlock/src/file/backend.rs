//! The backend of `file:`: walks a plan byte by byte.

use super::kernel::LockFile;
use super::token;
use crate::backend::{AcquireRequest, Backend, FencingHold, Hold, WaitLimit};
use crate::error::{Blocker, FileError, LockError, Result};
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, ModeSet, SlotMode};
use crate::plan::{Plan, Slots, Step};
use crate::registry::{Entry, Registry};
use crate::snapshot::Holder;
use crate::target::Target;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often [`FileHold::lost`] looks whether the file is still in place.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// How often a file that is replaced while it is being locked is opened again.
const TRIES: usize = 20;

/// The backend of `file:`.
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
    /// It cannot be opened or locked.
    pub fn open(path: &Path, hierarchy: Hierarchy) -> Result<Self> {
        // A later change of the working directory must not lead to another file.
        let path: Arc<Path> = std::path::absolute(path)
            .map_err(|source| {
                let path = path.to_path_buf();
                FileError::Io { doing: "find the place of", path, source }
            })?
            .into();
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
        super::SLOTS
    }

    fn modes(&self) -> ModeSet {
        super::MODES
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<FileHold> {
        let AcquireRequest { claims, limit, name } = request;
        let plan = super::plan(&self.hierarchy, claims)?;
        for _ in 0..TRIES {
            let mut hold = FileHold {
                file: LockFile::open(&self.path)?,
                entry: self.registry.enter(name.clone()),
                hierarchy: self.hierarchy.clone(),
            };
            hold.take(&plan, limit).await?;
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
    entry: Entry,
    hierarchy: Hierarchy,
}

impl FileHold {
    /// Takes the bytes of a plan beyond those that are held. Dropped or failed before its end, the
    /// hold is what it was.
    async fn take(&mut self, plan: &Plan, limit: WaitLimit) -> Result<()> {
        let mut attempt = Attempt { hold: self, plan, before: Vec::new() };
        for step in plan.steps() {
            attempt.take(step, limit).await?;
        }
        attempt.succeed();
        Ok(())
    }
}

/// A plan half taken; dropped, it puts everything back.
struct Attempt<'a> {
    hold: &'a mut FileHold,
    plan: &'a Plan,
    /// The steps that were taken, and how they were held before.
    before: Vec<(Step, Option<SlotMode>)>,
}

impl Attempt<'_> {
    async fn take(&mut self, step: Step, limit: WaitLimit) -> Result<()> {
        let byte = step.slot;
        let FileHold { file, entry, .. } = &*self.hold;
        let (held, in_order) = entry
            .with(|record| (record.held(self.plan, &step), record.is_after_all(self.plan, &step)));
        let mode = match held {
            Some(held) if held.join(step.mode) == held => return Ok(()),
            Some(held) => held.join(step.mode),
            None => step.mode,
        };
        if !file.set(byte, Some(mode))? {
            let (blocked_on, wanted) = (step.target.clone(), self.wanted());
            // The kernel lets everybody past those who wait.
            let blocker = Blocker::Holder;
            if !limit.waits() {
                return Err(LockError::WouldBlock { blocked_on, wanted, blocker }.into());
            }
            if !in_order {
                return Err(LockError::OutOfOrder { blocked_on, wanted }.into());
            }
            let _shown = entry.waits(self.plan, &[], &step);
            let mut wait = file.wait(byte, mode)?;
            match limit.limit(wait.done()).await {
                Ok(done) => done?,
                Err(waited) => {
                    return Err(LockError::Timeout { blocked_on, wanted, blocker, waited }.into());
                }
            }
        }
        entry.with(|record| record.take(self.plan, &step));
        self.before.push((step, held));
        Ok(())
    }

    fn wanted(&self) -> Vec<Target> {
        self.plan.claims().iter().map(|claim| claim.target.clone()).collect()
    }

    fn succeed(mut self) {
        self.before.clear();
        self.hold.entry.with(|record| record.claim(self.plan.claims()));
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let FileHold { file, entry, .. } = &*self.hold;
        for (step, before) in self.before.drain(..).rev() {
            // Freeing and weakening never wait and never fail on a file that is open and was locked.
            if let Err(error) = file.set(step.slot, before) {
                tracing::error!(%error, "a byte could not be given back");
            }
            entry.with(|record| record.put_back(self.plan, &step, before));
        }
    }
}

impl Hold for FileHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        let plan = super::plan(&self.hierarchy, request.claims)?;
        self.take(&plan, request.limit).await
    }

    async fn release(self) -> Result<()> {
        match self.file.is_in_place() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.is_lost(REPLACED.to_owned())),
            Err(error) => Err(self.is_lost(format!("its lock file cannot be looked at: {error}"))),
        }
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

    async fn lost(&self) -> crate::Error {
        while self.file.is_in_place().unwrap_or(true) {
            tokio::time::sleep(LOOK_AFTER).await;
        }
        self.is_lost(REPLACED.to_owned())
    }
}

impl FencingHold for FileHold {
    async fn token(&self) -> Result<u64> {
        token::next(self.file.path())
    }
}

const REPLACED: &str = "its lock file was removed or replaced, so others lock another one";

impl FileHold {
    fn is_lost(&self, why: String) -> crate::Error {
        let targets = self.targets().into_keys().collect();
        LockError::Lost { targets, why }.into()
    }
}
