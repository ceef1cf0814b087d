//! The concurrent shell around the tables: locks shards, waits, and breaks circles.
//!
//! **Lock order**: shards ascending by number, then a [`Signal`]. Nothing is woken and nothing
//! awaited while a shard is locked.

use super::graph::WaitGraph;
use super::node::Owner;
use super::signal::{Outcome, Signal};
use super::table::{Held, Hold, MODES, Moves, Pending, SHARDS, Table, Wakers};
use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan, Slots};
use crate::snapshot::{Holder, Wait};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::target::Target;
use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

const ALL_SHARDS: u64 = u64::MAX;

/// A lock manager: every node of a tree, in one process.
#[derive(Debug)]
pub(crate) struct Manager {
    hierarchy: Hierarchy,
    hasher: DefaultHashBuilder,
    shards: Box<[Shard]>,
    /// How many extensions wait. Circles need at least one, so while there is none nobody looks.
    unordered: AtomicUsize,
}

/// Two shards never share a cache line (or the pair of lines that is fetched together).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

/// What an owner has in hand: its nodes are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryHold {
    manager: Arc<Manager>,
    owner: Owner,
    /// The shards of its nodes, its home among them.
    shards: u64,
}

/// A plan could not be taken at once.
pub(crate) enum Blocked {
    /// Waiting was asked for.
    Waits(Waiting),
    /// It was not; nothing has changed.
    On(Obstacle),
}

/// The shards of a set, locked.
struct Locked<'a> {
    set: u64,
    tables: SmallVec<[MutexGuard<'a, Table>; 1]>,
}

