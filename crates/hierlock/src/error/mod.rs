//! One public error with questions to ask it. The kinds stay private and mirror the modules.

mod lock;
mod usage;

pub(crate) use lock::LockError;
use lock::{BackendError, Span};
pub use lock::{Blocker, LockConflict, TransactionState};
pub(crate) use usage::{TargetError, UrlError};

use crate::database::Schema;
use crate::lease::{LeaseError, LeaseInfo, LostLease};
use crate::optimistic::OptimisticError;
use crate::queue::QueueError;
use crate::target::Target;
use hierlock_engine::{ColumnError, InvalidName, ServerError, error_message, printable};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What hierlock returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. Its message names the target by its path; ask it what it means
/// instead of reading the message.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::{Hierlock, Target};
/// use std::time::Duration;
///
/// let locks = Hierlock::connect("memory:").await?;
/// let _held = locks.acquire(Target::account("u1", "a1")?).await?;
///
/// let resource = Target::resource("u1", "a1", "r1")?;
/// let error = locks.request(resource).within(Duration::from_millis(5)).acquire().await.unwrap_err();
/// assert!(error.is_timeout() && error.is_retryable());
/// assert!(error.to_string().contains("u1/a1"));
/// # Ok(()) }
/// ```
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(transparent)]
    Target(TargetError),
    #[error(transparent)]
    Url(UrlError),
    #[error(transparent)]
    Lock(LockError),
    #[error(transparent)]
    Backend(BackendError),
    #[error(transparent)]
    File(FileError),
    #[error(transparent)]
    Sql(SqlError),
    #[error(transparent)]
    Table(TableError),
    #[error(transparent)]
    Lease(LeaseError),
    #[error(transparent)]
    Queue(QueueError),
    #[error(transparent)]
    Optimistic(OptimisticError),
}

/// Mirrors `file`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "the file system of `{}` refuses open-file-description locks ({source}); put the lock file \
         on a local one, such as /run or /tmp",
        path.display()
    )]
    NoLocksHere { path: PathBuf, source: std::io::Error },
    #[error(
        "`{}` is replaced again and again while it is being locked; a lock file must stay in place",
        path.display()
    )]
    Replaced { path: PathBuf },
    #[error("no place for the lock file: set XDG_RUNTIME_DIR or HOME, or name one with file:PATH")]
    NoPlace,
}

/// Mirrors `sql`. A URL may hold a password, so servers are named by host and port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    #[error(transparent)]
    Server(ServerError),
    #[error("{server} cannot be used: {why}")]
    Unfit { server: String, why: String },
    #[error(
        "{server}: a change to {fence} buckets was cut short; finish it with \
         `hierlock provision --rebucket {fence}`"
    )]
    CutShort { server: String, fence: u32 },
    #[error("the task that talks to {server} has ended, for its runtime is shutting down")]
    NoRuntime { server: String },
    #[error(
        "{server} could not be told within {} to end what this client has given up; it keeps those locks \
         until it notices by itself",
        Span(*limit)
    )]
    NotClosed { server: String, limit: Duration },
    #[error("a lock on {server} has no {asked}; ask for the connection of that server")]
    OtherConnection { server: String, asked: &'static str },
    #[error("the transaction is not one of {server}, where the locks are")]
    OtherTransaction { server: String },
    #[error("a lock with scope=session has no transaction of its own; connect without that")]
    NoOwnTransaction,
    #[error("a statement in the lock's transaction on {server} failed, so nothing was committed")]
    WorkFailed { server: String },
    #[error(
        "the connection to {server} ended during COMMIT: whether it was committed is not known \
         ({})",
        error_message(source)
    )]
    CommitUnknown { server: String, source: sqlx::Error },
}

