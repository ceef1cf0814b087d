//! One shard: its nodes, the holds at home in it, and who waits where. Changed only under the lock
//! of its shard, never waits itself.

use super::node::{Node, Owner, Waiter};
use super::signal::{Outcome, Signal};
use crate::mode::{ModeSet, SlotMode};
use crate::plan::{Claim, Plan};
use crate::target::Target;
use hashbrown::hash_table::{Entry, HashTable};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// Wakers of those who were granted, to be woken when no lock is held.
pub(super) type Wakers = SmallVec<[Waker; 4]>;

/// How many shards there are: a set of them fits into one word.
pub(super) const SHARDS: usize = u64::BITS as usize;
/// Where a node's hash carries its shard: the table uses the low bits and the top seven.
const SHARD_SHIFT: u32 = 51;
const SHARD_BITS: u64 = (SHARDS as u64 - 1) << SHARD_SHIFT;

/// One node to take, on behalf of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    /// Of the node's path; carries the shard of its root.
    pub(super) hash: u64,
    /// Which claim's target the node is an ancestor of.
    claim: u32,
    /// Where the node's path ends within that target.
    end: u16,
    pub(super) mode: SlotMode,
    /// For a conversion: what is held already.
    pub(super) held: Option<SlotMode>,
}

impl Move {
    pub(super) fn shard(&self) -> usize {
        ((self.hash & SHARD_BITS) >> SHARD_SHIFT) as usize
    }

    /// The node's path, within the claims it came with.
    pub(super) fn path<'a>(&self, claims: &'a [Claim]) -> &'a str {
        &claims[self.claim as usize].target.text()[..self.end.into()]
    }

    pub(super) fn node(&self, claims: &[Claim]) -> Target {
        claims[self.claim as usize].target.cut(self.end.into())
    }
}

/// Nodes in the order of a plan, with their claims.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    pub(super) claims: SmallVec<[Claim; 1]>,
    pub(super) list: SmallVec<[Move; 3]>,
}

impl Moves {
    /// All nodes of a path live in the shard of its root, so that one lock covers them.
    pub(super) fn new(plan: Plan, hasher: &impl BuildHasher) -> Self {
        let mut root = (u32::MAX, 0);
        let claims = plan.claims();
        let list = plan.raw_steps().iter().map(|step| {
            let target = &claims[step.claim as usize].target;
            if root.0 != step.claim {
                root = (step.claim, hasher.hash_one(target.prefix(0)) & SHARD_BITS);
            }
            let path = target.prefix(step.level.into());
            let hash = hasher.hash_one(path) & !SHARD_BITS | root.1;
            // A path of 8 IDs of 255 bytes, each behind a length of at most 2, has 2056.
            let end = path.len() as u16;
            Move { hash, claim: step.claim, end, mode: step.mode, held: None }
        });
        Self { list: list.collect(), claims: plan.into_claims() }
    }

    pub(super) fn shards(&self) -> u64 {
        self.list.iter().fold(0, |set, step| set | 1 << step.shard())
    }

    /// What of `self` is still to be taken by someone who holds `base`.
    pub(super) fn beyond(mut self, base: &Moves) -> Self {
        let held: HashMap<(u64, &str), SlotMode> = base
            .list
            .iter()
            .map(|step| ((step.hash, step.path(&base.claims)), step.mode))
            .collect();
        let claims = &self.claims;
        self.list.retain(|step| match held.get(&(step.hash, step.path(claims))) {
            None => true,
            Some(&before) => {
                step.held = Some(before);
                step.mode = step.mode.join(before);
                step.mode != before
            }
        });
        self
    }

    /// `base` with what was taken beyond it.
    pub(super) fn merged_into(self, mut base: Moves) -> Moves {
        let offset = base.claims.len() as u32;
        for step in self.list {
            let path = step.path(&self.claims);
            let before = base
                .list
                .iter_mut()
                .find(|b| b.hash == step.hash && b.path(&base.claims) == path)
                .filter(|_| step.held.is_some());
            match before {
                Some(before) => before.mode = step.mode,
                None => {
                    base.list.push(Move { claim: step.claim + offset, held: None, ..step });
                }
            }
        }
        base.claims.extend(self.claims);
        base
    }
}

