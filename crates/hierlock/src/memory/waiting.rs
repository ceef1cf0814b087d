//! A wait under way, as its owner's future drives it.

use super::circles;
use super::manager::{Locked, Manager, MemoryHold, Obstacle, ShardSet, wake};
use super::moves::Moves;
use super::node::Owner;
use super::pending::Pending;
use super::table::Wakers;
use crate::sync::Ordering;
use std::future::poll_fn;
use std::sync::Arc;

/// Why someone waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Acquire,
    Extend,
}

/// A wait under way. Dropped before its end, it leaves the queue and gives back what it had taken of
/// its plan; what its owner held before, stays.
#[derive(Debug)]
#[must_use]
pub(crate) struct Waiting {
    manager: Arc<Manager>,
    owner: Owner,
    shards: ShardSet,
    pending: Arc<Pending>,
    over: bool,
}

impl Waiting {
    /// Waits for the first node of a plan that is not taken yet.
    pub(super) fn begin(
        manager: &Arc<Manager>,
        locked: Locked<'_>,
        owner: Owner,
        shards: ShardSet,
        moves: Moves,
        taken: usize,
        kind: Kind,
    ) -> Self {
        let pending = Arc::new(Pending::new(moves, taken, kind == Kind::Acquire));
        let waiting = Self { manager: manager.clone(), owner, shards, pending, over: false };
        waiting.enter_queue(locked, taken);
        waiting
    }

    fn enter_queue(&self, mut locked: Locked<'_>, taken: usize) {
        let pending = &self.pending;
        if !pending.ordered {
            // Before anyone can see us wait, so that whoever waits after us looks for circles.
            self.manager.unordered.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(hold) = locked.hold(self.owner) {
            hold.pending = Some(pending.clone());
        }
        let step = &pending.moves.list[taken];
        locked.table(step.shard()).enqueue(self.owner, step, pending.clone());
        drop(locked);
        circles::break_those_through(&self.manager, self.owner);
    }

    fn left_queue(&self) {
        if !self.pending.ordered {
            self.manager.unordered.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until all is taken, or until this was chosen to break a circle.
    ///
    /// # Cancel safety
    /// Can be called again, nothing is lost; dropping the `Waiting` itself gives up.
    pub(crate) async fn finish(&mut self) -> Result<(), Obstacle> {
        while !self.over {
            let pending = &self.pending;
            match poll_fn(|context| pending.poll(context)).await {
                Some(taken) => self.go_on(taken),
                None => return self.give_up().map_or(Ok(()), Err),
            }
        }
        Ok(())
    }

    /// So many are taken: takes the rest as far as it is free.
    fn go_on(&mut self, taken: usize) {
        let moves = &self.pending.moves;
        let mut locked = None;
        let taken = match taken == moves.list.len() {
            true => taken,
            false => locked.insert(self.manager.lock(self.shards)).advance(moves, taken),
        };
        self.left_queue();
        match locked {
            Some(locked) if taken < moves.list.len() => {
                self.pending.wait_again(taken);
                self.enter_queue(locked, taken);
            }
            Some(locked) => {
                self.pending.all_taken();
                drop(locked);
                self.over = true;
            }
            None => self.over = true,
        }
    }

    /// Leaves the queue and gives back; tells what was in the way, if the wait was not over.
    pub(crate) fn give_up(&mut self) -> Option<Obstacle> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let Self { manager, owner, shards, pending, .. } = &*self;
        let mut wakers = Wakers::new();
        let mut locked = manager.lock(*shards);
        // Granted to the last just now is still not noticed, so given up.
        let at = pending.taken().min(pending.moves.list.len() - 1);
        locked.abandon(*owner, pending, &mut wakers);
        if pending.ordered {
            locked.table(owner.home()).remove_hold(*owner);
        } else if let Some(hold) = locked.hold(*owner) {
            hold.pending = None;
        }
        drop(locked);
        self.left_queue();
        wake(wakers);
        Some(Obstacle::at(&pending.moves, at))
    }

    pub(super) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// What an acquire has in hand after [`finish`](Self::finish).
    pub(crate) fn into_hold(self) -> MemoryHold {
        debug_assert!(self.over && self.pending.ordered);
        let (manager, pending) = (self.manager.clone(), self.pending.clone());
        MemoryHold::waited(manager, self.owner, self.shards, pending)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}