impl Locked<'_> {
    fn table(&mut self, shard: usize) -> &mut Table {
        debug_assert!(self.set & 1 << shard != 0, "shard {shard} is not locked");
        &mut self.tables[(self.set & ((1 << shard) - 1)).count_ones() as usize]
    }

    fn hold(&mut self, owner: Owner) -> Option<&mut Hold> {
        self.table(owner.home()).hold_mut(owner)
    }

    /// Takes nodes in order until one is not free.
    fn advance(&mut self, moves: &Moves, taken: &mut usize) -> bool {
        while let Some(step) = moves.list.get(*taken) {
            if !self.table(step.shard()).try_take(step, &moves.claims) {
                return false;
            }
            *taken += 1;
        }
        true
    }

    /// Ends what an owner has pending: it leaves the queue and gives back what it had taken.
    fn abandon(&mut self, owner: Owner, wakers: &mut Wakers) -> Option<Obstacle> {
        let pending = self.hold(owner)?.pending.take()?;
        let step = &pending.moves.list[pending.taken];
        self.table(step.shard()).leave_queue(owner, wakers);
        self.give_back(&pending.moves, pending.really_taken(), wakers);
        Some(Obstacle::at(&pending.moves, pending.taken))
    }

    fn give_back(&mut self, moves: &Moves, taken: usize, wakers: &mut Wakers) {
        for step in moves.list[..taken].iter().rev() {
            self.table(step.shard()).give_back(step, &moves.claims, wakers);
        }
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
        Plan::new(&self.hierarchy, claims, Slots::Paths, MODES)
    }

    fn moves(&self, plan: Plan) -> Moves {
        Moves::new(plan, &self.hasher)
    }

    /// The nodes of a single claim that was planned before.
    fn moves_again(&self, claim: Claim) -> Moves {
        // It fitted into the tree when it was taken.
        self.plan([claim]).map(|plan| self.moves(plan)).unwrap_or_default()
    }

    fn lock(&self, set: u64) -> Locked<'_> {
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
        let mut locked = self.lock(shards);
        let owner = locked.table(home).new_owner(home);
        let mut taken = 0;
        let free = locked.advance(&moves, &mut taken);
        let mut hold =
            Hold { owner, name, since: Instant::now(), held: Held::Nothing, pending: None };
        if free {
            hold.held = Held::from_moves(moves);
            locked.table(home).add_hold(hold);
            drop(locked);
            return Ok(MemoryHold { manager: self.clone(), owner, shards });
        }
        if !wait {
            return Err(Blocked::On(self.back_out(locked, &moves, taken)));
        }
        locked.table(home).add_hold(hold);
        let signal = self.wait_in_queue(locked, owner, moves, taken, Kind::Acquire);
        Err(Blocked::Waits(Waiting::new(self.clone(), owner, shards, Kind::Acquire, signal)))
    }

    /// Gives back what was taken of a plan; tells what was in the way.
    fn back_out(&self, mut locked: Locked<'_>, moves: &Moves, taken: usize) -> Obstacle {
        let mut wakers = Wakers::new();
        locked.give_back(moves, taken, &mut wakers);
        drop(locked);
        wake(wakers);
        Obstacle::at(moves, taken)
    }

    /// Waits for the first node of a plan that is not taken yet.
    fn wait_in_queue(
        &self,
        mut locked: Locked<'_>,
        owner: Owner,
        moves: Moves,
        taken: usize,
        kind: Kind,
    ) -> Arc<Signal> {
        if kind == Kind::Extend {
            // Before anyone can see us wait, so that whoever waits after us looks for circles.
            self.unordered.fetch_add(1, Ordering::SeqCst);
        }
        let signal = Arc::<Signal>::default();
        let step = &moves.list[taken];
        locked.table(step.shard()).enqueue(owner, step, &moves.claims, signal.clone());
        if let Some(hold) = locked.hold(owner) {
            let ordered = kind == Kind::Acquire;
            let pending = Pending { moves, taken, signal: signal.clone(), ordered };
            hold.pending = Some(Box::new(pending));
        }
        drop(locked);
        self.break_circles(owner);
        signal
    }

    /// Ends one wait of every circle that goes through `owner`: the youngest extension in it, for
    /// that can fail and keep what it had. The others go on.
    fn break_circles(&self, owner: Owner) {
        if self.unordered.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut locked = self.lock(ALL_SHARDS);
        let mut graph = wait_graph(self, &locked, Only::Waiters);
        let mut wakers = Wakers::new();
        while let Some(circle) = graph.cycle_through(owner) {
            let victim = circle
                .into_iter()
                .filter(|owner| locked.waits_unordered(*owner))
                .max_by_key(|owner| locked.waits_since(*owner));
            let Some(victim) = victim else {
                debug_assert!(false, "ordered acquires wait in a circle");
                break;
            };
            graph.remove(victim);
            for shard in 0..SHARDS {
                locked.table(shard).leave_queue(victim, &mut wakers);
            }
            if let Some(pending) = locked.hold(victim).and_then(|hold| hold.pending.as_ref()) {
                wakers.extend(pending.signal.set(Outcome::Victim));
            }
        }
        drop(locked);
        wake(wakers);
    }

    /// Who holds what, and who waits for whom; by age.
    pub(crate) fn snapshot(&self) -> Vec<Holder> {
        let now = Instant::now();
        let locked = self.lock(ALL_SHARDS);
        let graph = wait_graph(self, &locked, Only::Everyone);
        let mut waits: HashMap<Owner, Wait> = HashMap::new();
        for table in &locked.tables {
            for (owner, place) in table.waiting() {
                let Some(waiter) = table.queue(place).find(|waiter| waiter.owner == owner) else {
                    continue;
                };
                let mut blocked_by: Vec<u64> =
                    graph.blockers(owner).iter().map(|blocker| blocker.0).collect();
                blocked_by.sort_unstable();
                blocked_by.dedup();
                let wait = Wait {
                    target: place.target.clone(),
                    mode: waiter.mode,
                    waited: now.saturating_duration_since(waiter.since),
                    blocked_by,
                };
                waits.insert(owner, wait);
            }
        }
        let mut holders: Vec<Holder> = locked
            .tables
            .iter()
            .flat_map(|table| table.holds())
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

    /// Every node a hold has, pending ones that are taken included.
    fn modes_of(&self, hold: &Hold) -> BTreeMap<Target, SlotMode> {
        let mut modes = BTreeMap::new();
        let base = hold.held.to_moves(|claim| self.moves_again(claim));
        let pending = hold.pending.as_deref().map(|p| (&p.moves, p.really_taken()));
        for (moves, taken) in [(&base, base.list.len())].into_iter().chain(pending) {
            for step in &moves.list[..taken] {
                // A conversion comes later and is stronger.
                modes.insert(step.node(&moves.claims), step.mode);
            }
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

/// What can be asked while all shards are locked.
impl Locked<'_> {
    fn waits_unordered(&self, owner: Owner) -> bool {
        let hold = self.tables[owner.home()].hold(owner);
        hold.and_then(|hold| hold.pending.as_ref()).is_some_and(|pending| !pending.ordered)
    }

    fn waits_since(&self, owner: Owner) -> Option<Instant> {
        self.tables.iter().find_map(|table| {
            let (_, place) = table.waiting().find(|(waiter, _)| *waiter == owner)?;
            table.queue(place).find(|waiter| waiter.owner == owner).map(|waiter| waiter.since)
        })
    }
}

/// Whose holds go into a wait-for graph: a circle consists of waiters only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Waiters,
    Everyone,
}

/// Builds the graph from all shards. An owner waits for those who hold its node in a mode that
/// conflicts; a newcomer also waits for everyone ahead of it in the queue.
fn wait_graph(manager: &Manager, locked: &Locked<'_>, only: Only) -> WaitGraph {
    let mut graph = WaitGraph::default();
    // Who holds the nodes that are waited for.
    let mut holders: HashMap<&Target, Vec<(Owner, SlotMode)>> = HashMap::new();
    for table in &locked.tables {
        holders.extend(table.waiting().map(|(_, place)| (&place.target, Vec::new())));
    }
    let mut note = |hold: &Hold| {
        for (node, mode) in manager.modes_of(hold) {
            if let Some(holders) = holders.get_mut(&node) {
                holders.push((hold.owner, mode));
            }
        }
    };
    for table in &locked.tables {
        match only {
            Only::Everyone => table.holds().for_each(&mut note),
            Only::Waiters => table
                .waiting()
                .filter_map(|(owner, _)| locked.tables[owner.home()].hold(owner))
                .for_each(&mut note),
        }
    }
    for table in &locked.tables {
        for (owner, place) in table.waiting() {
            let mut ahead = Vec::new();
            for waiter in table.queue(place) {
                if waiter.owner != owner {
                    ahead.push(waiter.owner);
                    continue;
                }
                for (holder, mode) in &holders[&place.target] {
                    if *holder != owner && !mode.is_compatible_with(waiter.mode) {
                        graph.add(owner, *holder);
                    }
                }
                if waiter.held.is_none() {
                    ahead.iter().for_each(|other| graph.add(owner, *other));
                }
                break;
            }
        }
    }
    graph
}

fn wake(wakers: Wakers) {
    for waker in wakers {
        waker.wake();
    }
}

/// Why someone waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Acquire,
    Extend,
}