/// Mirrors `database`, and what the toolbox does in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("cannot {doing}: {}", error_message(source))]
    Failed { doing: &'static str, source: sqlx::Error },
    #[error("its tables are not in the database; run `{}`", schema.command)]
    NotProvisioned { schema: Schema },
    #[error(
        "cannot {doing}: the {} tables are not as this release of hierlock knows them ({}); run `{}`, or \
         update this program if a newer release has upgraded them",
        schema.part,
        error_message(source),
        schema.command
    )]
    OtherForm { schema: Schema, doing: &'static str, source: sqlx::Error },
    #[error(
        "the {} tables are at version {found}, and this release of hierlock needs version {}; run `{}`",
        schema.part,
        schema.newest(),
        schema.command
    )]
    Older { schema: Schema, found: i64 },
    #[error(
        "the {} tables are at version {found}, made by a newer release of hierlock, and this one knows \
         only version {}; update this program",
        schema.part,
        schema.newest()
    )]
    Newer { schema: Schema, found: i64 },
    #[error("the {} tables are being upgraded by someone else; try again later", schema.part)]
    BeingUpgraded { schema: Schema },
    #[error(transparent)]
    Name(InvalidName),
}

impl Error {
    fn lock(&self) -> Option<&LockError> {
        match &*self.0 {
            Kind::Lock(LockError::InTransaction { error, .. }) => error.lock(),
            Kind::Lock(error) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn table(&self) -> Option<&TableError> {
        match &*self.0 {
            Kind::Table(error) => Some(error),
            _ => None,
        }
    }

    /// A failed statement as one that names what the tables of a part do not have.
    pub(crate) fn in_other_form(self, schema: Schema) -> Self {
        match *self.0 {
            Kind::Table(TableError::Failed { doing, source }) => {
                TableError::OtherForm { schema, doing, source }.into()
            }
            kind => Error(Box::new(kind)),
        }
    }

    /// The deadline came first.
    pub fn is_timeout(&self) -> bool {
        use LockError::{NoConnection, Timeout};
        matches!(self.lock(), Some(Timeout { .. } | NoConnection { waited: Some(_), .. }))
            || matches!(&*self.0, Kind::Sql(SqlError::NotClosed { .. }))
    }

    /// Waiting would have been, or could have been, for ever.
    pub fn is_deadlock(&self) -> bool {
        use LockError::{Deadlock, DeadlockInTransaction, OutOfOrder};
        matches!(
            self.lock(),
            Some(Deadlock { .. } | OutOfOrder { .. } | DeadlockInTransaction { .. })
        )
    }

    /// After [`acquire_in`](crate::Hierlock::acquire_in): what has become of the caller's transaction.
    pub fn transaction_state(&self) -> Option<TransactionState> {
        match &*self.0 {
            Kind::Lock(LockError::InTransaction { state, .. }) => Some(*state),
            _ => None,
        }
    }

    /// It was not free, and waiting was not asked for.
    pub fn is_would_block(&self) -> bool {
        use LockError::{NoConnection, WouldBlock};
        matches!(self.lock(), Some(WouldBlock { .. } | NoConnection { waited: None, .. }))
            || matches!(&*self.0, Kind::Optimistic(OptimisticError::WouldBlock { .. }))
    }

    /// The row is at another [version](crate::optimistic) than expected: somebody else changed it.
    pub fn is_stale(&self) -> bool {
        matches!(&*self.0, Kind::Optimistic(OptimisticError::Stale { .. }))
    }

    /// There is no such [row](crate::optimistic).
    pub fn is_missing(&self) -> bool {
        matches!(&*self.0, Kind::Optimistic(OptimisticError::Missing))
    }

    /// The node that was in the way of a lock, where one was: after a timeout, a refusal or a deadlock.
    pub fn blocked_on(&self) -> Option<&Target> {
        match self.lock()? {
            LockError::Timeout { blocked_on, .. }
            | LockError::WouldBlock { blocked_on, .. }
            | LockError::Deadlock { blocked_on, .. }
            | LockError::OutOfOrder { blocked_on, .. }
            | LockError::DeadlockInTransaction { blocked_on, .. } => Some(blocked_on),
            LockError::NoConnection { .. }
            | LockError::NotProvisioned { .. }
            | LockError::InTransaction { .. }
            | LockError::Lost { .. } => None,
        }
    }

    /// After a timeout or a refusal: whether [that node](Self::blocked_on) is held by someone else, or only
    /// waited for by someone who came first.
    pub fn blocker(&self) -> Option<Blocker> {
        match self.lock()? {
            LockError::Timeout { blocker, .. } | LockError::WouldBlock { blocker, .. } => {
                Some(*blocker)
            }
            _ => None,
        }
    }

    /// What was in the way, where waiting was not asked for.
    pub(crate) fn would_block_on(&self) -> Option<Target> {
        match self.lock() {
            Some(LockError::WouldBlock { blocked_on, .. }) => Some(blocked_on.clone()),
            _ => None,
        }
    }

    /// What the driver said, if it was the driver.
    pub(crate) fn sql_source(&self) -> Option<&sqlx::Error> {
        match &*self.0 {
            Kind::Sql(SqlError::Server(error)) => error.source_of_driver(),
            Kind::Table(
                TableError::Failed { source, .. } | TableError::OtherForm { source, .. },
            ) => Some(source),
            _ => None,
        }
    }

    /// There was no way to connect to the server.
    pub(crate) fn is_no_connection(&self) -> bool {
        matches!(&*self.0, Kind::Sql(SqlError::Server(error)) if error.is_no_connection())
    }

    /// A row or a table that should be there is not, or is that of an older release.
    pub fn is_not_provisioned(&self) -> bool {
        matches!(self.lock(), Some(LockError::NotProvisioned { .. }))
            || matches!(
                self.table(),
                Some(TableError::NotProvisioned { .. } | TableError::Older { .. })
            )
    }

    /// The tables of leases or of queues were upgraded by a newer release of hierlock, and this one cannot use them.
    pub fn is_newer_schema(&self) -> bool {
        matches!(self.table(), Some(TableError::Newer { .. }))
    }

    /// There are no tables that this release can work with, and waiting does not change that.
    pub(crate) fn is_unfit(&self) -> bool {
        self.is_not_provisioned() || self.is_newer_schema()
    }

    /// It was held, and is no more: a lock, a lease, or the run of a job.
    pub fn is_lost(&self) -> bool {
        matches!(self.lock(), Some(LockError::Lost { .. }))
            || self.lost_lease().is_some()
            || matches!(&*self.0, Kind::Queue(QueueError::Lost { .. }))
    }

    /// Somebody else has a lease there.
    pub fn is_held(&self) -> bool {
        self.lease_holder().is_some()
    }

    /// Who has a lease there; of several the one that lasts longest.
    pub fn lease_holder(&self) -> Option<&LeaseInfo> {
        match &*self.0 {
            Kind::Lease(LeaseError::Held { holder, .. }) => Some(holder),
            _ => None,
        }
    }

    /// Why a lease is lost.
    pub fn lost_lease(&self) -> Option<&LostLease> {
        match &*self.0 {
            Kind::Lease(LeaseError::Lost { cause, .. }) => Some(cause),
            _ => None,
        }
    }

    /// May the same call succeed when tried again? After a deadlock: with everything released.
    pub fn is_retryable(&self) -> bool {
        self.is_timeout() || self.is_deadlock() || self.is_would_block() || self.is_held()
    }

    /// Was the request itself wrong: an ID, a path, a mode, a URL, a column?
    pub fn is_usage(&self) -> bool {
        match &*self.0 {
            Kind::Target(_) | Kind::Url(_) | Kind::Table(TableError::Name(_)) => true,
            Kind::Lease(error) => error.is_usage(),
            Kind::Queue(error) => !matches!(error, QueueError::Lost { .. }),
            Kind::Optimistic(error) => error.is_usage(),
            Kind::Sql(error) => matches!(
                error,
                SqlError::OtherTransaction { .. }
                    | SqlError::OtherConnection { .. }
                    | SqlError::NoOwnTransaction
            ),
            _ => false,
        }
    }
}

/// On one line, with nothing in it that a terminal would obey: what a person or a server said may hold
/// anything.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0.to_string()))
    }
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::NotClosed { server, limit } => {
                SqlError::NotClosed { server, limit }.into()
            }
            error => SqlError::Server(error).into(),
        }
    }
}

