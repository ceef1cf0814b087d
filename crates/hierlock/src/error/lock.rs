//! Errors of acquiring and holding locks. Mirrors `backend` and `guard`.

use super::{Error, ErrorKind, Repr};
use crate::plan::{Claim, targets_of};
use crate::target::Target;
use hierlock_engine::duration_text;
use std::fmt;
use std::time::Duration;

/// The number of sessions or targets that a message names.
const MAX_NAMED: usize = 3;

#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "only servers need it"))]
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "timed out after {} waiting for `{}`, {}{}{}",
        duration_text(*waited), conflict.blocked_on, conflict.blocker.clause(), conflict.blocked_by(),
        conflict.wanted_clause()
    )]
    Timeout { conflict: LockConflict, waited: Duration },
    #[error("`{}` is {}{}{}", .0.blocked_on, .0.blocker.state(), .0.blocked_by(), .0.wanted_clause())]
    WouldBlock(LockConflict),
    #[error("all connections of this client are in use{}{}; see the option `connections`", waited_clause(*waited), wanted_clause(wanted))]
    NoConnection { wanted: Vec<Target>, waited: Option<Duration> },
    #[error(
        "deadlock at `{}`{}: this guard and another wait for each other. The guard keeps \
         what it had; release it and ask for everything at once",
        .0.blocked_on, .0.wanted_clause()
    )]
    Deadlock(LockConflict),
    #[error(
        "waiting for `{}` could deadlock with another process{}: it comes before what the \
         guard holds, and such a deadlock is not detected. The guard keeps what it had; release it \
         and ask for everything at once",
        .0.blocked_on, .0.wanted_clause()
    )]
    OutOfOrder(LockConflict),
    #[error(
        "level {level}{} is not provisioned (needed for `{target}`); run `hierlock provision`",
        bucket.map(|bucket| format!(", bucket {bucket}")).unwrap_or_default()
    )]
    NotProvisioned { level: usize, bucket: Option<u64>, target: Target },
    #[error("{error}; the transaction {state}")]
    InTransaction { error: Error, state: TransactionState },
    #[error("deadlock at `{}`{}", .0.blocked_on, .0.wanted_clause())]
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

    /// Returns the conflict, if a blocker was the reason.
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

/// The blocker of a request, as reported by a [backend](crate::backend).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// The node that is not free.
    pub blocked_on: Target,
    /// The requested targets.
    pub wanted: Vec<Target>,
    /// Whether that node is held or only waited for.
    pub blocker: Blocker,
    /// The sessions that block the request, as far as they are known.
    pub sessions: Vec<BlockingSession>,
}

impl LockConflict {
    pub(crate) fn new(blocked_on: Target, claims: &[Claim], blocker: Blocker) -> Self {
        Self { blocked_on, wanted: targets_of(claims), blocker, sessions: Vec::new() }
    }

    /// Returns the text about the blocking sessions.
    fn blocked_by(&self) -> String {
        if self.sessions.is_empty() {
            return String::new();
        }
        let describe = |session: &&BlockingSession| session.describe(&self.blocked_on);
        let is_behind = |session: &&BlockingSession| {
            self.blocker == Blocker::Waiter && session.waiting_for.is_none()
        };
        let (holders, blockers): (Vec<_>, Vec<_>) = self.sessions.iter().partition(is_behind);
        let behind = if holders.is_empty() { "" } else { ", behind " };
        format!(": {}{behind}{}", list(&blockers, describe), list(&holders, describe))
    }

    /// Returns the text about the requested targets, unless the blocked node is the only one.
    fn wanted_clause(&self) -> String {
        let is_the_same = self.wanted == [self.blocked_on.clone()];
        if is_the_same { String::new() } else { wanted_clause(&self.wanted) }
    }
}

/// Errors for [backends](crate::backend).
impl Error {
    /// A node is not free, and the request does not wait: [`is_would_block`](Self::is_would_block).
    pub fn would_block(conflict: LockConflict) -> Self {
        LockError::WouldBlock(conflict).into()
    }

    /// A node did not become free in time: [`is_timeout`](Self::is_timeout).
    pub fn timeout(conflict: LockConflict, waited: Duration) -> Self {
        LockError::Timeout { conflict, waited }.into()
    }

    /// An extension waits for a holder that waits for it: [`is_deadlock`](Self::is_deadlock). The hold is as before.
    pub fn deadlock(conflict: LockConflict) -> Self {
        LockError::Deadlock(conflict).into()
    }

    /// An extension would have to wait where a deadlock cannot be detected: [`is_deadlock`](Self::is_deadlock). The hold
    /// is as before.
    pub fn out_of_order(conflict: LockConflict) -> Self {
        LockError::OutOfOrder(conflict).into()
    }