/// What was in the way of a plan, and what the plan was for.
#[derive(Debug)]
pub(crate) struct Obstacle {
    pub(crate) node: Target,
    pub(crate) wanted: Vec<Target>,
}

impl Obstacle {
    fn at(moves: &Moves, taken: usize) -> Self {
        let node = moves.list[taken].node(&moves.claims);
        let wanted = moves.claims.iter().map(|claim| claim.target.clone()).collect();
        Self { node, wanted }
    }
}

/// A wait under way. Dropped before its end, it leaves the queue and gives back what it had taken
/// of its plan; what its owner held before, stays.
#[derive(Debug)]
#[must_use]
pub(crate) struct Waiting {
    manager: Arc<Manager>,
    owner: Owner,
    shards: u64,
    kind: Kind,
    /// Of the node that is waited for now; none when the wait is over.
    signal: Option<Arc<Signal>>,
}

impl Waiting {
    fn new(
        manager: Arc<Manager>,
        owner: Owner,
        shards: u64,
        kind: Kind,
        signal: Arc<Signal>,
    ) -> Self {
        Self { manager, owner, shards, kind, signal: Some(signal) }
    }

    /// Waits until all is taken, or until this was chosen to break a circle.
    ///
    /// # Cancel safety
    /// Can be called again, nothing is lost; dropping the `Waiting` itself gives up.
    pub(crate) async fn finish(&mut self) -> Result<(), Obstacle> {
        while let Some(signal) = &self.signal {
            match poll_fn(|context| signal.poll(context)).await {
                Outcome::Granted => self.go_on(),
                Outcome::Victim => return self.give_up().map_or(Ok(()), Err),
            }
        }
        Ok(())
    }