impl From<ColumnError> for Error {
    fn from(ColumnError(source): ColumnError) -> Self {
        TableError::Failed { doing: "read a column", source }.into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

macro_rules! kinds {
    ($($kind:ident($error:ident)),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error(Box::new(Kind::$kind(error)))
            }
        })*
    };
}
kinds!(
    Target(TargetError),
    Url(UrlError),
    Lock(LockError),
    Backend(BackendError),
    File(FileError),
    Sql(SqlError),
    Table(TableError),
    Lease(LeaseError),
    Queue(QueueError),
    Optimistic(OptimisticError)
);

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        path.parse().unwrap()
    }

    #[test]
    fn an_error_is_one_pointer_wide_and_travels_between_threads() {
        fn travels<T: Send + Sync + 'static>() {}
        travels::<Error>();
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }

    /// A path or a name may hold what clears a terminal, or looks like a line of its own.
    #[test]
    fn a_message_is_one_line_that_does_nothing_to_a_terminal() {
        let error = "u1/\u{1b}[2J/a\nb\u{9b}/x%".parse::<Target>().unwrap_err();
        assert!(error.to_string().contains(r"u1/\u{1b}[2J/a\nb\u{9b}/x%"), "{error}");
    }

    #[test]
    fn each_kind_answers_its_questions_and_names_its_target() {
        let (blocked_on, wanted) = (target("u1/a1"), vec![target("u1/a1/r1")]);
        let waited = Duration::from_millis(300);
        let cases: [(LockError, fn(&Error) -> bool, bool, &str); 8] = [
            (
                LockError::Timeout {
                    blocked_on: blocked_on.clone(),
                    wanted: wanted.clone(),
                    blocker: Blocker::Holder,
                    waited,
                },
                Error::is_timeout,
                true,
                "timed out after 300 ms waiting for `u1/a1`, which someone else has locked (wanted: `u1/a1/r1`)",
            ),
            (
                LockError::WouldBlock {
                    blocked_on: target("u1"),
                    wanted: vec![target("u1")],
                    blocker: Blocker::Holder,
                },
                Error::is_would_block,
                true,
                "`u1` is locked by someone else",
            ),
            (
                LockError::WouldBlock {
                    blocked_on: target("u1"),
                    wanted: vec![target("u1")],
                    blocker: Blocker::Waiter,
                },
                Error::is_would_block,
                true,
                "`u1` is not free: someone else, who came first, is waiting for it",
            ),
            (
                LockError::NoConnection { wanted: wanted.clone(), waited: Some(waited) },
                Error::is_timeout,
                true,
                "all connections of this client are in use, also after 300 ms (wanted: `u1/a1/r1`)",
            ),
            (
                LockError::Deadlock { blocked_on: blocked_on.clone(), wanted: wanted.clone() },
                Error::is_deadlock,
                true,
                "deadlock at `u1/a1`",
            ),
            (
                LockError::OutOfOrder { blocked_on, wanted: wanted.clone() },
                Error::is_deadlock,
                true,
                "`u1/a1` could deadlock",
            ),
            (
                LockError::NotProvisioned { level: 2, bucket: Some(7), target: target("u1/a1/r1") },
                Error::is_not_provisioned,
                false,
                "level 2, bucket 7",
            ),
            (
                LockError::Lost { targets: vec![target("u1"); 5], why: "gone".into() },
                Error::is_lost,
                false,
                "`u1`, `u1`, `u1` and 2 more is lost: gone",
            ),
        ];
        let questions = [
            Error::is_timeout,
            Error::is_deadlock,
            Error::is_would_block,
            Error::is_not_provisioned,
            Error::is_lost,
            Error::is_usage,
        ];
        for (kind, answers, retryable, says) in cases {
            let error = Error::from(kind);
            assert!(answers(&error), "{error}");
            assert_eq!(questions.iter().filter(|asks| asks(&error)).count(), 1, "{error}");
            assert_eq!(error.is_retryable(), retryable, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
