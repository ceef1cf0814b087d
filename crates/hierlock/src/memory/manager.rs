//! The concurrent shell around the tables: locks shards, takes and gives back.
//!
//! **Lock order**: shards ascending by number, then the waker of a [`Ticket`]. Nothing is woken
//! and nothing awaited while a shard is locked.

use super::circles;
use super::hold::{MemoryHold, Stake};
use super::moves::Moves;
use super::node::Owner;
use super::table::{Hold, SHARDS, Table, Wakers};
use super::ticket::{Kind, State, Ticket};
use super::waiting::Waiting;
use crate::error::{Blocker, LockConflict, Result};
use crate::hierarchy::Hierarchy;
use crate::mode::{ModeSet, SlotMode};
use crate::plan::{Claims, Plan, Slots};
use crate::snapshot::Holder;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, lock};
use crate::target::Target;
use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The modes of `memory:`: all of them.
pub(super) const MODES: ModeSet = ModeSet::Intentions;

/// A set of shards, one bit each.
pub(super) type ShardSet = u64;
pub(super) const ALL_SHARDS: ShardSet = ShardSet::MAX;

/// A lock manager: every node of a tree, in one process.
#[derive(Debug)]
pub(crate) struct Manager {
    hierarchy: Hierarchy,
    hasher: DefaultHashBuilder,
    shards: Box<[Shard]>,
    /// How many extensions wait. Circles need at least one, so while there is none nobody looks.
    pub(super) unordered: AtomicUsize,
}

/// Two shards never share a cache line (or the pair of lines that is fetched together).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    table: Mutex<Table>,
    /// How many owners were at home here.
    owners: AtomicU64,
}

/// The shards of a set, locked.
pub(super) struct Locked<'a> {
    set: ShardSet,
    pub(super) tables: SmallVec<[MutexGuard<'a, Table>; 1]>,
}

impl Locked<'_> {
    pub(super) fn table(&mut self, shard: usize) -> &mut Table {
        debug_assert!(self.set & 1 << shard != 0, "shard {shard} is not locked");
        &mut self.tables[(self.set & ((1 << shard) - 1)).count_ones() as usize]
    }

    pub(super) fn hold(&mut self, owner: Owner) -> Option<&mut Hold> {
        self.table(owner.home()).hold_mut(owner)
    }

    /// Takes nodes in order until one is not free; `true` when all are taken.
    pub(super) fn advance(&mut self, ticket: &Ticket) -> bool {
        let moves = &ticket.moves;
        let mut taken = ticket.taken();
        while let Some(step) = moves.list.get(taken)
            && self.table(step.shard()).try_take(step, moves)
        {
            taken += 1;
        }
        ticket.set(taken, State::Going);
        taken == moves.list.len()
    }

    /// Gives back what a ticket has taken.
    pub(super) fn give_back(&mut self, ticket: &Ticket, wakers: &mut Wakers) {
        for step in ticket.moves.list[..ticket.taken()].iter().rev() {
            self.table(step.shard()).give_back(step, &ticket.moves, wakers);
        }
    }

    /// Ends a ticket: it leaves the queue it stands in, and gives back what it had taken.
    pub(super) fn abandon(&mut self, ticket: &Ticket, wakers: &mut Wakers) {
        if let Some(step) = ticket.waits_at() {
            self.table(step.shard()).leave_queue(step, ticket, wakers);
        }
        self.give_back(ticket, wakers);
    }
}

