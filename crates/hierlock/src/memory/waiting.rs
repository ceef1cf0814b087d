//! A wait under way, as its owner's future drives it.

use super::circles;
use super::manager::{Locked, Manager, MemoryHold, Obstacle, ShardSet, wake};
use super::table::Wakers;
use super::ticket::{Kind, State, Ticket};
use crate::sync::Ordering;
use std::future::poll_fn;
use std::sync::Arc;

/// A wait under way. Dropped before its end, it leaves the queue and gives back what it had taken of
/// its plan; what its owner held before, stays.
#[derive(Debug)]
#[must_use]
pub(crate) struct Waiting {
    manager: Arc<Manager>,
    ticket: Arc<Ticket>,
    shards: ShardSet,
    over: bool,
}

impl Waiting {
    /// Waits for the first node of a ticket that is not taken yet.
    pub(super) fn begin(
        manager: Arc<Manager>,
        locked: Locked<'_>,
        ticket: Arc<Ticket>,
        shards: ShardSet,
    ) -> Self {
        enter_queue(&manager, locked, &ticket);
        Self { manager, ticket, shards, over: false }
    }

    /// Waits until all is taken, or until this was chosen to break a circle.
    ///
    /// # Cancel safety
    /// Can be called again, nothing is lost; dropping the `Waiting` itself gives up.
    pub(crate) async fn finish(&mut self) -> Result<(), Obstacle> {
        while !self.over {
            let ticket = &self.ticket;
            match poll_fn(|context| ticket.poll(context)).await {
                State::Victim => return self.give_up().map_or(Ok(()), Err),
                _ => self.go_on(),
            }
        }
        Ok(())
    }

    /// One more node was granted: takes the rest as far as it is free.
    fn go_on(&mut self) {
        let Self { manager, ticket, shards, .. } = &*self;
        left_queue(manager, ticket);
        if !ticket.is_complete() {
            let mut locked = manager.lock(*shards);
            if !locked.advance(ticket) {
                return enter_queue(manager, locked, ticket);
            }
        }
        self.over = true;
    }

    /// Leaves the queue and gives back; tells what was in the way, if the wait was not over.
    pub(crate) fn give_up(&mut self) -> Option<Obstacle> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let Self { manager, ticket, shards, .. } = &*self;
        let mut wakers = Wakers::new();
        let mut locked = manager.lock(*shards);
        let obstacle = Obstacle::of(ticket);
        locked.abandon(ticket, &mut wakers);
        match ticket.kind {
            Kind::Acquire => drop(locked.table(ticket.owner.home()).remove_hold(ticket.owner)),
            Kind::Extend => {
                if let Some(hold) = locked.hold(ticket.owner) {
                    hold.extension = None;
                }
            }
        }
        drop(locked);
        left_queue(manager, ticket);
        wake(wakers);
        Some(obstacle)
    }

    pub(super) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// What an acquire has in hand after [`finish`](Self::finish).
    pub(crate) fn into_hold(self) -> MemoryHold {
        debug_assert!(self.over && self.ticket.kind == Kind::Acquire);
        MemoryHold::new(self.manager.clone(), self.ticket.clone(), self.shards)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}

fn enter_queue(manager: &Manager, mut locked: Locked<'_>, ticket: &Arc<Ticket>) {
    if ticket.kind == Kind::Extend {
        // Before anyone can see us wait, so that whoever waits after us looks for circles.
        manager.unordered.fetch_add(1, Ordering::SeqCst);
    }
    if let Some(step) = ticket.next() {
        locked.table(step.shard()).enqueue(step, ticket.clone());
    }
    drop(locked);
    circles::break_those_through(manager, ticket.owner);
}

fn left_queue(manager: &Manager, ticket: &Ticket) {
    if ticket.kind == Kind::Extend {
        manager.unordered.fetch_sub(1, Ordering::SeqCst);
    }
}
