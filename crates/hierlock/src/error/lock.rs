//! Why a lock was not taken, or no longer is. Mirrors `backend` and `guard`.

use super::Error;
use crate::target::Target;
use std::fmt;
use std::time::Duration;

/// Mirrors `backend` and `guard`: a lock was not taken, or no longer is.
#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "only servers need it"))]
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "timed out after {} waiting for `{blocked_on}`, {}{}",
        Span(*waited), blocker.clause(), wanted_by(blocked_on, wanted)
    )]
    Timeout { blocked_on: Target, wanted: Vec<Target>, blocker: Blocker, waited: Duration },
    #[error("`{blocked_on}` is {}{}", blocker.state(), wanted_by(blocked_on, wanted))]
    WouldBlock { blocked_on: Target, wanted: Vec<Target>, blocker: Blocker },
    #[error("all connections of this client are in use{}{}; see the option `connections`", after(*waited), wanted_by_all(wanted))]
    NoConnection { wanted: Vec<Target>, waited: Option<Duration> },
    #[error(
        "deadlock at `{blocked_on}`{}: this guard and another wait for each other. The guard keeps \
         what it had; release it and ask for everything at once",
        wanted_by(blocked_on, wanted)
    )]
    Deadlock { blocked_on: Target, wanted: Vec<Target> },
    #[error(
        "waiting for `{blocked_on}` could deadlock with another process{}: it comes before what the \
         guard holds, and nobody could notice. The guard keeps what it had; release it and ask for \
         everything at once",
        wanted_by(blocked_on, wanted)
    )]
    OutOfOrder { blocked_on: Target, wanted: Vec<Target> },
    #[error(
        "level {level}{} is not provisioned (needed for `{target}`); run `hierlock provision`",
        bucket.map(|bucket| format!(", bucket {bucket}")).unwrap_or_default()
    )]
    NotProvisioned { level: usize, bucket: Option<u64>, target: Target },
    #[error("{error}; the transaction {state}")]
    InTransaction { error: Error, state: TransactionState },
    #[error("deadlock at `{blocked_on}`{}", wanted_by(blocked_on, wanted))]
    DeadlockInTransaction { blocked_on: Target, wanted: Vec<Target> },
    #[error("the lock of {} is lost: {why}", paths(targets))]
    Lost { targets: Vec<Target>, why: String },
}

/// A backend of somebody else's failed.
#[derive(Debug, thiserror::Error)]
#[error("the lock backend failed: {source}")]
pub(crate) struct BackendError {
    source: Box<dyn std::error::Error + Send + Sync>,
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

/// What a [backend](crate::backend) fails with.
impl Error {
    /// It is not free, and waiting was not asked for: [`is_would_block`](Self::is_would_block).
    pub fn would_block(conflict: LockConflict) -> Self {
        let LockConflict { blocked_on, wanted, blocker } = conflict;
        LockError::WouldBlock { blocked_on, wanted, blocker }.into()
    }

    /// It did not become free in time: [`is_timeout`](Self::is_timeout).
    pub fn timeout(conflict: LockConflict, waited: Duration) -> Self {
        let LockConflict { blocked_on, wanted, blocker } = conflict;
        LockError::Timeout { blocked_on, wanted, blocker, waited }.into()
    }

    /// An extension waits for somebody who waits for it: [`is_deadlock`](Self::is_deadlock). The hold keeps what it had.
    pub fn deadlock(conflict: LockConflict) -> Self {
        let LockConflict { blocked_on, wanted, .. } = conflict;
        LockError::Deadlock { blocked_on, wanted }.into()
    }

    /// An extension would have to wait where nobody could notice a deadlock: [`is_deadlock`](Self::is_deadlock). The hold
    /// keeps what it had.
    pub fn out_of_order(conflict: LockConflict) -> Self {
        let LockConflict { blocked_on, wanted, .. } = conflict;
        LockError::OutOfOrder { blocked_on, wanted }.into()
    }

    /// It was held, and is no more: [`is_lost`](Self::is_lost). `why` goes on after "the lock of … is lost:".
    pub fn lost(targets: impl IntoIterator<Item = Target>, why: impl Into<String>) -> Self {
        LockError::Lost { targets: targets.into_iter().collect(), why: why.into() }.into()
    }

    /// What the backend stands on failed; the failure is the source.
    pub fn backend(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        BackendError { source: source.into() }.into()
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
    /// It can go on, but keeps the locks that it got before the failure until it ends (InnoDB gives
    /// back none alone).
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

/// `, for `u1/a1/r1`, …`, unless that is what was just named.
fn wanted_by(blocked_on: &Target, wanted: &[Target]) -> String {
    if wanted == [blocked_on.clone()] || wanted.is_empty() {
        return String::new();
    }
    format!(" (wanted: {})", paths(wanted))
}

fn wanted_by_all(wanted: &[Target]) -> String {
    if wanted.is_empty() { String::new() } else { format!(" (wanted: {})", paths(wanted)) }
}

fn after(waited: Option<Duration>) -> String {
    waited.map(|waited| format!(", also after {}", Span(waited))).unwrap_or_default()
}

/// Names up to three targets and counts the rest.
fn paths(targets: &[Target]) -> String {
    let named: Vec<_> = targets.iter().take(3).map(|target| format!("`{target}`")).collect();
    let more = match targets.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &more
}

/// A duration as a person writes it.
pub(super) struct Span(pub(super) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            span if span < Duration::from_secs(1) => write!(f, "{} ms", span.as_millis()),
            span => write!(f, "{:.1} s", span.as_secs_f64()),
        }
    }
}
