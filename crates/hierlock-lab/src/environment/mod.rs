//! The environment of a case: a database or a tree of its own, with its sessions. Only this module talks to servers.
//!
//! ```text
//!   CaseEnvironment
//!    ├─ TestDatabase: a namespace of its own on a TestServer
//!    │    ├─ Session: a connection and a task each
//!    │    └─ Observer: one more connection, which asks hierlock_engine::introspection for waits, for
//!    │       locks and for the last deadlock, and replaces process ids by session names
//!    └─ TreeSessions: guards of a client that locks nodes: in memory, on files, or on a server
//! ```

mod connection;
mod failure;
mod namespace;
mod observer;
mod prepared_statements;
mod prepared_transactions;
mod requirements;
mod server;
mod session;
mod settings;
mod test_database;
#[cfg(test)]
mod tests;
mod tree_database;
mod tree_sessions;

pub(crate) use server::TestServer;
pub(crate) use tree_database::{TreeDatabases, TreeSpec};

use crate::engine::Engine;
use crate::lab::Lab;
use crate::observation::{Answer, Failure, Lock, SessionName, SessionWait};
use crate::record::Cycle;
use crate::scenario::{Action, Case};
use hierlock::Hierlock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use test_database::TestDatabase;
use tokio::sync::oneshot;
use tree_database::TreeDatabase;
use tree_sessions::TreeSessions;

/// The limit for a statement that sets up a database, or removes it.
const SET_UP_LIMIT: Duration = Duration::from_secs(60);

/// A cycle of waits that lasts this long is one that the server does not resolve. MySQL and MariaDB check when a wait
/// begins; MySQL also checks every second, in a thread.
pub(crate) const CYCLE_LIMIT: Duration = Duration::from_secs(2);

/// Receives the result of a step. If the session is gone, the result is a [`Failure`].
pub(crate) type Reply = oneshot::Receiver<Result<Answer, Failure>>;

/// The reason why a server or a database cannot be used: a lost connection, a failed query, a refused setup.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LabError(pub String);

pub(crate) type LabResult<T> = Result<T, LabError>;

pub(crate) struct ProbeIntervals {
    /// The delay of the first probe after a step has begun: most steps that need not wait are finished by then.
    pub(crate) first: Duration,
    /// The interval between two probes that must agree.
    pub(crate) agreeing: Duration,
    /// The greatest interval. The interval grows while a statement works without waiting.
    pub(crate) max: Duration,
}

impl ProbeIntervals {
    /// Probes are queries. A deadlock that InnoDB is about to detect may look like a wait for some milliseconds.
    const DATABASE: Self = Self::from_millis(2, 4, 50);
    /// Probes only read the state of the client.
    const SERVER_TREE: Self = Self::from_millis(2, 4, 4);
    /// The answers of the lock manager in this process, and of the kernel, are always current.
    const LOCAL_TREE: Self = Self::from_millis(1, 1, 1);