impl Manager {
    pub(crate) fn new(hierarchy: Hierarchy) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let hasher = DefaultHashBuilder::default();
        Self { hierarchy, hasher, shards, unordered: AtomicUsize::new(0) }
    }

    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    pub(crate) fn plan(&self, claims: Claims) -> Result<Plan> {
        Plan::new(&self.hierarchy, claims, Slots::Paths, MODES)
    }

    /// The nodes of a plan. That of a single claim, which is nearly every one, needs no planning.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn moves(&self, claims: Claims) -> Result<Moves> {
        if claims.len() != 1 {
            return Ok(Moves::new(self.plan(claims)?, &self.hasher));
        }
        self.hierarchy.check(&claims[0].target)?;
        Ok(Moves::of_one(claims, &self.hierarchy, &self.hasher))
    }

    pub(super) fn lock(&self, set: ShardSet) -> Locked<'_> {
        let mut tables = SmallVec::new();
        let mut left = set;
        while left != 0 {
            tables.push(lock(&self.shards[left.trailing_zeros() as usize].table));
            left &= left - 1;
        }
        Locked { set, tables }
    }

    /// Takes all nodes for a new owner.
    pub(crate) fn take(
        self: &Arc<Self>,
        moves: Moves,
        name: Option<Arc<String>>,
        if_not_free: IfNotFree,
    ) -> Result<MemoryHold, Blocked> {
        let shards = moves.shards();
        let home = shards.trailing_zeros() as usize;
        let ticket = Arc::new(Ticket::new(self.new_owner(home), Kind::Acquire, name, moves));
        let mut locked = self.lock(shards);
        let free = locked.advance(&ticket);
        if !free && if_not_free == IfNotFree::BackOut {
            return Err(Blocked::On(back_out(locked, &ticket)));
        }
        locked.table(home).add_hold(ticket.clone());
        let stake = Stake { manager: self.clone(), ticket };
        if !free {
            return Err(Blocked::Waits(Waiting::begin(stake, locked)));
        }
        drop(locked);
        Ok(MemoryHold { stake })
    }

    /// A number that no other owner ever has.
    fn new_owner(&self, home: usize) -> Owner {
        Owner::new(self.shards[home].owners.fetch_add(1, Relaxed), home)
    }

    /// Who holds what, and who waits for whom; by age.
    pub(crate) fn snapshot(&self) -> Vec<Holder> {
        let now = Instant::now();
        let locked = self.lock(ALL_SHARDS);
        let mut waits = circles::waits(&locked, now);
        let holds = locked.tables.iter().flat_map(|table| table.holds());
        let mut holders: Vec<Holder> = holds
            .map(|hold| Holder {
                id: hold.ticket.owner.0,
                name: hold.ticket.name.as_deref().cloned(),
                age: now.saturating_duration_since(hold.ticket.since),
                holds: modes_of(hold),
                waits: waits.remove(&hold.ticket.owner),
            })
            .collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.age), holder.id));
        holders
    }

    /// No node, hold or waiter is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock(ALL_SHARDS).tables.iter().all(|table| table.sizes() == [0; 3])
    }

    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn capacity(&self) -> usize {
        self.lock(ALL_SHARDS).tables.iter().map(|table| table.capacity()).sum()
    }
}

/// Every node that a hold has by now.
pub(super) fn modes_of(hold: &Hold) -> BTreeMap<Target, SlotMode> {
    let mut modes = BTreeMap::new();
    for ticket in hold.tickets() {
        // The extension comes second: where it converts, it is stronger.
        let taken = ticket.moves.list[..ticket.taken()].iter();
        modes.extend(taken.map(|step| (ticket.moves.node(step), step.mode)));
    }
    modes
}

/// What to do about a node that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfNotFree {
    Wait,
    BackOut,
}

/// A plan could not be taken at once.
pub(crate) enum Blocked {
    /// Waiting was asked for.
    Waits(Waiting),
    /// It was not; nothing has changed.
    On(LockConflict),
}

/// What is in the way of a ticket, at the first node that it has not taken; if it has all and did not notice, at the last.
pub(super) fn conflict_of(ticket: &Ticket, locked: &mut Locked<'_>) -> LockConflict {
    let moves = &ticket.moves;
    let step = &moves.list[ticket.taken().min(moves.list.len() - 1)];
    let wanted = moves.claims.iter().map(|claim| claim.target.clone()).collect();
    let is_held = locked.table(step.shard()).is_held_against(step, moves);
    let blocker = if is_held { Blocker::Holder } else { Blocker::Waiter };
    LockConflict { blocked_on: moves.node(step), wanted, blocker }
}

/// Gives back what was taken; tells what was in the way.
pub(super) fn back_out(mut locked: Locked<'_>, ticket: &Ticket) -> LockConflict {
    let mut wakers = Wakers::new();
    let conflict = conflict_of(ticket, &mut locked);
    locked.give_back(ticket, &mut wakers);
    drop(locked);
    wake(wakers);
    conflict
}

pub(super) fn wake(wakers: Wakers) {
    for waker in wakers {
        waker.wake();
    }
}
