//! One public error with methods that classify it. The kinds are private and mirror the modules.

mod lock;
#[cfg(feature = "_driver")]
mod sql;
mod usage;

pub(crate) use lock::LockError;
pub use lock::{Blocker, BlockingSession, LockConflict, TransactionState};
#[cfg(feature = "_driver")]
pub(crate) use sql::{SqlError, TableError};
pub(crate) use usage::{TargetError, UrlError};

use crate::target::Target;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
use crate::{
    lease::{LeaseError, LeaseInfo, LeaseLoss},
    optimistic::OptimisticError,
    queue::QueueError,
};
#[cfg(feature = "_server")]
use hierlock_engine::AddressError;
#[cfg(feature = "_driver")]
use hierlock_engine::{ColumnError, InvalidName, ServerError};
use hierlock_engine::{UrlParameterError, printable};
use std::fmt;
use std::path::{Path, PathBuf};

/// The result of hierlock's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of hierlock's functions. The message names the target by its path. Programs should call the methods instead
/// of parsing the message.
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
#[derive(Debug)]
pub struct Error(Box<Repr>);

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Repr {
    Target(#[from] TargetError),
    Url(#[from] UrlError),
    UrlParameter(#[from] UrlParameterError),
    Lock(#[from] LockError),
    #[error("the lock backend failed: {0}")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
    File(#[from] FileError),
    #[cfg(feature = "_server")]
    Address(#[from] AddressError),
    #[cfg(feature = "_driver")]
    Server(#[from] ServerError),
    #[cfg(feature = "_driver")]
    Sql(#[from] SqlError),
    #[cfg(feature = "_driver")]
    Table(#[from] TableError),
    #[cfg(feature = "_driver")]
    Column(#[from] ColumnError),
    #[cfg(feature = "_driver")]
    Name(#[from] InvalidName),
    #[cfg(all(feature = "toolbox", feature = "_driver"))]
    Lease(#[from] LeaseError),
    #[cfg(all(feature = "toolbox", feature = "_driver"))]
    Queue(#[from] QueueError),
    #[cfg(all(feature = "toolbox", feature = "_driver"))]
    Optimistic(#[from] OptimisticError),
}

/// Converts the errors of modules, and the engine's errors.
impl<E> From<E> for Error
where
    Repr: From<E>,
{
    fn from(error: E) -> Self {
        Error(Box::new(error.into()))
    }
}

/// The meaning of an error for a caller. Each error has one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "toolbox", feature = "_driver")),
    allow(dead_code, reason = "some kinds are of the toolbox or of databases")
)]
pub(crate) enum ErrorKind {
    Timeout,
    Deadlock,
    WouldBlock,
    NotProvisioned,
    NewerSchema,
    Lost,
    Held,
    Stale,
    Missing,
    Usage,
    Other,
}

/// Errors of lock files. Mirrors `file`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "the file system of `{}` refuses open-file-description locks ({source}); put the lock file \
         on a local one, such as /run or /tmp",
        path.display()
    )]
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has these locks"))]
    LocksNotSupported { path: PathBuf, source: std::io::Error },
    #[error(
        "`{}` is replaced again and again while it is being locked; a lock file must stay in place",
        path.display()
    )]
    Replaced { path: PathBuf },
    #[error(
        "no directory for the lock file: set XDG_RUNTIME_DIR or HOME, or name a file with file:PATH"
    )]
    NoDirectory,
}

impl FileError {
    pub(crate) fn io(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self + Copy {
        move |source| FileError::Io { doing, path: path.to_path_buf(), source }
    }
}

impl Error {
    getters! { self:
        /// Returns whether the deadline came first.
        is_timeout -> bool = self.kind() == ErrorKind::Timeout;
        /// Returns whether there was a deadlock, or one that would not have been detected was possible.
        is_deadlock -> bool = self.kind() == ErrorKind::Deadlock;
        /// Returns whether a node was not free and the request did not wait.
        is_would_block -> bool = self.kind() == ErrorKind::WouldBlock;
        /// Returns whether a row or a table is missing, or the table is that of an older release.
        is_not_provisioned -> bool = self.kind() == ErrorKind::NotProvisioned;
        /// Returns whether the tables of leases or of queues were upgraded by a newer release of hierlock, so that this one
        /// cannot use them.
        is_newer_schema -> bool = self.kind() == ErrorKind::NewerSchema;
        /// Returns whether a lock, a lease or the claim of a job is not held any more.
        is_lost -> bool = self.kind() == ErrorKind::Lost;
        /// Returns whether another owner holds a lease of the node.
        is_held -> bool = self.kind() == ErrorKind::Held;
        /// Returns whether the row has another version than expected, because another writer changed it.
        is_stale -> bool = self.kind() == ErrorKind::Stale;
        /// Returns whether the row does not exist.
        is_missing -> bool = self.kind() == ErrorKind::Missing;
        /// Returns whether an argument was invalid: an ID, a path, a mode, a URL, a column.
        is_usage -> bool = self.kind() == ErrorKind::Usage;
        /// Returns the node that was not free, after a timeout, a refusal or a deadlock.
        blocked_on -> Option<&Target> = self.conflict().map(|conflict| &conflict.blocked_on);
        /// Returns the blocking sessions that the server reported, after a timeout or a refusal. If a
        /// [waiter](Blocker::Waiter) blocks, the holders for which it waits are listed too.
        blocking_sessions -> &[BlockingSession] =
            self.conflict().map_or(&[], |conflict| &conflict.sessions);
    }

    fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Repr::Target(_) | Repr::Url(_) | Repr::UrlParameter(_) => ErrorKind::Usage,
            #[cfg(feature = "_server")]
            Repr::Address(_) => ErrorKind::Usage,
            #[cfg(feature = "_driver")]
            Repr::Name(_) => ErrorKind::Usage,
            Repr::Lock(error) => error.kind(),
            #[cfg(feature = "_driver")]
            Repr::Server(ServerError::NotClosed { .. }) => ErrorKind::Timeout,
            #[cfg(feature = "_driver")]
            Repr::Sql(error) => error.kind(),
            #[cfg(feature = "_driver")]
            Repr::Table(error) => error.kind(),
            #[cfg(all(feature = "toolbox", feature = "_driver"))]
            Repr::Lease(error) => error.kind(),
            #[cfg(all(feature = "toolbox", feature = "_driver"))]
            Repr::Queue(error) => error.kind(),
            #[cfg(all(feature = "toolbox", feature = "_driver"))]
            Repr::Optimistic(error) => error.kind(),
            _ => ErrorKind::Other,
        }
    }

    fn lock(&self) -> Option<&LockError> {
        match &*self.0 {
            Repr::Lock(LockError::InTransaction { error, .. }) => error.lock(),
            Repr::Lock(error) => Some(error),
            _ => None,
        }
    }

    /// Returns whether the same call may succeed when tried again. After a deadlock: with all locks released.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Deadlock, Held, Timeout, WouldBlock};
        matches!(self.kind(), Timeout | Deadlock | WouldBlock | Held)
    }

    /// Returns the state of the caller's transaction, after [`acquire_in`](crate::Hierlock::acquire_in).
    pub fn transaction_state(&self) -> Option<TransactionState> {
        match &*self.0 {
            Repr::Lock(LockError::InTransaction { state, .. }) => Some(*state),
            _ => None,
        }
    }

    pub(crate) fn conflict(&self) -> Option<&LockConflict> {
        self.lock()?.conflict()
    }

    /// Returns whether [the node](Self::blocked_on) is held by another owner, or only waited for by one that came first,
    /// after a timeout or a refusal.
    pub fn blocker(&self) -> Option<Blocker> {
        match self.lock()? {
            LockError::Timeout { conflict, .. } | LockError::WouldBlock(conflict) => {
                Some(conflict.blocker)
            }
            _ => None,
        }
    }
}

#[cfg(all(feature = "toolbox", feature = "_driver"))]
impl Error {
    /// Returns the lease that is held by another owner; of several, the one that expires last.
    pub fn lease_holder(&self) -> Option<&LeaseInfo> {
        match &*self.0 {
            Repr::Lease(LeaseError::Held { holder, .. }) => Some(holder),
            _ => None,
        }
    }

    /// Returns why a lease is lost.
    pub fn lost_lease(&self) -> Option<&LeaseLoss> {
        match &*self.0 {
            Repr::Lease(LeaseError::Lost { cause, .. }) => Some(cause),
            _ => None,
        }
    }
}

/// Writes one line without control characters: paths, names and messages of servers may contain any.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0.to_string()))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn target(path: &str) -> Target {
        path.parse().unwrap()
    }

    #[test]
    fn an_error_is_one_pointer_wide_and_send_and_sync() {
        fn is_send_and_sync<T: Send + Sync + 'static>() {}
        is_send_and_sync::<Error>();
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }

    /// A path or a name may contain an escape sequence that clears a terminal, or a line break.
    #[test]
    fn a_message_is_one_line_without_control_characters() {
        let error = "u1/\u{1b}[2J/a\nb\u{9b}/x%".parse::<Target>().unwrap_err();
        assert!(error.to_string().contains(r"u1/\u{1b}[2J/a\nb\u{9b}/x%"), "{error}");
    }

    #[test]
    fn each_error_has_one_kind_and_names_its_target() {
        let waited = Duration::from_millis(300);
        let conflict = |blocked_on: &str, wanted: &str, blocker| LockConflict {
            blocked_on: target(blocked_on),
            wanted: vec![target(wanted)],
            blocker,
            sessions: Vec::new(),
        };
        let below = || conflict("u1/a1", "u1/a1/r1", Blocker::Holder);
        let refused = |blocker| Error::would_block(conflict("u1", "u1", blocker));
        let wanted = vec![target("u1/a1/r1")];
        let missing =
            LockError::NotProvisioned { level: 2, bucket: Some(7), target: target("u1/a1/r1") };
        let no_connection: Error = LockError::NoConnection { wanted, waited: Some(waited) }.into();
        let lost = Error::lost(vec![target("u1"); 5], "gone");
        use ErrorKind::{Deadlock, Lost, NotProvisioned, Timeout, WouldBlock};
        let cases = [
            (
                Error::timeout(below(), waited),
                Timeout,
                "timed out after 300 ms waiting for `u1/a1`, which someone else has locked (wanted: `u1/a1/r1`)",
            ),
            (refused(Blocker::Holder), WouldBlock, "`u1` is locked by someone else"),
            (
                refused(Blocker::Waiter),
                WouldBlock,
                "`u1` is not free: someone else is already waiting for it",
            ),
            (
                no_connection,
                Timeout,
                "all connections of this client are in use, also after 300 ms (wanted: `u1/a1/r1`)",
            ),
            (Error::deadlock(below()), Deadlock, "deadlock at `u1/a1`"),
            (Error::out_of_order(below()), Deadlock, "`u1/a1` could deadlock"),
            (missing.into(), NotProvisioned, "level 2, bucket 7"),
            (lost, Lost, "`u1`, `u1`, `u1` and 2 more is lost: gone"),
        ];
        for (error, kind, expected) in cases {
            let answers = [
                (error.is_timeout(), Timeout),
                (error.is_deadlock(), Deadlock),
                (error.is_would_block(), WouldBlock),
                (error.is_not_provisioned(), NotProvisioned),
                (error.is_lost(), Lost),
                (error.is_usage(), ErrorKind::Usage),
            ];
            assert!(answers.iter().all(|(answer, of)| *answer == (*of == kind)), "{error}");
            let is_retryable = ![NotProvisioned, Lost].contains(&kind);
            assert_eq!(error.is_retryable(), is_retryable, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