    const fn from_millis(first: u64, agreeing: u64, max: u64) -> Self {
        let (first, agreeing) = (Duration::from_millis(first), Duration::from_millis(agreeing));
        Self { first, agreeing, max: Duration::from_millis(max) }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CaseLocks {
    pub(crate) locks: Vec<Lock>,
    /// The sessions whose locks are not all listed, with the reason.
    pub(crate) incomplete: BTreeMap<SessionName, String>,
}

/// The sessions of a case and their database or tree: SQL sessions, sessions that lock nodes, or both.
#[derive(Default)]
pub(crate) struct CaseEnvironment {
    database: Option<TestDatabase>,
    tree: Option<TreeSessions>,
    /// The database of a tree, if the case has no SQL sessions.
    tree_database: Option<TreeDatabase>,
}

impl CaseEnvironment {
    /// Opens the environment of a case. A case that only locks nodes takes an idle database.
    pub(crate) async fn open(lab: &Lab, case: &Case) -> LabResult<Self> {
        let spec = TreeSpec::of(case);
        let sessions = case.sessions.keys();
        if case.sql().next().is_none() {
            return Self::open_tree(lab, &spec, sessions).await;
        }
        let database = TestDatabase::open(lab.server(case.backend.engine)?, case).await?;
        let mut tree = None;
        if case.steps.iter().any(|step| matches!(step.action, Action::Lock(..))) {
            match spec.provision(&database.guard).await {
                Ok(locks) => tree = Some(TreeSessions::new(locks, sessions)),
                Err(error) => {
                    // Runs the teardown. The first error is the one to report.
                    _ = database.close().await;
                    return Err(error);
                }
            }
        }
        Ok(Self { database: Some(database), tree, ..Self::default() })
    }

    /// Opens an environment whose sessions only lock nodes; on a server, in an idle database or a new one.
    pub(crate) async fn open_tree<'n>(
        lab: &Lab,
        spec: &TreeSpec,
        sessions: impl Iterator<Item = &'n SessionName>,
    ) -> LabResult<Self> {
        let engine = spec.backend.engine;
        if engine.server().is_none() {
            let locks = Hierlock::connect(&tree_url(engine, lab.directory.path())).await;
            let locks = locks.map_err(|error| LabError(error.to_string()))?;
            let tree = Some(TreeSessions::new(locks, sessions));
            return Ok(Self { tree, ..Self::default() });
        }
        let database = lab.tree_databases.take(spec, lab.server(engine)?).await?;
        let tree = Some(TreeSessions::new(database.locks.clone(), sessions));
        Ok(Self { tree, tree_database: Some(database), ..Self::default() })
    }

    /// Begins an action of a session without waiting for its end. The session must have finished its previous action.
    pub(crate) fn begin(&self, session: &SessionName, action: &Action) -> Reply {
        match (action, &self.tree, &self.database) {
            (Action::Lock(action, _), Some(tree), _) => tree.begin(session, action),
            (Action::Sql(sql), _, Some(database)) => database.begin(session, sql),
            // Unreachable: the cases of a backend contain only actions that the backend supports.
            _ => oneshot::channel().1,
        }
    }

    /// Returns the current waits: for nodes as the library reports them, others as the server does.
    ///
    /// # Cancel safety
    /// This future and those of `locks` and `deadlock` may be dropped: the query runs to its end.
    pub(crate) async fn waits(&self) -> LabResult<Vec<SessionWait>> {
        let mut waits = self.tree.as_ref().map(TreeSessions::waits).unwrap_or_default();
        if let Some(database) = &self.database {
            let mut others = database.waits().await?;
            others.retain(|wait| waits.iter().all(|known| known.waiter != wait.waiter));
            waits.extend(others);
        }
        Ok(waits)
    }

    pub(crate) async fn locks(&self) -> LabResult<CaseLocks> {
        let mut list = match &self.database {
            Some(database) => database.locks().await?,
            None => CaseLocks::default(),
        };
        if let Some(tree) = &self.tree {
            list.locks.splice(0..0, tree.locks());
        }
        Ok(list)
    }

    /// Returns the cycle of the deadlock whose victim has just failed, if the engine reports the cycle.
    pub(crate) async fn deadlock(&self, victim: &SessionName, failure: &Failure) -> Option<Cycle> {
        self.database.as_ref()?.deadlock(victim, failure).await
    }

    pub(crate) fn probe_intervals(&self) -> ProbeIntervals {
        match (&self.database, &self.tree_database) {
            (Some(_), _) => ProbeIntervals::DATABASE,
            (None, Some(_)) => ProbeIntervals::SERVER_TREE,
            (None, None) => ProbeIntervals::LOCAL_TREE,
        }
    }

    /// Returns the time after which a cycle counts as one that the server does not resolve.
    pub(crate) fn cycle_limit(&self) -> Duration {
        CYCLE_LIMIT + self.database.as_ref().map_or(Duration::ZERO, TestDatabase::deadlock_timeout)
    }

    /// Returns the time until the server has checked all waits of the last probe for deadlocks; zero where it checks at
    /// once. On PostgreSQL the session that checks while there is a cycle is the victim.
    pub(crate) fn next_deadlock_check(&self) -> Duration {
        self.database.as_ref().map_or(Duration::ZERO, TestDatabase::next_deadlock_check)
    }

    /// Cancels the action of a session, on the server too; its [`Reply`] then arrives.
    pub(crate) async fn cancel(&self, session: &SessionName) -> LabResult<()> {
        if let Some(tree) = &self.tree {
            tree.cancel(session);
        }
        match &self.database {
            Some(database) => database.cancel(session).await,
            None => Ok(()),
        }
    }

    /// Cancels the unfinished actions of sessions that lock nodes, and releases their locks.
    pub(crate) async fn reset_tree(&mut self) {
        if let Some(tree) = &mut self.tree {
            tree.reset().await;
        }
    }

    /// Ends all sessions, runs the teardown, and removes or stores the database. Returns notes for the record.
    pub(crate) async fn close(mut self, idle: Option<&TreeDatabases>) -> LabResult<Vec<String>> {
        self.reset_tree().await;
        drop(self.tree);
        let removed = match (self.tree_database, idle) {
            (Some(database), Some(idle)) => idle.put_back(database).await,
            (Some(database), None) => database.remove().await,
            (None, _) => Ok(()),
        };
        match self.database {
            Some(database) => database.close().await,
            None => removed.map(|()| Vec::new()),
        }
    }
}

/// Returns the URL of a new tree of this process, in memory or in a file of `directory`.
fn tree_url(engine: Engine, directory: &Path) -> String {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    if engine == Engine::Memory {
        return "memory:".to_owned();
    }
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    format!("file:{}", directory.join(format!("{number}.lock")).display())
}
