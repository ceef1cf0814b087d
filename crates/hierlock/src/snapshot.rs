//! What a lock manager shows of itself: who holds what, and who waits for whom.

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
    /// How long ago it was asked for.
    pub age: Duration,
    /// What it holds now; while it waits, what it has so far.
    pub holds: BTreeMap<Target, SlotMode>,
    /// What it waits for, if it does.
    pub waits: Option<Wait>,
}

impl Holder {
    /// One that holds nothing yet and does not wait; for a [backend](crate::backend), which fills in the rest.
    pub fn new(id: u64) -> Self {
        Self { id, name: None, age: Duration::ZERO, holds: BTreeMap::new(), waits: None }
    }
}

impl Wait {
    /// One that has just begun; for a [backend](crate::backend), which fills in the rest.
    pub fn new(target: Target, mode: SlotMode) -> Self {
        Self { target, mode, waited: Duration::ZERO, blocked_by: Vec::new() }
    }
}

/// What an acquire went through before it had its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// How often the server chose it to end a deadlock, and it began again.
    pub deadlocks: u32,
    /// How often the server's own limit ended a wait, and it began again.
    pub timeouts: u32,
    /// How often it found its server gone, and tried again.
    pub reconnects: u32,
}

/// A wait under way.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wait {
    /// The node.
    pub target: Target,
    /// The mode wanted there.
    pub mode: SlotMode,
    /// For how long already.
    pub waited: Duration,
    /// The [`id`](Holder::id)s of those in the way: holders, and waiters ahead.
    pub blocked_by: Vec<u64>,
}