/// What an owner has: most hold one target, and that is kept small.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    One(Claim),
    Many(Box<Moves>),
}

impl Held {
    pub(super) fn from_moves(mut moves: Moves) -> Self {
        match moves.claims.len() {
            1 => Held::One(moves.claims.remove(0)),
            _ => Held::Many(Box::new(moves)),
        }
    }

    /// The nodes of it. `again` plans a single claim anew.
    pub(super) fn moves(self, again: impl FnOnce(Claim) -> Moves) -> Moves {
        match self {
            Held::Nothing => Moves::default(),
            Held::One(claim) => again(claim),
            Held::Many(moves) => *moves,
        }
    }

    /// As [`moves`](Self::moves), of what stays held.
    pub(super) fn to_moves(&self, again: impl FnOnce(Claim) -> Moves) -> Moves {
        match self {
            Held::Nothing => Moves::default(),
            Held::One(claim) => again(claim.clone()),
            Held::Many(moves) => (**moves).clone(),
        }
    }
}

/// Nodes on their way to being taken, by an acquire or an extension that had to wait.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) moves: Moves,
    /// How many of them are taken.
    pub(super) taken: usize,
    /// Tells when the next one is.
    pub(super) signal: Arc<Signal>,
    /// An extension may come in any order, so it may close a circle; an acquire cannot.
    pub(super) ordered: bool,
}

impl Pending {
    /// How many are taken, counting one that was granted but not yet noticed.
    pub(super) fn really_taken(&self) -> usize {
        self.taken + usize::from(self.signal.outcome() == Some(Outcome::Granted))
    }
}

/// One owner, kept in the shard that its number names.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) owner: Owner,
    pub(super) name: Option<Arc<str>>,
    pub(super) since: Instant,
    pub(super) held: Held,
    pub(super) pending: Option<Box<Pending>>,
}

impl Owner {
    /// The shard where its hold is kept.
    pub(super) fn home(self) -> usize {
        self.0 as usize % SHARDS
    }

