//! One shard: its nodes, the owners that are kept in it, and who waits in it. Changed only under the lock of
//! its shard, never waits itself.

use super::node::{Node, Owner, Waiter};
use super::ticket::Ticket;
use crate::mode::SlotMode;
use crate::plan::{PlanStep, PlanSteps};
use crate::target::Target;
use hashbrown::hash_table::{Entry, HashTable};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

/// Wakers of those who were granted, to be woken when no lock is held.
pub(super) type Wakers = SmallVec<[Waker; 4]>;

/// How many shards there are: a set of them fits into one word.
pub(super) const SHARDS: usize = u64::BITS as usize;

/// One owner, kept in the shard that its number names.
#[derive(Debug)]
pub(super) struct OwnerEntry {
    /// What it has, or waits to have.
    pub(super) ticket: Arc<Ticket>,
    /// What it waits to have besides.
    pub(super) extension: Option<Arc<Ticket>>,
}

impl OwnerEntry {
    fn hash(&self) -> u64 {
        self.ticket.owner.hash()
    }

    /// Both of its tickets.
    pub(super) fn tickets(&self) -> impl Iterator<Item = &Arc<Ticket>> {
        [&self.ticket].into_iter().chain(&self.extension)
    }

    /// Every node that it has by now. The extension comes second: where it converts, it is stronger.
    pub(super) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.tickets().flat_map(|ticket| ticket.modes()).collect()
    }
}

impl Owner {
    pub(super) fn new(number: u64, shard: usize) -> Self {
        Self(number * SHARDS as u64 + shard as u64)
    }

