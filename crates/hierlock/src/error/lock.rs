//! Why a lock was not taken, or no longer is. Mirrors `backend` and `guard`.

use super::{Error, ErrorKind, Repr};
use crate::target::Target;
use std::fmt;
use std::time::Duration;

#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "only servers need it"))]
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "timed out after {} waiting for `{}`, {}{}",
        duration_text(*waited), conflict.blocked_on, conflict.blocker.clause(), conflict.wanted_by()
    )]
    Timeout { conflict: LockConflict, waited: Duration },
    #[error("`{}` is {}{}", .0.blocked_on, .0.blocker.state(), .0.wanted_by())]
    WouldBlock(LockConflict),
    #[error("all connections of this client are in use{}{}; see the option `connections`", after(*waited), wanted_by(wanted))]
    NoConnection { wanted: Vec<Target>, waited: Option<Duration> },
    #[error(
        "deadlock at `{}`{}: this guard and another wait for each other. The guard keeps \
         what it had; release it and ask for everything at once",
        .0.blocked_on, .0.wanted_by()
    )]
    Deadlock(LockConflict),
    #[error(
        "waiting for `{}` could deadlock with another process{}: it comes before what the \
         guard holds, and nobody could notice. The guard keeps what it had; release it and ask for \
         everything at once",
        .0.blocked_on, .0.wanted_by()
    )]
    OutOfOrder(LockConflict),
    #[error(
        "level {level}{} is not provisioned (needed for `{target}`); run `hierlock provision`",
        bucket.map(|bucket| format!(", bucket {bucket}")).unwrap_or_default()
    )]
    NotProvisioned { level: usize, bucket: Option<u64>, target: Target },
    #[error("{error}; the transaction {state}")]
    InTransaction { error: Error, state: TransactionState },
    #[error("deadlock at `{}`{}", .0.blocked_on, .0.wanted_by())]
    DeadlockInTransaction(LockConflict),
    #[error("the lock of {} is lost: {why}", paths(targets))]
    Lost { targets: Vec<Target>, why: String },
}

impl LockError {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout { .. } | Self::NoConnection { waited: Some(_), .. } => ErrorKind::Timeout,
            Self::WouldBlock(_) | Self::NoConnection { .. } => ErrorKind::WouldBlock,
            Self::Deadlock(_) | Self::OutOfOrder(_) | Self::DeadlockInTransaction(_) => {
                ErrorKind::Deadlock
            }
            Self::NotProvisioned { .. } => ErrorKind::NotProvisioned,
            Self::InTransaction { error, .. } => {
                error.lock().map_or(ErrorKind::Other, LockError::kind)
            }
            Self::Lost { .. } => ErrorKind::Lost,
        }
    }

    /// What was in the way, where something was.
    pub(super) fn conflict(&self) -> Option<&LockConflict> {
        match self {
            Self::Timeout { conflict, .. }
            | Self::WouldBlock(conflict)
            | Self::Deadlock(conflict)
            | Self::OutOfOrder(conflict)
            | Self::DeadlockInTransaction(conflict) => Some(conflict),
            _ => None,
        }
    }
}

/// What was in the way of a request, as a [backend](crate::backend) tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// The node that is not free.
    pub blocked_on: Target,
    /// What was asked for.
    pub wanted: Vec<Target>,
    /// Who is in the way.
    pub blocker: Blocker,
}

impl LockConflict {
    /// What was wanted, unless that is what is in the way.
    fn wanted_by(&self) -> String {
        let is_the_same = self.wanted == [self.blocked_on.clone()];
        if is_the_same { String::new() } else { wanted_by(&self.wanted) }
    }
}

/// What a [backend](crate::backend) fails with.
impl Error {
    /// It is not free, and waiting was not asked for: [`is_would_block`](Self::is_would_block).
    pub fn would_block(conflict: LockConflict) -> Self {
        LockError::WouldBlock(conflict).into()
    }

    /// It did not become free in time: [`is_timeout`](Self::is_timeout).
    pub fn timeout(conflict: LockConflict, waited: Duration) -> Self {
        LockError::Timeout { conflict, waited }.into()
    }

    /// An extension waits for somebody who waits for it: [`is_deadlock`](Self::is_deadlock). The hold is as before.
    pub fn deadlock(conflict: LockConflict) -> Self {
        LockError::Deadlock(conflict).into()
    }

    /// An extension would have to wait where nobody could notice a deadlock: [`is_deadlock`](Self::is_deadlock). The
    /// hold keeps what it had.
    pub fn out_of_order(conflict: LockConflict) -> Self {
        LockError::OutOfOrder(conflict).into()
    }

    /// It was held, and is no more: [`is_lost`](Self::is_lost). `why` goes on after "the lock of … is lost:".
    pub fn lost(targets: impl IntoIterator<Item = Target>, why: impl Into<String>) -> Self {
        LockError::Lost { targets: targets.into_iter().collect(), why: why.into() }.into()
    }

    /// What the backend stands on failed; the failure is the source.
    pub fn backend(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error(Box::new(Repr::Backend(source.into())))
    }
}

/// What is in the way of a lock that was not taken; see [`Error::blocker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocker {
    /// Someone holds the node in a mode that conflicts.
    Holder,
    /// Nobody holds it so, but someone waits for it who came first.
    Waiter,
    /// One of these: the server does not tell which.
    HolderOrWaiter,
    /// Nobody, when it was looked at: it had just become free, or the server was slow to answer.
    Nobody,
}

impl Blocker {
    /// Behind "`u1` is".
    fn state(self) -> &'static str {
        match self {
            Blocker::Holder => "locked by someone else",
            Blocker::Waiter => "not free: someone else, who came first, is waiting for it",
            Blocker::HolderOrWaiter => {
                "locked by someone else, or someone who came first is waiting for it"
            }
            Blocker::Nobody => "free by now, but was not a moment ago",
        }
    }

    /// Behind "waiting for `u1`,".
    fn clause(self) -> &'static str {
        match self {
            Blocker::Holder => "which someone else has locked",
            Blocker::Waiter => "for which someone else, who came first, is waiting too",
            Blocker::HolderOrWaiter => {
                "which someone else has locked, or for which someone who came first is waiting too"
            }
            Blocker::Nobody => "which is free by now, or the server was slow to answer",
        }
    }
}

/// What has become of a caller's transaction when locks could not be taken in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionState {
    /// It can go on as if nothing had been asked.
    AsBefore,
    /// It can go on, but keeps the locks that it got before the failure until it ends (InnoDB gives back none alone).
    KeepsSome,
    /// The server has rolled it back, as the victim of a deadlock: begin it again.
    RolledBack,
    /// Its connection is of no more use.
    Gone,
}

impl fmt::Display for TransactionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransactionState::AsBefore => "is as it was before",
            TransactionState::KeepsSome => {
                "can go on, but keeps what it had already locked until it ends"
            }
            TransactionState::RolledBack => "was rolled back by the server; begin it again",
            TransactionState::Gone => "is gone with its connection",
        })
    }
}

fn wanted_by(wanted: &[Target]) -> String {
    if wanted.is_empty() { String::new() } else { format!(" (wanted: {})", paths(wanted)) }
}

fn after(waited: Option<Duration>) -> String {
    waited.map(|waited| format!(", also after {}", duration_text(waited))).unwrap_or_default()
}

/// Names up to three targets and counts the rest.
fn paths(targets: &[Target]) -> String {
    let named: Vec<_> = targets.iter().take(3).map(|target| format!("`{target}`")).collect();
    let more = targets.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

/// A duration as a person writes it.
pub(super) fn duration_text(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}
