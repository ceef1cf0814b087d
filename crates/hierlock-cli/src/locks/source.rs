//! The server or file that has the locks, and snapshots of it.

use super::file;
use crate::exit::CommandError;
use hierlock::sql::lock_report::{LockInspector, LockSnapshot, PathFilter};
use hierlock::{ServerUrl, Target};
use std::path::PathBuf;

/// A server or a file whose locks can be listed.
#[derive(Clone, Debug)]
pub(crate) enum LockBackend {
    Server(ServerUrl),
    File(PathBuf),
}

impl LockBackend {
    /// Returns the backend of a URL; by default the lock file of `hierlock run`.
    pub(crate) fn of(url: Option<&ServerUrl>) -> Result<Self, CommandError> {
        let Some(url) = url else { return Ok(LockBackend::File(hierlock::default_path()?)) };
        match url.expose().split_once(':') {
            Some(("memory", _)) => Err(CommandError::usage(
                "the locks of `memory:` are in one process, and only that process can list them (`Hierlock::holders`)",
            )),
            Some(("file", path)) => {
                Ok(LockBackend::File(path.strip_prefix("//").unwrap_or(path).into()))
            }
            _ => Ok(LockBackend::Server(url.clone())),
        }
    }
}

/// Takes snapshots of a backend. Connects at the first snapshot, and again after a failure.
pub(crate) struct LockSource {
    backend: LockBackend,
    inspector: Option<LockInspector>,
    /// A node whose locks are read even if no label names it.
    pub(super) path: Option<Target>,
}

impl LockSource {
    pub(crate) fn new(backend: LockBackend) -> Self {
        Self { backend, inspector: None, path: None }
    }

    /// Takes a snapshot. Fails if the backend cannot be read.
    pub(crate) async fn snapshot(&mut self) -> Result<LockSnapshot, CommandError> {
        let url = match &self.backend {
            LockBackend::Server(url) => url,
            LockBackend::File(path) => return file::snapshot(path),
        };
        // Taken out, so that the connection is dropped after a failure.
        let mut inspector = match self.inspector.take() {
            Some(inspector) => inspector,
            None => {
                let mut inspector = LockInspector::connect(url.expose()).await?;
                self.path.iter().for_each(|path| inspector.add_path(path));
                inspector
            }
        };
        let snapshot = inspector.snapshot().await?;
        self.inspector = Some(inspector);
        Ok(snapshot)
    }

    /// Returns the number of deadlocks since the server was started; `None` if the server does not report it, or before the
    /// first snapshot.
    pub(crate) async fn deadlock_count(&mut self) -> Result<Option<u64>, CommandError> {
        let Some(mut inspector) = self.inspector.take() else { return Ok(None) };
        let count = inspector.deadlock_count().await?;
        self.inspector = Some(inspector);
        Ok(count)
    }

    /// Returns a filter for the sessions that hold or want a node, its ancestors or descendants.
    pub(super) fn filter(&self, snapshot: &LockSnapshot, node: &Target) -> PathFilter {
        match &self.backend {
            LockBackend::Server(_) => snapshot.filter(node),
            LockBackend::File(_) => file::filter(node),
        }
    }
}