    /// The shard in which it is kept.
    pub(super) fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    fn hash(self) -> u64 {
        (self.0 / SHARDS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A node that somebody holds. Small: a million holds have up to three million of them.
#[derive(Debug)]
pub(super) struct NodeEntry {
    hash: u64,
    /// The node, or one below it; the node's `path_end` says where it ends.
    pub(super) target: Target,
    pub(super) node: Node<Arc<Ticket>>,
}

/// Is an entry that of the node of a step?
fn is_node_of(step: &PlanStep, steps: &PlanSteps) -> impl Fn(&NodeEntry) -> bool {
    let (PlanStep { slot, end, .. }, target) = (*step, steps.target(step));
    move |entry| {
        entry.hash == slot && entry.node.path_end == end && entry.target.agrees(target, end.into())
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) nodes: HashTable<NodeEntry>,
    pub(super) owners: HashTable<OwnerEntry>,
    /// Everybody who waits at a node of this shard.
    pub(super) waiting: HashTable<Owner>,
}

impl Table {
    /// Takes a node at once, or not at all.
    #[must_use]
    pub(super) fn try_take(&mut self, step: &PlanStep, steps: &PlanSteps) -> bool {
        match self.nodes.entry(step.slot, is_node_of(step, steps), |entry| entry.hash) {
            Entry::Occupied(mut entry) => entry.get_mut().node.try_take(step.mode, step.held),
            Entry::Vacant(entry) => {
                debug_assert!(step.held.is_none(), "a conversion of a node that nobody holds");
                let node = Node::held(step.mode, step.end);
                entry.insert(NodeEntry {
                    hash: step.slot,
                    target: steps.target(step).clone(),
                    node,
                });
                true
            }
        }
    }

    fn node(&self, step: &PlanStep, steps: &PlanSteps) -> Option<&Node<Arc<Ticket>>> {
        self.nodes.find(step.slot, is_node_of(step, steps)).map(|entry| &entry.node)
    }

    /// Is a holder in the way of a step, and not only those who wait before it?
    pub(super) fn is_held_against(&self, step: &PlanStep, steps: &PlanSteps) -> bool {
        self.node(step, steps).is_some_and(|node| !node.allows(step.mode, step.held))
    }

    /// The queue of a node, next first.
    pub(super) fn queue(
        &self,
        step: &PlanStep,
        steps: &PlanSteps,
    ) -> impl Iterator<Item = &Waiter<Arc<Ticket>>> {
        self.node(step, steps).into_iter().flat_map(Node::queue)
    }

    /// Waits for a node that could not be taken.
    pub(super) fn enqueue(&mut self, step: &PlanStep, ticket: Arc<Ticket>) {
        let entry = self.nodes.find_mut(step.slot, is_node_of(step, &ticket.steps));
        let entry = entry.expect("a node that could not be taken is held by someone");
        let (owner, PlanStep { mode, held, .. }) = (ticket.owner, *step);
        ticket.wait();
        entry.node.enqueue(Waiter { owner, mode, held, ticket });
        self.waiting.insert_unique(owner.hash(), owner, |owner| owner.hash());
    }

    /// Undoes a taken step: the node goes back to what was held before it.
    pub(super) fn give_back(&mut self, step: &PlanStep, steps: &PlanSteps, wakers: &mut Wakers) {
        let Ok(mut entry) = self.nodes.find_entry(step.slot, is_node_of(step, steps)) else {
            debug_assert!(false, "gave back a node that nobody held");
            return;
        };
        let node = &mut entry.get_mut().node;
        node.give_back(step.mode, step.held, |next| grant(&mut self.waiting, next, wakers));
        if node.is_idle() {
            entry.remove();
            shrink(&mut self.nodes, |entry| entry.hash);
        }
    }

    /// Takes a ticket out of the queue of the node it waits at. Somebody holds that node.
    pub(super) fn leave_queue(&mut self, step: &PlanStep, ticket: &Ticket, wakers: &mut Wakers) {
        remove_waiting(&mut self.waiting, ticket.owner);
        if let Some(entry) = self.nodes.find_mut(step.slot, is_node_of(step, &ticket.steps)) {
            let granted = |next| grant(&mut self.waiting, next, wakers);
            entry.node.leave_queue(ticket.owner, granted);
        }
    }

    pub(super) fn add_owner(&mut self, ticket: Arc<Ticket>) {
        let entry = OwnerEntry { ticket, extension: None };
        self.owners.insert_unique(entry.hash(), entry, OwnerEntry::hash);
    }

    pub(super) fn owner(&self, owner: Owner) -> Option<&OwnerEntry> {
        self.owners.find(owner.hash(), |entry| entry.ticket.owner == owner)
    }

    pub(super) fn owner_mut(&mut self, owner: Owner) -> Option<&mut OwnerEntry> {
        self.owners.find_mut(owner.hash(), |entry| entry.ticket.owner == owner)
    }

    pub(super) fn remove_owner(&mut self, owner: Owner) -> Option<OwnerEntry> {
        let entry = self.owners.find_entry(owner.hash(), |entry| entry.ticket.owner == owner);
        let (removed, _) = entry.ok()?.remove();
        shrink(&mut self.owners, OwnerEntry::hash);
        Some(removed)
    }
}

fn remove_waiting(waiting: &mut HashTable<Owner>, owner: Owner) {
    if let Ok(entry) = waiting.find_entry(owner.hash(), |waiter| *waiter == owner) {
        entry.remove();
    }
}

/// Notes that someone waits no more, and collects how to wake it.
fn grant(waiting: &mut HashTable<Owner>, next: Waiter<Arc<Ticket>>, wakers: &mut Wakers) {
    remove_waiting(waiting, next.owner);
    wakers.extend(next.ticket.grant());
}

/// Gives memory back once most of a table is empty; rarely enough to cost nothing per release.
fn shrink<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    const MIN_CAPACITY: usize = 32;
    if table.capacity() > MIN_CAPACITY && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2, hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_small() {
        assert!(size_of::<NodeEntry>() <= 48, "{}", size_of::<NodeEntry>());
        assert!(size_of::<OwnerEntry>() <= 16, "{}", size_of::<OwnerEntry>());
    }
}