    fn hash(self) -> u64 {
        (self.0 / SHARDS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

#[derive(Debug)]
struct NodeEntry {
    hash: u64,
    target: Target,
    end: u16,
    node: Node<Arc<Signal>>,
}

impl NodeEntry {
    fn is(&self, hash: u64, path: &str) -> bool {
        self.hash == hash && &self.target.text()[..self.end.into()] == path
    }
}

/// A node somebody waits at.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) hash: u64,
    pub(super) target: Target,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    nodes: HashTable<NodeEntry>,
    holds: HashTable<Hold>,
    waiting: HashMap<Owner, Place>,
    owners: u64,
}

impl Table {
    /// A number that no other owner ever has.
    pub(super) fn new_owner(&mut self, home: usize) -> Owner {
        self.owners += 1;
        Owner(self.owners * SHARDS as u64 + home as u64)
    }

    /// Takes a node at once, or not at all.
    #[must_use]
    pub(super) fn try_take(&mut self, step: &Move, claims: &[Claim]) -> bool {
        let path = step.path(claims);
        match self.nodes.entry(step.hash, |n| n.is(step.hash, path), |n| n.hash) {
            Entry::Occupied(mut entry) => entry.get_mut().node.try_take(step.mode, step.held),
            Entry::Vacant(entry) => {
                debug_assert!(step.held.is_none(), "a conversion of a node that nobody holds");
                let target = claims[step.claim as usize].target.clone();
                let node = Node::held(step.mode);
                entry.insert(NodeEntry { hash: step.hash, target, end: step.end, node });
                true
            }
        }
    }

    /// Waits for a node that could not be taken.
    pub(super) fn enqueue(
        &mut self,
        owner: Owner,
        step: &Move,
        claims: &[Claim],
        signal: Arc<Signal>,
    ) {
        let path = step.path(claims);
        let entry = self.nodes.find_mut(step.hash, |n| n.is(step.hash, path));
        let entry = entry.expect("a node that could not be taken is held by someone");
        entry.node.enqueue(Waiter {
            owner,
            mode: step.mode,
            held: step.held,
            since: Instant::now(),
            tell: signal,
        });
        let place = Place { hash: step.hash, target: step.node(claims) };
        self.waiting.insert(owner, place);
    }

    /// Undoes a taken step: the node goes back to what was held before it.
    pub(super) fn give_back(&mut self, step: &Move, claims: &[Claim], wakers: &mut Wakers) {
        let path = step.path(claims);
        let waiting = &mut self.waiting;
        if let Ok(mut entry) = self.nodes.find_entry(step.hash, |n| n.is(step.hash, path)) {
            let node = &mut entry.get_mut().node;
            node.give_back(step.mode, step.held, |granted| tell(waiting, granted, wakers));
            if node.is_idle() {
                entry.remove();
                shrink(&mut self.nodes, |n| n.hash);
            }
        } else {
            debug_assert!(false, "gave back a node that nobody held");
        }
    }

    /// Takes an owner out of the queue it waits in; `false` if it waits nowhere in this shard.
    pub(super) fn leave_queue(&mut self, owner: Owner, wakers: &mut Wakers) -> bool {
        let Some(place) = self.waiting.remove(&owner) else { return false };
        let waiting = &mut self.waiting;
        let path = place.target.text();
        if let Ok(mut entry) = self.nodes.find_entry(place.hash, |n| n.is(place.hash, path)) {
            let node = &mut entry.get_mut().node;
            node.leave_queue(owner, |granted| tell(waiting, granted, wakers));
            if node.is_idle() {
                entry.remove();
            }
        }
        true
    }

    pub(super) fn add_hold(&mut self, hold: Hold) {
        self.holds.insert_unique(hold.owner.hash(), hold, |hold| hold.owner.hash());
    }

    pub(super) fn hold(&self, owner: Owner) -> Option<&Hold> {
        self.holds.find(owner.hash(), |hold| hold.owner == owner)
    }

    pub(super) fn hold_mut(&mut self, owner: Owner) -> Option<&mut Hold> {
        self.holds.find_mut(owner.hash(), |hold| hold.owner == owner)
    }

    pub(super) fn remove_hold(&mut self, owner: Owner) -> Option<Hold> {
        let entry = self.holds.find_entry(owner.hash(), |hold| hold.owner == owner).ok()?;
        let (hold, _) = entry.remove();
        shrink(&mut self.holds, |hold| hold.owner.hash());
        Some(hold)
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter()
    }

    /// Everybody who waits in this shard, and where.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Owner, &Place)> {
        self.waiting.iter().map(|(owner, place)| (*owner, place))
    }

    /// The queue of a node, next first.
    pub(super) fn queue(&self, place: &Place) -> impl Iterator<Item = &Waiter<Arc<Signal>>> {
        let path = place.target.text();
        self.nodes
            .find(place.hash, |n| n.is(place.hash, path))
            .into_iter()
            .flat_map(|entry| entry.node.queue())
    }

    /// What this shard keeps: nodes, holds, waiters.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.nodes.len(), self.holds.len(), self.waiting.len()]
    }

    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity() + self.holds.capacity()
    }
}

/// Notes that someone waits no more, and collects how to wake it.
fn tell(waiting: &mut HashMap<Owner, Place>, granted: Waiter<Arc<Signal>>, wakers: &mut Wakers) {
    waiting.remove(&granted.owner);
    wakers.extend(granted.tell.set(Outcome::Granted));
}

/// Gives memory back once most of a table is empty; rarely enough to cost nothing per release.
fn shrink<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    const WORTH_IT: usize = 256;
    if table.capacity() > WORTH_IT && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2, hash);
    }
}

/// The modes of `memory:`: all of them.
pub(super) const MODES: ModeSet = ModeSet::Intentions;