    /// One more node was granted: takes the rest as far as it is free.
    fn go_on(&mut self) {
        let Self { manager, owner, shards, kind, .. } = &*self;
        let mut locked = manager.lock(*shards);
        let Some(hold) = locked.hold(*owner) else { return };
        let Some(pending) = hold.pending.take() else { return };
        let Pending { moves, mut taken, .. } = *pending;
        taken += 1;
        if !locked.advance(&moves, &mut taken) {
            let signal = manager.wait_in_queue(locked, *owner, moves, taken, *kind);
            self.wait_is_over();
            self.signal = Some(signal);
            return;
        }
        if let Some(hold) = locked.hold(*owner) {
            let base = std::mem::replace(&mut hold.held, Held::Nothing);
            let base = base.moves(|claim| manager.moves_again(claim));
            hold.held = Held::from_moves(moves.merged_into(base));
        }
        drop(locked);
        self.wait_is_over();
    }

    /// Leaves the queue and gives back; tells what was in the way, if the wait was not over.
    pub(crate) fn give_up(&mut self) -> Option<Obstacle> {
        self.signal.as_ref()?;
        let mut wakers = Wakers::new();
        let mut locked = self.manager.lock(self.shards);
        let obstacle = locked.abandon(self.owner, &mut wakers);
        if self.kind == Kind::Acquire {
            locked.table(self.owner.home()).remove_hold(self.owner);
        }
        drop(locked);
        self.wait_is_over();
        wake(wakers);
        obstacle
    }

    fn wait_is_over(&mut self) {
        self.signal = None;
        if self.kind == Kind::Extend {
            self.manager.unordered.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// What an acquire has in hand after [`finish`](Self::finish).
    pub(crate) fn into_hold(self) -> MemoryHold {
        debug_assert!(self.signal.is_none() && self.kind == Kind::Acquire);
        MemoryHold { manager: self.manager.clone(), owner: self.owner, shards: self.shards }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl MemoryHold {
    /// Takes more, or the same more strongly. If it is not free and `wait` is asked for, the way to
    /// wait comes back; otherwise nothing has changed.
    pub(crate) fn extend(&mut self, plan: Plan, wait: bool) -> Result<(), Blocked> {
        let manager = &self.manager;
        let moves = manager.moves(plan);
        let shards = self.shards | moves.shards();
        let mut locked = manager.lock(shards);
        let base = locked
            .hold(self.owner)
            .map(|hold| hold.held.to_moves(|claim| manager.moves_again(claim)))
            .unwrap_or_default();
        let moves = moves.beyond(&base);
        let mut taken = 0;
        if locked.advance(&moves, &mut taken) {
            if let Some(hold) = locked.hold(self.owner) {
                hold.held = Held::from_moves(moves.merged_into(base));
            }
            drop(locked);
            self.shards = shards;
            return Ok(());
        }
        if !wait {
            return Err(Blocked::On(manager.back_out(locked, &moves, taken)));
        }
        let signal = manager.wait_in_queue(locked, self.owner, moves, taken, Kind::Extend);
        // Wider than what is held if the extension fails; that does no harm.
        self.shards = shards;
        let manager = manager.clone();
        Err(Blocked::Waits(Waiting::new(manager, self.owner, shards, Kind::Extend, signal)))
    }

    /// What was asked for, each target once, in the strongest mode.
    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        let mut claims = BTreeMap::new();
        let mut note = |Claim { target, mode }: &Claim| {
            let strongest = claims.entry(target.clone()).or_insert(*mode);
            *strongest = (*strongest).max(*mode);
        };
        match self.manager.lock(1 << self.owner.home()).hold(self.owner).map(|hold| &hold.held) {
            Some(Held::One(claim)) => note(claim),
            Some(Held::Many(moves)) => moves.claims.iter().for_each(note),
            Some(Held::Nothing) | None => {}
        }
        claims
    }

    /// What is really taken, by node.
    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        let mut locked = self.manager.lock(1 << self.owner.home());
        let hold = locked.hold(self.owner).map(|hold| &*hold);
        hold.map(|hold| self.manager.modes_of(hold)).unwrap_or_default()
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
        let mut locked = self.manager.lock(self.shards);
        // There is something pending only if the future of an extension was leaked.
        locked.abandon(self.owner, &mut wakers);
        if let Some(hold) = locked.table(self.owner.home()).remove_hold(self.owner) {
            let moves = hold.held.moves(|claim| self.manager.moves_again(claim));
            locked.give_back(&moves, moves.list.len(), &mut wakers);
        }
        drop(locked);
        wake(wakers);
    }
}
