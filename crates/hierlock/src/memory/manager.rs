//! The concurrent shell around the tables: locks shards, takes and gives back.
//!
//! **Lock order**: shards ascending by number, then the progress of a [`Pending`]. Nothing is woken
//! and nothing awaited while a shard is locked.

use super::circles;
use super::moves::{Held, Moves};
use super::node::Owner;
use super::pending::Pending;
use super::table::{Hold, SHARDS, Table, Wakers};
use super::waiting::{Kind, Waiting};
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
struct Shard(Mutex<Table>);

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

    /// Takes nodes in order until one is not free; how many are taken.
    pub(super) fn advance(&mut self, moves: &Moves, mut taken: usize) -> usize {
        while let Some(step) = moves.list.get(taken) {
            if !self.table(step.shard()).try_take(step, &moves.claims) {
                break;
            }
            taken += 1;
        }
        taken
    }

    pub(super) fn give_back(&mut self, moves: &Moves, taken: usize, wakers: &mut Wakers) {
        for step in moves.list[..taken].iter().rev() {
            self.table(step.shard()).give_back(step, &moves.claims, wakers);
        }
    }

    /// Ends what is pending: it leaves its queue and gives back what it had taken.
    pub(super) fn abandon(&mut self, owner: Owner, pending: &Pending, wakers: &mut Wakers) {
        let claims = &pending.moves.claims;
        if let Some(step) = pending.waits_at() {
            self.table(step.shard()).leave_queue(owner, step, claims, wakers);
        }
        self.give_back(&pending.moves, pending.taken(), wakers);
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

    /// The nodes of a single claim that was planned before.
    pub(super) fn moves_again(&self, claim: Claim) -> Moves {
        // It fitted into the tree when it was taken.
        self.plan([claim]).map(|plan| self.moves(plan)).unwrap_or_default()
    }

    pub(super) fn lock(&self, set: ShardSet) -> Locked<'_> {
        let mut tables = SmallVec::new();
        let mut left = set;
        while left != 0 {
            tables.push(lock(&self.shards[left.trailing_zeros() as usize].0));
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
        let since = Instant::now();
        let mut locked = self.lock(shards);
        let owner = locked.table(home).new_owner(home);
        let taken = locked.advance(&moves, 0);
        if taken == moves.list.len() {
            let held = Held::new(moves);
            let hold = Hold { owner, name, since, held: held.clone(), pending: None };
            locked.table(home).add_hold(hold);
            drop(locked);
            return Ok(MemoryHold { manager: self.clone(), owner, shards, held });
        }
        if !wait {
            return Err(Blocked::On(back_out(locked, &moves, taken)));
        }
        let hold = Hold { owner, name, since, held: Held::Nothing, pending: None };
        locked.table(home).add_hold(hold);
        let waiting = Waiting::begin(self, locked, owner, shards, moves, taken, Kind::Acquire);
        Err(Blocked::Waits(waiting))
    }

    /// Who holds what, and who waits for whom; by age.
    pub(crate) fn snapshot(&self) -> Vec<Holder> {
        let now = Instant::now();
        let locked = self.lock(ALL_SHARDS);
        let mut waits = circles::waits(self, &locked, now);
        let holds = locked.tables.iter().flat_map(|table| table.holds());
        let mut holders: Vec<Holder> = holds
            .map(|hold| Holder {
                id: hold.owner.0,
                name: hold.name.as_deref().map(str::to_owned),
                age: now.saturating_duration_since(hold.since),
                holds: self.modes_of(hold),
                waits: waits.remove(&hold.owner),
            })
            .collect();
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.age), holder.id));
        holders
    }

    /// Every node that a hold has, and of what is pending those that are taken.
    pub(super) fn modes_of(&self, hold: &Hold) -> BTreeMap<Target, SlotMode> {
        let mut modes = BTreeMap::new();
        let mut note = |moves: &Moves, taken: usize| {
            // A conversion comes later and is stronger.
            let steps = moves.list[..taken].iter();
            modes.extend(steps.map(|step| (step.node(&moves.claims), step.mode)));
        };
        hold.held.with(|claim| self.moves_again(claim), |moves| note(moves, moves.list.len()));
        if let Some(pending) = &hold.pending {
            note(&pending.moves, pending.taken());
        }
        modes
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
    pub(super) fn at(moves: &Moves, taken: usize) -> Self {
        let node = moves.list[taken].node(&moves.claims);
        let wanted = moves.claims.iter().map(|claim| claim.target.clone()).collect();
        Self { node, wanted }
    }
}

