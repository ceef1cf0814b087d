//! One public error with questions to ask it. The kinds stay private and mirror the modules.

mod lock;
#[cfg(feature = "_driver")]
mod sql;
mod toolbox;
mod usage;

use lock::BackendError;
pub(crate) use lock::LockError;
#[cfg(feature = "_driver")]
use lock::Span;
pub use lock::{Blocker, LockConflict, TransactionState};
#[cfg(feature = "_driver")]
pub(crate) use sql::{SqlError, TableError};
pub(crate) use usage::{TargetError, UrlError};

use crate::target::Target;
use hierlock_engine::printable;
use std::fmt;
use std::path::PathBuf;
#[cfg(test)]
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
    #[cfg(feature = "_driver")]
    #[error(transparent)]
    Sql(SqlError),
    #[cfg(feature = "_driver")]
    #[error(transparent)]
    Table(TableError),
    #[cfg(all(feature = "toolbox", feature = "_driver"))]
    #[error(transparent)]
    Lease(crate::lease::LeaseError),
    #[cfg(all(feature = "toolbox", feature = "_driver"))]
    #[error(transparent)]
    Queue(crate::queue::QueueError),
    #[cfg(all(feature = "toolbox", feature = "_driver"))]
    #[error(transparent)]
    Optimistic(crate::optimistic::OptimisticError),
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

impl Error {
    fn lock(&self) -> Option<&LockError> {
        match &*self.0 {
            Kind::Lock(LockError::InTransaction { error, .. }) => error.lock(),
            Kind::Lock(error) => Some(error),
            _ => None,
        }
    }

    /// The deadline came first.
    pub fn is_timeout(&self) -> bool {
        use LockError::{NoConnection, Timeout};
        matches!(self.lock(), Some(Timeout { .. } | NoConnection { waited: Some(_), .. }))
            || self.is_not_closed()
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
            || self.is_row_not_free()
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

    #[cfg(feature = "_server")]
    /// What was in the way, where waiting was not asked for.
    pub(crate) fn would_block_on(&self) -> Option<Target> {
        match self.lock() {
            Some(LockError::WouldBlock { blocked_on, .. }) => Some(blocked_on.clone()),
            _ => None,
        }
    }

    /// A row or a table that should be there is not, or is that of an older release.
    pub fn is_not_provisioned(&self) -> bool {
        matches!(self.lock(), Some(LockError::NotProvisioned { .. })) || self.are_tables_missing()
    }

    /// It was held, and is no more: a lock, a lease, or the run of a job.
    pub fn is_lost(&self) -> bool {
        matches!(self.lock(), Some(LockError::Lost { .. })) || self.is_lost_in_toolbox()
    }

    /// Somebody else has a lease there.
    pub fn is_held(&self) -> bool {
        self.is_held_lease()
    }

    /// May the same call succeed when tried again? After a deadlock: with everything released.
    pub fn is_retryable(&self) -> bool {
        self.is_timeout() || self.is_deadlock() || self.is_would_block() || self.is_held()
    }

    /// Was the request itself wrong: an ID, a path, a mode, a URL, a column?
    pub fn is_usage(&self) -> bool {
        match &*self.0 {
            Kind::Target(_) | Kind::Url(_) => true,
            Kind::Lock(_) | Kind::Backend(_) | Kind::File(_) => false,
            #[cfg(feature = "_driver")]
            Kind::Sql(error) => error.is_usage(),
            #[cfg(feature = "_driver")]
            Kind::Table(error) => matches!(error, TableError::Name(_)),
            #[cfg(all(feature = "toolbox", feature = "_driver"))]
            Kind::Lease(error) => error.is_usage(),
            #[cfg(all(feature = "toolbox", feature = "_driver"))]
            Kind::Queue(error) => !matches!(error, crate::queue::QueueError::Lost { .. }),
            #[cfg(all(feature = "toolbox", feature = "_driver"))]
            Kind::Optimistic(error) => error.is_usage(),
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
    ($($kind:ident($error:path)),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error(Box::new(Kind::$kind(error)))
            }
        })*
    };
}
kinds!(Target(TargetError), Url(UrlError), Lock(LockError), Backend(BackendError), File(FileError));
#[cfg(feature = "_driver")]
kinds!(Sql(SqlError), Table(TableError));
#[cfg(all(feature = "toolbox", feature = "_driver"))]
kinds!(
    Lease(crate::lease::LeaseError),
    Queue(crate::queue::QueueError),
    Optimistic(crate::optimistic::OptimisticError)
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
