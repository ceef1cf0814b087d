//! A wait under way, as its owner's future drives it.

use super::circles;
use super::hold::{MemoryHold, Stake};
use super::manager::{Locked, conflict_of};
use super::ticket::{Kind, State};
use crate::error::LockConflict;
use crate::sync::Ordering;
use std::future::poll_fn;
use std::sync::Arc;

/// A wait under way. Dropped before its end, it leaves the queue and gives back what it had taken of
/// its plan; what its owner held before, stays.
#[derive(Debug)]
#[must_use]
pub(crate) struct Waiting {
    stake: Stake,
    /// An extension on its way: whoever waits meanwhile looks for circles.
    _counted: Option<Counted>,
}

impl Waiting {
    /// Waits for the first node of a ticket that is not taken yet.
    pub(super) fn begin(stake: Stake, locked: Locked<'_>) -> Self {
        // Before anyone can see us wait, so that whoever waits after us looks for circles.
        let _counted = (stake.ticket.kind == Kind::Extend).then(|| Counted::new(&stake));
        enter_queue(&stake, locked);
        Self { stake, _counted }
    }

    /// Waits until all is taken, or until this was chosen to break a circle.
    ///
    /// # Cancel safety
    /// Can be called again, nothing is lost; dropping the `Waiting` itself gives up.
    pub(crate) async fn finish(&mut self) -> Result<(), LockConflict> {
        let Stake { manager, ticket } = &self.stake;
        loop {
            if poll_fn(|context| ticket.poll(context)).await == State::Victim {
                return Err(self.conflict());
            }
            // One more node was granted: takes the rest as far as it is free.
            if ticket.is_complete() {
                return Ok(());
            }
            let mut locked = manager.lock(ticket.shards());
            if locked.advance(ticket) {
                return Ok(());
            }
            enter_queue(&self.stake, locked);
        }
    }

    /// What it waits for now.
    pub(crate) fn conflict(&self) -> LockConflict {
        let Stake { manager, ticket } = &self.stake;
        conflict_of(ticket, &mut manager.lock(ticket.shards()))
    }

    /// What an acquire has in hand after [`finish`](Self::finish).
    pub(crate) fn into_hold(self) -> MemoryHold {
        debug_assert!(self.stake.ticket.is_complete() && self.stake.ticket.kind == Kind::Acquire);
        MemoryHold { stake: self.stake }
    }

    /// What an extension has taken after [`finish`](Self::finish).
    pub(super) fn into_stake(self) -> Stake {
        debug_assert!(self.stake.ticket.is_complete() && self.stake.ticket.kind == Kind::Extend);
        self.stake
    }
}

fn enter_queue(stake: &Stake, mut locked: Locked<'_>) {
    let Stake { manager, ticket, .. } = stake;
    if let Some(step) = ticket.next() {
        locked.table(step.shard()).enqueue(step, ticket.clone());
    }
    drop(locked);
    circles::break_those_through(manager, ticket.owner);
}

/// Counts an extension from before it waits until it is over.
#[derive(Debug)]
struct Counted(Arc<super::Manager>);

impl Counted {
    fn new(stake: &Stake) -> Self {
        stake.manager.unordered.fetch_add(1, Ordering::SeqCst);
        Self(stake.manager.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.unordered.fetch_sub(1, Ordering::SeqCst);
    }
}