    /// The locks are not held any more: [`is_lost`](Self::is_lost). `why` continues the message "the lock of … is lost:".
    pub fn lost(targets: impl IntoIterator<Item = Target>, why: impl Into<String>) -> Self {
        LockError::Lost { targets: targets.into_iter().collect(), why: why.into() }.into()
    }

    /// The system under the backend failed; its error is the source.
    pub fn backend(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error(Box::new(Repr::Backend(source.into())))
    }
}

/// The kind of blocker of a lock that was not acquired; see [`Error::blocker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocker {
    /// Another owner holds the node in a conflicting mode.
    Holder,
    /// No holder conflicts, but another owner waits for the node and came first.
    Waiter,
    /// A holder or a waiter: the server does not report which.
    HolderOrWaiter,
    /// No blocker was found: the node had just become free, or the server was slow to answer.
    Nobody,
}

impl Blocker {
    /// The text after "`u1` is".
    fn state(self) -> &'static str {
        match self {
            Blocker::Holder => "locked by someone else",
            Blocker::Waiter => "not free: someone else is already waiting for it",
            Blocker::HolderOrWaiter => {
                "locked by someone else, or someone else is already waiting for it"
            }
            Blocker::Nobody => "free now, but was not a moment ago",
        }
    }

    /// The text after "waiting for `u1`,".
    fn clause(self) -> &'static str {
        match self {
            Blocker::Holder => "which someone else has locked",
            Blocker::Waiter => "for which someone else is already waiting",
            Blocker::HolderOrWaiter => {
                "which someone else has locked, or for which someone else is already waiting"
            }
            Blocker::Nobody => "which is free now, or the server was slow to answer",
        }
    }
}

/// A session of a server that blocks a lock; see [`Error::blocking_sessions`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingSession {
    /// The session's id on the server.
    pub pid: i64,
    /// The client's own name, such as `billing/rebuild-index@web-3:4711`. `None` if the session is not one of hierlock, or
    /// the account may not see the name.
    pub client: Option<String>,
    /// The account and the client's address: `app@10.0.0.7`.
    pub account: Option<String>,
    /// How long the transaction of the session has been open.
    pub age: Option<Duration>,
    /// How long the session has been waiting for a lock itself. `None` if it does not wait.
    pub waiting_for: Option<Duration>,
    /// The node that the session holds or waits for in the requested slot: the requested node, or another one with the same
    /// slot.
    pub target: Option<Target>,
}

impl BlockingSession {
    /// `cron@web-3:4711 (session 12, root@localhost, for 1.5 s)`; `waiting for 1.5 s` if it waits itself.
    fn describe(&self, wanted: &Target) -> String {
        let mut details = vec![format!("session {}", self.pid)];
        details.extend(self.account.clone());
        details.extend(match (self.waiting_for, self.age) {
            (Some(waiting), _) => Some(format!("waiting for {}", duration_text(waiting))),
            (None, age) => age.map(|age| format!("for {}", duration_text(age))),
        });
        let details = details.join(", ");
        let other = self.target.as_ref().filter(|target| *target != wanted);
        let other = other.map(|target| format!(" with `{target}`, which has the same slot"));
        let other = other.unwrap_or_default();
        match &self.client {
            Some(client) => format!("{client} ({details}){other}"),
            None => format!("{details}{other}"),
        }
    }
}

/// The state of a caller's transaction after locks could not be acquired in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionState {
    /// The transaction can continue, and holds no additional lock.
    AsBefore,
    /// The transaction can continue, but holds the locks that it got before the failure until it ends (InnoDB cannot
    /// release single locks).
    KeepsSome,
    /// The server has rolled back the transaction, as the victim of a deadlock: begin it again.
    RolledBack,
    /// The connection is lost, and the transaction with it.
    Gone,
}

impl fmt::Display for TransactionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransactionState::AsBefore => "is as it was before",
            TransactionState::KeepsSome => {
                "can continue, but keeps what it had already locked until it ends"
            }
            TransactionState::RolledBack => "was rolled back by the server; begin it again",
            TransactionState::Gone => "is gone with its connection",
        })
    }
}

fn wanted_clause(wanted: &[Target]) -> String {
    if wanted.is_empty() { String::new() } else { format!(" (wanted: {})", paths(wanted)) }
}

fn waited_clause(waited: Option<Duration>) -> String {
    waited.map(|waited| format!(", also after {}", duration_text(waited))).unwrap_or_default()
}

fn paths(targets: &[Target]) -> String {
    list(targets, |target| format!("`{target}`"))
}

/// Returns the texts of the first items, and the number of the others.
fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let named: Vec<_> = items.iter().take(MAX_NAMED).map(text).collect();
    let rest = items.len() - named.len();
    let suffix = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    named.join(", ") + &suffix
}
