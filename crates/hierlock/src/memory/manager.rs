//! The concurrent shell around the tables: locks shards, takes and gives back.
//!
//! **Lock order**: shards ascending by number, then the waker of a [`Ticket`]. Nothing is woken
//! and nothing awaited while a shard is locked.

use super::circles;
use super::moves::Moves;
use super::node::Owner;
use super::table::{Hold, SHARDS, Table, Wakers};
use super::ticket::{Kind, Ticket};
use super::waiting::Waiting;
use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, ModeSet, SlotMode};
use crate::plan::{Claim, Plan, Slots};
use crate::snapshot::Holder;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, lock};
use crate::target::Target;
use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

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
        ticket.set_taken(taken);
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

    pub(crate) fn plan(&self, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
        Plan::new(&self.hierarchy, claims, Slots::Paths, ModeSet::Intentions)
    }

    fn moves(&self, plan: Plan) -> Moves {
        Moves::new(plan, &self.hasher)
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

    /// Takes a plan. `wait`: if it is not free, go on waiting for it.
    pub(crate) fn take(
        self: &Arc<Self>,
        plan: Plan,
        name: Option<Arc<str>>,
        wait: bool,
    ) -> Result<MemoryHold, Blocked> {
        let moves = self.moves(plan);
        let shards = moves.shards();
        let home = shards.trailing_zeros() as usize;
        let owner = self.new_owner(home);
        let ticket = Arc::new(Ticket::new(owner, Kind::Acquire, name, moves));
        let mut locked = self.lock(shards);
        let free = locked.advance(&ticket);
        if !free && !wait {
            return Err(Blocked::On(back_out(locked, &ticket)));
        }
        locked.table(home).add_hold(ticket.clone());
        if free {
            drop(locked);
            return Ok(MemoryHold::new(self.clone(), ticket, shards));
        }
        Err(Blocked::Waits(Waiting::begin(self.clone(), locked, ticket, shards)))
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
                name: hold.ticket.name.as_deref().map(str::to_owned),
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

/// A plan could not be taken at once.
pub(crate) enum Blocked {
    /// Waiting was asked for.
    Waits(Waiting),
    /// It was not; nothing has changed.
    On(Obstacle),
}

/// What was in the way of a plan, and what the plan was for.
#[derive(Debug)]
pub(crate) struct Obstacle {
    pub(crate) node: Target,
    pub(crate) wanted: Vec<Target>,
}

impl Obstacle {
    /// The first node that a ticket has not taken; if it has all and did not notice, the last.
    pub(super) fn of(ticket: &Ticket) -> Self {
        let moves = &ticket.moves;
        let step = &moves.list[ticket.taken().min(moves.list.len() - 1)];
        let wanted = moves.claims.iter().map(|claim| claim.target.clone()).collect();
        Self { node: moves.node(step), wanted }
    }
}

/// Gives back what was taken; tells what was in the way.
fn back_out(mut locked: Locked<'_>, ticket: &Ticket) -> Obstacle {
    let mut wakers = Wakers::new();
    locked.give_back(ticket, &mut wakers);
    drop(locked);
    wake(wakers);
    Obstacle::of(ticket)
}

pub(super) fn wake(wakers: Wakers) {
    for waker in wakers {
        waker.wake();
    }
}

/// What an owner has in hand: its nodes are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryHold {
    manager: Arc<Manager>,
    /// Complete.
    ticket: Arc<Ticket>,
    /// The shards of its nodes, its home among them.
    shards: ShardSet,
}

impl MemoryHold {
    pub(super) fn new(manager: Arc<Manager>, ticket: Arc<Ticket>, shards: ShardSet) -> Self {
        debug_assert!(ticket.is_complete());
        Self { manager, ticket, shards }
    }

    /// Takes more, or the same more strongly. If it is not free and `wait` is asked for, the way to
    /// wait comes back, to be handed to [`absorb`](Self::absorb) when it is over; otherwise nothing
    /// has changed.
    pub(crate) fn extend(&mut self, plan: Plan, wait: bool) -> Result<(), Blocked> {
        let manager = self.manager.clone();
        let more = manager.moves(plan).beyond(&self.ticket.moves);
        let shards = self.shards | more.shards();
        let more = Arc::new(Ticket::new(self.ticket.owner, Kind::Extend, None, more));
        let mut locked = manager.lock(shards);
        let free = locked.advance(&more);
        if !free && !wait {
            return Err(Blocked::On(back_out(locked, &more)));
        }
        // Wider than what is held if the extension fails; that does no harm.
        self.shards = shards;
        if free {
            self.keep(&mut locked, &more);
            return Ok(());
        }
        if let Some(hold) = locked.hold(more.owner) {
            hold.extension = Some(more.clone());
        }
        Err(Blocked::Waits(Waiting::begin(self.manager.clone(), locked, more, shards)))
    }

    /// The extension was waited for to its end.
    pub(crate) fn absorb(&mut self, waited: Waiting) {
        let manager = self.manager.clone();
        self.keep(&mut manager.lock(self.shards), waited.ticket());
    }

    /// Adds what an extension has taken to what is held.
    fn keep(&mut self, locked: &mut Locked<'_>, more: &Ticket) {
        self.ticket = Arc::new(self.ticket.merged(more));
        if let Some(hold) = locked.hold(more.owner) {
            *hold = Hold { ticket: self.ticket.clone(), extension: None };
        }
    }

    /// What was asked for, each target once, in the strongest mode.
    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        let mut claims = BTreeMap::new();
        for Claim { target, mode } in &self.ticket.moves.claims {
            let strongest = claims.entry(target.clone()).or_insert(*mode);
            *strongest = (*strongest).max(*mode);
        }
        claims
    }

    /// What is really taken, by node.
    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        let moves = &self.ticket.moves;
        moves.list.iter().map(|step| (moves.node(step), step.mode)).collect()
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Names this hold in a snapshot.
    pub(crate) fn id(&self) -> u64 {
        self.ticket.owner.0
    }
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        let Self { manager, ticket, shards } = &*self;
        let mut wakers = Wakers::new();
        let mut locked = manager.lock(*shards);
        let hold = locked.table(ticket.owner.home()).remove_hold(ticket.owner);
        if let Some(leaked) = hold.and_then(|hold| hold.extension) {
            // The future of an extension was forgotten, not dropped.
            locked.abandon(&leaked, &mut wakers);
        }
        locked.give_back(ticket, &mut wakers);
        drop(locked);
        wake(wakers);
    }
}
