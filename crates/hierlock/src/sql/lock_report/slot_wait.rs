//! The waits for slots, and whether the blocker has the same path. Pure code.

use super::{LockSlot, LockSnapshot, SessionLocks};
use crate::Target;
use std::time::Duration;

/// The wait of a session for a slot in one snapshot.
#[derive(Clone, Debug)]
pub(super) struct SlotWait {
    pub(super) pid: i64,
    pub(super) slot: LockSlot,
    pub(super) waiting_for: Option<Duration>,
    pub(super) wanted: Vec<Target>,
    pub(super) held: Vec<Target>,
    pub(super) contention: FalseContention,
}

/// Whether sessions wait for a slot because of another path in the same bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FalseContention {
    /// A session waited for a holder of another path. With more buckets it would not have waited.
    Yes,
    /// All sessions with known paths waited for a holder of the same path.
    No,
    /// The paths are unknown.
    Unknown,
}

impl FalseContention {
    /// Returns `yes`, `no` or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            FalseContention::Yes => "yes",
            FalseContention::No => "no",
            FalseContention::Unknown => "unknown",
        }
    }
}

impl LockSnapshot {
    /// Returns whether a session waits for the holder of another path in the same bucket. Unknown if it waits for no slot.
    pub fn false_contention(&self, pid: i64) -> FalseContention {
        let wait = self.session(pid).and_then(|session| slot_wait(session, self));
        wait.map_or(FalseContention::Unknown, |wait| wait.contention)
    }
}

/// Returns the wait of a session, if it waits for a slot.
pub(super) fn slot_wait(session: &SessionLocks, snapshot: &LockSnapshot) -> Option<SlotWait> {
    let wait = session.wait.as_ref()?;
    let wanted = wait.wanted.as_ref()?;
    let slot = wanted.slot.clone()?;
    let mut held = Vec::new();
    let mut is_known = !wanted.nodes.is_empty() && !wait.blockers.is_empty();
    for blocker in &wait.blockers {
        let locks = snapshot.session(*blocker).into_iter().flat_map(SessionLocks::locks);
        let locks = locks.filter(|lock| lock.slot.as_ref() == Some(&slot));
        let known_before = held.len();
        held.extend(locks.flat_map(|lock| &lock.nodes).cloned());
        is_known &= held.len() > known_before;
    }
    let contention = if wanted.nodes.iter().any(|node| held.contains(node)) {
        FalseContention::No
    } else if is_known {
        FalseContention::Yes
    } else {
        FalseContention::Unknown
    };
    let waiting_for = session.info.waiting_for;
    let (pid, wanted) = (session.info.pid, wanted.nodes.clone());
    Some(SlotWait { pid, slot, waiting_for, wanted, held, contention })
}
