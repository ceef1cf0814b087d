//! Snapshots of a lock manager: its holders and its waits.

use crate::{SlotMode, Target};
use std::collections::BTreeMap;
use std::time::Duration;

/// One holder or waiter, as [`Hierlock::holders`](crate::Hierlock::holders) lists them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The same as [`Guard::id`](crate::Guard::id).
    pub id: u64,
    /// The name given with [`Request::named`](crate::Request::named).
    pub name: Option<String>,
    /// The time since the request.
    pub age: Duration,
    /// The nodes that are held now, also while others are waited for.
    pub holds: BTreeMap<Target, SlotMode>,
    /// The current wait, if there is one.
    pub waits: Option<Wait>,
}

impl Holder {
    /// Returns a holder that holds nothing and does not wait; for a [backend](crate::backend), which sets the other
    /// fields.
    pub fn new(id: u64) -> Self {
        Self { id, name: None, age: Duration::ZERO, holds: BTreeMap::new(), waits: None }
    }
}

impl Wait {
    /// Returns a wait that has just begun; for a [backend](crate::backend), which sets the other fields.
    pub fn new(target: Target, mode: SlotMode) -> Self {
        Self { target, mode, waited: Duration::ZERO, blocked_by: Vec::new() }
    }
}

/// How often an acquire started again before it had its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The number of times that the server chose the acquire as the victim of a deadlock.
    pub deadlocks: u32,
    /// The number of times that the server's own lock wait timeout ended a wait.
    pub timeouts: u32,
    /// The number of times that the acquire reconnected to its server.
    pub reconnects: u32,
}

/// A current wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wait {
    /// The node that is waited for.
    pub target: Target,
    /// The requested mode.
    pub mode: SlotMode,
    /// The duration of the wait so far.
    pub waited: Duration,
    /// The [`id`](Holder::id)s of the blockers: holders, and waiters ahead.
    pub blocked_by: Vec<u64>,
}
