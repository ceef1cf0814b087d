//! One shard: its nodes, the holds at home in it, and who waits in it. Changed only under the lock of
//! its shard, never waits itself.

use super::moves::{Move, Moves};
use super::node::{Node, Owner, Waiter};
use super::ticket::Ticket;
#[cfg(all(test, not(feature = "model")))]
use crate::mode::SlotMode;
use crate::target::Target;
use hashbrown::hash_table::{Entry, HashTable};
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::Waker;

/// Wakers of those who were granted, to be woken when no lock is held.
pub(super) type Wakers = SmallVec<[Waker; 4]>;

/// How many shards there are: a set of them fits into one word.
pub(super) const SHARDS: usize = u64::BITS as usize;

/// One owner, kept in the shard that its number names.
#[derive(Debug)]
pub(super) struct Hold {
    /// What it has, or waits to have.
    pub(super) ticket: Arc<Ticket>,
    /// What it waits to have besides.
    pub(super) extension: Option<Arc<Ticket>>,
}

impl Hold {
    fn hash(&self) -> u64 {
        self.ticket.owner.hash()
    }

    /// Both of its tickets.
    pub(super) fn tickets(&self) -> impl Iterator<Item = &Arc<Ticket>> {
        [&self.ticket].into_iter().chain(&self.extension)
    }
}

impl Owner {
    pub(super) fn new(number: u64, home: usize) -> Self {
        Self(number * SHARDS as u64 + home as u64)
    }

    /// The shard where its hold is kept.
    pub(super) fn home(self) -> usize {
        self.0 as usize % SHARDS
    }

    fn hash(self) -> u64 {
        (self.0 / SHARDS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A node that somebody holds. Small: a million holds have up to three million of them.
#[derive(Debug)]
struct NodeEntry {
    hash: u64,
    /// The node, or one below it; the node's label says where it ends.
    target: Target,
    node: Node<Arc<Ticket>>,
}

impl NodeEntry {
    fn is(&self, step: &Move, target: &Target) -> bool {
        self.hash == step.hash
            && self.node.label == step.end
            && self.target.agrees(target, step.end.into())
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    nodes: HashTable<NodeEntry>,
    holds: HashTable<Hold>,
    /// Everybody who waits at a node of this shard.
    waiting: HashTable<Owner>,
}

impl Table {
    /// Takes a node at once, or not at all.
    #[must_use]
    pub(super) fn try_take(&mut self, step: &Move, moves: &Moves) -> bool {
        let target = moves.target(step);
        match self.nodes.entry(step.hash, |n| n.is(step, target), |n| n.hash) {
            Entry::Occupied(mut entry) => entry.get_mut().node.try_take(step.mode, step.held),
            Entry::Vacant(entry) => {
                debug_assert!(step.held.is_none(), "a conversion of a node that nobody holds");
                let node = Node::held(step.mode, step.end);
                entry.insert(NodeEntry { hash: step.hash, target: target.clone(), node });
                true
            }
        }
    }

    /// Is a holder in the way of a step, and not only those who wait before it?
    pub(super) fn is_held_against(&self, step: &Move, moves: &Moves) -> bool {
        let target = moves.target(step);
        let entry = self.nodes.find(step.hash, |n| n.is(step, target));
        entry.is_some_and(|entry| !entry.node.allows(step.mode, step.held))
    }

    /// Waits for a node that could not be taken.
    pub(super) fn enqueue(&mut self, step: &Move, ticket: Arc<Ticket>) {
        let target = ticket.moves.target(step);
        let entry = self.nodes.find_mut(step.hash, |n| n.is(step, target));
        let entry = entry.expect("a node that could not be taken is held by someone");
        let (owner, Move { mode, held, .. }) = (ticket.owner, *step);
        ticket.wait();
        entry.node.enqueue(Waiter { owner, mode, held, tell: ticket });
        self.waiting.insert_unique(owner.hash(), owner, |owner| owner.hash());
    }

    /// Undoes a taken step: the node goes back to what was held before it.
    pub(super) fn give_back(&mut self, step: &Move, moves: &Moves, wakers: &mut Wakers) {
        let target = moves.target(step);
        let waiting = &mut self.waiting;
        if let Ok(mut entry) = self.nodes.find_entry(step.hash, |n| n.is(step, target)) {
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

    /// Takes a ticket out of the queue of the node it waits at.
    pub(super) fn leave_queue(&mut self, step: &Move, ticket: &Ticket, wakers: &mut Wakers) {
        let target = ticket.moves.target(step);
        let waiting = &mut self.waiting;
        no_longer_waits(waiting, ticket.owner);
        if let Ok(mut entry) = self.nodes.find_entry(step.hash, |n| n.is(step, target)) {
            let node = &mut entry.get_mut().node;
            node.leave_queue(ticket.owner, |granted| tell(waiting, granted, wakers));
            if node.is_idle() {
                entry.remove();
            }
        }
    }

    pub(super) fn add_hold(&mut self, ticket: Arc<Ticket>) {
        let hold = Hold { ticket, extension: None };
        self.holds.insert_unique(hold.hash(), hold, Hold::hash);
    }

    pub(super) fn hold(&self, owner: Owner) -> Option<&Hold> {
        self.holds.find(owner.hash(), |hold| hold.ticket.owner == owner)
    }

    pub(super) fn hold_mut(&mut self, owner: Owner) -> Option<&mut Hold> {
        self.holds.find_mut(owner.hash(), |hold| hold.ticket.owner == owner)
    }

    pub(super) fn remove_hold(&mut self, owner: Owner) -> Option<Hold> {
        let entry = self.holds.find_entry(owner.hash(), |hold| hold.ticket.owner == owner).ok()?;
        let (hold, _) = entry.remove();
        shrink(&mut self.holds, Hold::hash);
        Some(hold)
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter()
    }

    /// Everybody who waits in this shard.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Owner> {
        self.waiting.iter().copied()
    }

    /// The queue of a node, next first.
    pub(super) fn queue(
        &self,
        step: &Move,
        moves: &Moves,
    ) -> impl Iterator<Item = &Waiter<Arc<Ticket>>> {
        let target = moves.target(step);
        let entry = self.nodes.find(step.hash, |n| n.is(step, target));
        entry.into_iter().flat_map(|entry| entry.node.queue())
    }

    /// Every node, how many hold it in a mode, and its queue.
    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn nodes(
        &self,
    ) -> impl Iterator<
        Item = (Target, impl Fn(SlotMode) -> usize, impl Iterator<Item = &Waiter<Arc<Ticket>>>),
    > {
        self.nodes.iter().map(|entry| {
            let node = entry.target.cut(entry.node.label.into());
            (node, |mode| entry.node.holders(mode), entry.node.queue())
        })
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

fn no_longer_waits(waiting: &mut HashTable<Owner>, owner: Owner) {
    if let Ok(entry) = waiting.find_entry(owner.hash(), |waiter| *waiter == owner) {
        entry.remove();
    }
}

/// Notes that someone waits no more, and collects how to wake it.
fn tell(waiting: &mut HashTable<Owner>, granted: Waiter<Arc<Ticket>>, wakers: &mut Wakers) {
    no_longer_waits(waiting, granted.owner);
    wakers.extend(granted.tell.grant());
}

/// Gives memory back once most of a table is empty; rarely enough to cost nothing per release.
fn shrink<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    const WORTH_IT: usize = 32;
    if table.capacity() > WORTH_IT && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2, hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_small() {
        assert!(size_of::<NodeEntry>() <= 48, "{}", size_of::<NodeEntry>());
        assert!(size_of::<Hold>() <= 16, "{}", size_of::<Hold>());
    }
}
