//! One shard: its nodes, its owners, and the owners that wait in it. Changed only while the shard is locked; never waits.

use super::node::{Node, Owner, Waiter};
use super::ticket::Ticket;
use crate::plan::{PlanStep, PlanSteps};
use crate::{SlotMode, Target};
use hashbrown::HashSet;
use hashbrown::hash_table::{Entry, HashTable};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

/// The wakers of granted tickets, to be woken when no shard is locked.
pub(super) type Wakers = SmallVec<[Waker; 4]>;

/// The number of shards: a set of shards fits into one word.
pub(super) const SHARDS: usize = u64::BITS as usize;

/// One owner, stored in the shard that is part of its number.
#[derive(Debug)]
pub(super) struct OwnerEntry {
    /// The plan of its acquire, complete or waiting.
    pub(super) ticket: Arc<Ticket>,
    /// The extension that it waits for.
    pub(super) extension: Option<Arc<Ticket>>,
}

impl OwnerEntry {
    fn hash(&self) -> u64 {
        self.ticket.owner.hash()
    }

    /// Returns its ticket, and that of its extension.
    pub(super) fn tickets(&self) -> impl Iterator<Item = &Arc<Ticket>> {
        [&self.ticket].into_iter().chain(&self.extension)
    }

    /// Returns every node that it has taken. The extension comes second, because its mode of a converted node is stronger.
    pub(super) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.tickets().flat_map(|ticket| ticket.modes()).collect()
    }
}

impl Owner {
    pub(super) fn new(number: u64, shard: usize) -> Self {
        Self(number * SHARDS as u64 + shard as u64)
    }

    /// Returns the shard in which the owner is stored.
    pub(super) fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    fn hash(self) -> u64 {
        (self.0 / SHARDS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A node that has a holder. Small: a million holds have up to three million entries.
#[derive(Debug)]
pub(super) struct NodeEntry {
    hash: u64,
    /// The node, or one below it; `path_end` of the node is the length of its path.
    pub(super) target: Target,
    pub(super) node: Node<Arc<Ticket>>,
}

/// Returns whether an entry is the node of a step.
fn is_node_of(step: &PlanStep, steps: &PlanSteps) -> impl Fn(&NodeEntry) -> bool {
    let (PlanStep { slot, end, .. }, target) = (*step, steps.target(step));
    move |entry| {
        entry.hash == slot
            && entry.node.path_end == end
            && entry.target.has_same_ancestor(target, end.into())
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) nodes: HashTable<NodeEntry>,
    pub(super) owners: HashTable<OwnerEntry>,
    /// The owners that wait for a node of this shard.
    pub(super) waiting: HashSet<Owner>,
}

impl Table {
    /// Takes a node if it is free.
    #[must_use]
    pub(super) fn try_take(&mut self, step: &PlanStep, steps: &PlanSteps) -> bool {
        match self.nodes.entry(step.slot, is_node_of(step, steps), |entry| entry.hash) {
            Entry::Occupied(mut entry) => entry.get_mut().node.try_take(step.mode, step.held),
            Entry::Vacant(entry) => {
                debug_assert!(step.held.is_none(), "a conversion of a node without a holder");
                let target = steps.target(step).clone();
                let node = Node::held(step.mode, step.end);
                entry.insert(NodeEntry { hash: step.slot, target, node });
                true
            }
        }
    }

    /// Returns the node of a step, if it has a holder.
    pub(super) fn node(&self, step: &PlanStep, steps: &PlanSteps) -> Option<&Node<Arc<Ticket>>> {
        self.nodes.find(step.slot, is_node_of(step, steps)).map(|entry| &entry.node)
    }

    /// Adds a ticket to the queue of a node that could not be taken.
    pub(super) fn enqueue(&mut self, step: &PlanStep, ticket: Arc<Ticket>) {
        let entry = self.nodes.find_mut(step.slot, is_node_of(step, &ticket.steps));
        let entry = entry.expect("a node that could not be taken has a holder");
        let (owner, PlanStep { mode, held, .. }) = (ticket.owner, *step);
        ticket.wait();
        entry.node.enqueue(Waiter { owner, mode, held, ticket });
        self.waiting.insert(owner);
    }

    /// Undoes a taken step: restores the mode that was held before it.
    pub(super) fn give_back(&mut self, step: &PlanStep, steps: &PlanSteps, wakers: &mut Wakers) {
        let Ok(mut entry) = self.nodes.find_entry(step.slot, is_node_of(step, steps)) else {
            debug_assert!(false, "released a node that has no holder");
            return;
        };
        let node = &mut entry.get_mut().node;
        node.give_back(step.mode, step.held, |next| grant(&mut self.waiting, next, wakers));
        if node.is_idle() {
            entry.remove();
            shrink(&mut self.nodes, |entry| entry.hash);
        }
    }

    /// Removes a ticket from the queue of the node that it waits for. That node has a holder.
    pub(super) fn leave_queue(&mut self, step: &PlanStep, ticket: &Ticket, wakers: &mut Wakers) {
        self.waiting.remove(&ticket.owner);
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

/// Removes a granted owner from the waiting ones, and collects its waker.
fn grant(waiting: &mut HashSet<Owner>, next: Waiter<Arc<Ticket>>, wakers: &mut Wakers) {
    waiting.remove(&next.owner);
    wakers.extend(next.ticket.grant());
}

/// Shrinks a table when most of it is empty; rarely enough that the cost per release is negligible.
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