/// Gives back what was taken of a plan; tells what was in the way.
fn back_out(mut locked: Locked<'_>, moves: &Moves, taken: usize) -> Obstacle {
    let mut wakers = Wakers::new();
    locked.give_back(moves, taken, &mut wakers);
    drop(locked);
    wake(wakers);
    Obstacle::at(moves, taken)
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
    owner: Owner,
    /// The shards of its nodes, its home among them.
    shards: ShardSet,
    held: Held,
}

impl MemoryHold {
    /// What an acquire has when all it waited for is taken.
    pub(super) fn waited(
        manager: Arc<Manager>,
        owner: Owner,
        shards: ShardSet,
        pending: Arc<Pending>,
    ) -> Self {
        Self { manager, owner, shards, held: Held::Waited(pending) }
    }

    /// Takes more, or the same more strongly. If it is not free and `wait` is asked for, the way to
    /// wait comes back, to be handed to [`absorb`](Self::absorb) when it is over; otherwise nothing
    /// has changed.
    pub(crate) fn extend(&mut self, plan: Plan, wait: bool) -> Result<(), Blocked> {
        let manager = self.manager.clone();
        let more = manager.moves(plan);
        let shards = self.shards | more.shards();
        let more = self.with_moves(|base| more.beyond(base));
        let mut locked = manager.lock(shards);
        let taken = locked.advance(&more, 0);
        if taken == more.list.len() {
            self.shards = shards;
            self.keep(&mut locked, &more);
            return Ok(());
        }
        if !wait {
            return Err(Blocked::On(back_out(locked, &more, taken)));
        }
        // Wider than what is held if the extension fails; that does no harm.
        self.shards = shards;
        if let Some(hold) = locked.hold(self.owner) {
            // What was once pending is held now, and makes room for what is pending next.
            hold.held = self.held.clone();
        }
        let (owner, kind) = (self.owner, Kind::Extend);
        Err(Blocked::Waits(Waiting::begin(&manager, locked, owner, shards, more, taken, kind)))
    }

    /// The extension was waited for to its end.
    pub(crate) fn absorb(&mut self, waited: Waiting) {
        let manager = self.manager.clone();
        let mut locked = manager.lock(self.shards);
        self.keep(&mut locked, &waited.pending().moves);
    }

    /// Adds what is taken to what is held.
    fn keep(&mut self, locked: &mut Locked<'_>, more: &Moves) {
        self.held = Held::Many(Arc::new(self.with_moves(|base| more.merged_with(base))));
        if let Some(hold) = locked.hold(self.owner) {
            hold.held = self.held.clone();
            hold.pending = None;
        }
    }

    fn with_moves<T>(&self, look: impl FnOnce(&Moves) -> T) -> T {
        self.held.with(|claim| self.manager.moves_again(claim), look)
    }

    /// What was asked for, each target once, in the strongest mode.
    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        let mut claims = BTreeMap::new();
        for Claim { target, mode } in self.held.claims() {
            let strongest = claims.entry(target.clone()).or_insert(*mode);
            *strongest = (*strongest).max(*mode);
        }
        claims
    }

    /// What is really taken, by node.
    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.with_moves(|moves| {
            moves.list.iter().map(|step| (step.node(&moves.claims), step.mode)).collect()
        })
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Names this hold in a snapshot.
    pub(crate) fn id(&self) -> u64 {
        self.owner.0
    }
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        let mut wakers = Wakers::new();
        self.with_moves(|moves| {
            let mut locked = self.manager.lock(self.shards);
            let hold = locked.table(self.owner.home()).remove_hold(self.owner);
            if let Some(pending) = hold.and_then(|hold| hold.pending)
                && !matches!(&self.held, Held::Waited(own) if Arc::ptr_eq(own, &pending))
            {
                // Only if the future of an extension was leaked.
                locked.abandon(self.owner, &pending, &mut wakers);
            }
            locked.give_back(moves, moves.list.len(), &mut wakers);
        });
        wake(wakers);
    }
}
