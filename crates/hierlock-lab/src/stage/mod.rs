//! Where a case is played: a database (or a tree) of its own, with its sessions. Everything that talks
//! to a server is behind `Stage`; the runner knows no engine.
//!
//! ```text
//!   server ─► home (a database of its own) ─► sql: the stage on a server
//!     session: a task and a connection each         │
//!     side: one more connection, which asks ────────┘
//!        └─► hierlock_engine::introspection: who waits, who has which locks, the last deadlock
//!              └─► session_names: the server's numbers of sessions become names
//! ```

mod case;
mod connection;
mod failure;
mod home;
mod last_waits;
mod needs;
mod postgres;
mod prepared;
mod prepared_statements;
mod server;
mod server_address;
mod session;
mod session_names;
mod settings;
mod side;
mod sql;
mod statements;
#[cfg(test)]
mod tests;
mod tree;
mod tree_database;

pub(crate) use case::CaseStage;
pub(crate) use server::Server;
pub(crate) use sql::SqlStage;
pub(crate) use tree_database::{TreeDatabase, TreeDatabases, TreeSpec};

use crate::ledger::Incomplete;
use crate::observation::{Answer, Failure, Lock, Name, Wait};
use crate::record::Link;
use crate::scenario::CaseDeed;
use std::future::Future;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a statement may take that sets up a stage, or takes it down.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a circle of waits must stay to be one that the server does not end. The detectors of MySQL and
/// MariaDB look when a wait begins; that of MySQL is a thread, which looks every second besides.
pub(crate) const CIRCLE_LIMIT: Duration = Duration::from_secs(2);

/// How a deed ends, whenever it does. A session that is gone ends it as a [`Failure`].
pub(crate) type Reply = oneshot::Receiver<Result<Answer, Failure>>;

/// A stage that cannot be used: the server is gone, a probe failed, the setup was refused. In a
/// sentence.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StageError(pub String);

/// The locks of the sessions of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockList {
    pub(crate) locks: Vec<Lock>,
    /// Sessions of which not all locks are told.
    pub(crate) incomplete: Incomplete,
}

/// A place of its own for one case, with its sessions set up.
pub(crate) trait Stage: Send + Sync {
    /// Gives a session something to do, and does not wait for it. A session does one thing at a time;
    /// the runner gives it nothing new before the last is over.
    fn begin(&self, session: &Name, deed: &CaseDeed) -> Reply;

    /// Who waits for whom, as the server says now: live, never from a cache that lags.
    ///
    /// # Cancel safety
    /// It may be dropped, as may [`locks`](Self::locks) and [`circle`](Self::circle): the question is
    /// asked to its end all the same.
    fn waits(&self) -> impl Future<Output = Result<Vec<Wait>, StageError>> + Send;

    /// The locks of all sessions, as far as the engine tells.
    fn locks(&self) -> impl Future<Output = Result<LockList, StageError>> + Send;

    /// The circle of the deadlock in which `victim` has just been chosen, if the engine tells: who
    /// waited for whom, for what, and because of which lock. Who took that when is left open.
    fn circle(
        &self,
        victim: &Name,
        failure: &Failure,
    ) -> impl Future<Output = Option<Vec<Link>>> + Send;

    /// How long a circle of waits must stay to be one that the server does not end: longer than its
    /// detector needs.
    fn circle_limit(&self) -> Duration;

    /// How long it takes until every wait that [`waits`](Self::waits) has last told was looked at by the
    /// server's detector; zero where that looks at once. PostgreSQL looks once, some time after a wait has
    /// begun, and who looks when there is a circle is its victim.
    fn next_deadlock_check(&self) -> Duration;

    /// Ends what a session is doing, on the server; its [`Reply`] then comes.
    fn cancel(&self, session: &Name) -> impl Future<Output = Result<(), StageError>> + Send;

    /// Ends all sessions, runs the teardown, and leaves nothing behind. What there is to say about it is
    /// returned, in sentences without a subject: the case is meant.
    fn close(self) -> impl Future<Output = Result<Vec<String>, StageError>> + Send;
}
