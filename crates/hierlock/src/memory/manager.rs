//! The lock manager around the tables: locks shards, takes nodes and releases them.
//!
//! **Lock order**: shards ascending by number, then the waker of a [`Ticket`]. No task is woken and nothing is awaited
//! while a shard is locked.

use super::node::Owner;
use super::table::{OwnerEntry, SHARDS, Table, Wakers};
use super::ticket::{Ticket, TicketState};
use crate::error::LockConflict;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, lock};
use crate::{Blocker, Hierarchy, Holder};
use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Instant;

/// A set of shards, one bit each.
pub(super) type ShardSet = u64;
pub(super) const ALL_SHARDS: ShardSet = ShardSet::MAX;

/// The lock manager of all nodes of a tree, in one process.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) hierarchy: Hierarchy,
    pub(super) hasher: DefaultHashBuilder,
    shards: Box<[Shard]>,
    /// The number of waiting extensions. A deadlock needs at least one, so deadlocks are not searched while it is zero.
    pub(super) waiting_extensions: AtomicUsize,
}

/// Aligned so that two shards never share a cache line, or a pair of lines that is prefetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    table: Mutex<Table>,
    /// The number of owners that were ever created in this shard.
    owners: AtomicU64,
}

impl Manager {
    pub(super) fn new(hierarchy: Hierarchy) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let hasher = DefaultHashBuilder::default();
        Self { hierarchy, hasher, shards, waiting_extensions: AtomicUsize::new(0) }
    }

    pub(super) fn lock(&self, set: ShardSet) -> LockedShards<'_> {
        let mut tables = SmallVec::new();
        let mut remaining = set;
        while remaining != 0 {
            tables.push(lock(&self.shards[remaining.trailing_zeros() as usize].table));
            remaining &= remaining - 1;
        }
        LockedShards { set, tables }
    }

    /// Returns an owner with a number that is never reused.
    pub(super) fn new_owner(&self, shard: usize) -> Owner {
        Owner::new(self.shards[shard].owners.fetch_add(1, Relaxed), shard)
    }

    /// Returns all holders and waiters, oldest first.
    pub(super) fn snapshot(&self) -> Vec<Holder> {
        let now = Instant::now();
        let locked = self.lock(ALL_SHARDS);
        let mut waits = locked.waits(now);
        let holder = |entry: &OwnerEntry| Holder {
            id: entry.ticket.owner.0,
            name: entry.ticket.name.as_deref().cloned(),
            age: now.saturating_duration_since(entry.ticket.since),
            holds: entry.modes(),
            waits: waits.remove(&entry.ticket.owner),
        };
        let mut holders: Vec<Holder> = locked.owners().map(holder).collect();
        holders.sort_by_key(|holder| (Reverse(holder.age), holder.id));
        holders
    }
}

pub(super) struct LockedShards<'a> {
    set: ShardSet,
    pub(super) tables: SmallVec<[MutexGuard<'a, Table>; 1]>,
}

impl LockedShards<'_> {
    pub(super) fn table(&mut self, shard: usize) -> &mut Table {
        debug_assert!(self.set & 1 << shard != 0, "shard {shard} is not locked");
        &mut self.tables[(self.set & ((1 << shard) - 1)).count_ones() as usize]
    }

    pub(super) fn owner(&mut self, owner: Owner) -> Option<&mut OwnerEntry> {
        self.table(owner.shard()).owner_mut(owner)
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = &OwnerEntry> {
        self.tables.iter().flat_map(|table| table.owners.iter())
    }

    /// Takes nodes in order until one is not free. Returns whether all are taken.
    pub(super) fn advance(&mut self, ticket: &Ticket) -> bool {
        let steps = &ticket.steps;
        let mut taken = ticket.taken();
        while let Some(step) = steps.list.get(taken)
            && self.table(step.shard()).try_take(step, steps)
        {
            taken += 1;
        }
        ticket.set(taken, TicketState::Active);
        taken == steps.list.len()
    }

    /// Ends a ticket: leaves its queue, and releases the nodes that it has taken. Then unlocks the shards, and wakes the
    /// owners that these nodes were granted to.
    pub(super) fn abandon(mut self, ticket: &Ticket) {
        let mut wakers = Wakers::new();
        if let Some(step) = ticket.waits_at() {
            self.table(step.shard()).leave_queue(step, ticket, &mut wakers);
        }
        for step in ticket.steps.list[..ticket.taken()].iter().rev() {
            self.table(step.shard()).give_back(step, &ticket.steps, &mut wakers);
        }
        drop(self);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns what blocks a ticket at the first node that it has not taken. If all were granted meanwhile, at the last node.
    pub(super) fn conflict_of(&mut self, ticket: &Ticket) -> LockConflict {
        let steps = &ticket.steps;
        let step = &steps.list[ticket.taken().min(steps.list.len() - 1)];
        let node = self.table(step.shard()).node(step, steps);
        let is_held = node.is_some_and(|node| !node.allows(step.mode, step.held));
        let blocker = if is_held { Blocker::Holder } else { Blocker::Waiter };
        LockConflict::new(steps.node(step), &steps.claims, blocker)
    }
}
