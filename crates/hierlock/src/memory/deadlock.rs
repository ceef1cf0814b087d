//! The wait-for graph of the tables, built while all shards are locked, and how deadlocks are broken.

use super::manager::{ALL_SHARDS, LockedShards, Manager};
use super::node::{Owner, Waiter};
use super::table::{OwnerEntry, Wakers};
use super::ticket::{Ticket, TicketKind};
use super::wait_graph::WaitGraph;
use crate::sync::Ordering;
use crate::{SlotMode, Target, Wait};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

impl Manager {
    /// Ends one wait of every cycle through `owner`: the youngest extension in it, which can fail and keep what it held
    /// before. The others continue.
    pub(super) fn break_deadlocks_of(&self, owner: Owner) {
        if self.waiting_extensions.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut locked = self.lock(ALL_SHARDS);
        // A cycle consists of waiters only.
        let mut graph = locked.wait_graph(locked.waiting().filter_map(|owner| locked.entry(owner)));
        let mut wakers = Wakers::new();
        while let Some(cycle) = graph.cycle_through(owner) {
            let victim = cycle
                .into_iter()
                .filter_map(|owner| locked.waiting_ticket(owner).cloned())
                .filter(|ticket| ticket.kind == TicketKind::Extend)
                .max_by_key(|ticket| (ticket.since, ticket.owner));
            let Some(victim) = victim else {
                debug_assert!(false, "ordered acquires wait in a cycle");
                break;
            };
            graph.remove(victim.owner);
            if let Some(step) = victim.waits_at() {
                locked.table(step.shard()).leave_queue(step, &victim, &mut wakers);
                wakers.extend(victim.make_victim());
            }
        }
        drop(locked);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A waiter and its position in the queue of a node.
struct QueuePosition<'a> {
    node: Target,
    waiter: &'a Waiter<Arc<Ticket>>,
    /// The owners before it in the queue.
    ahead: Vec<Owner>,
}

/// Queries that need all shards locked.
impl LockedShards<'_> {
    /// Returns the wait of every waiting owner.
    pub(super) fn waits(&self, now: Instant) -> HashMap<Owner, Wait> {
        let graph = self.wait_graph(self.owners());
        let wait = |QueuePosition { node, waiter, .. }: QueuePosition<'_>| {
            let blockers = graph.blockers(waiter.owner);
            let mut blocked_by: Vec<u64> = blockers.iter().map(|owner| owner.0).collect();
            blocked_by.sort_unstable();
            blocked_by.dedup();
            let waited = now.saturating_duration_since(waiter.ticket.since);
            (waiter.owner, Wait { target: node, mode: waiter.mode, waited, blocked_by })
        };
        self.queue_positions().map(wait).collect()
    }

    /// Returns the wait-for graph. An owner waits for those of `holders` that hold its node in a conflicting mode; a
    /// newcomer also waits for all owners ahead of it in the queue.
    fn wait_graph<'a>(&self, holders: impl Iterator<Item = &'a OwnerEntry>) -> WaitGraph {
        let positions: Vec<QueuePosition<'_>> = self.queue_positions().collect();
        let mut held: HashMap<&Target, Vec<(Owner, SlotMode)>> =
            positions.iter().map(|position| (&position.node, Vec::new())).collect();
        for holder in holders {
            for (node, mode) in holder.modes() {
                if let Some(held) = held.get_mut(&node) {
                    held.push((holder.ticket.owner, mode));
                }
            }
        }
        let mut graph = WaitGraph::default();
        for QueuePosition { node, waiter, ahead } in &positions {
            for (holder, mode) in &held[node] {
                if *holder != waiter.owner && !mode.is_compatible_with(waiter.mode) {
                    graph.add(waiter.owner, *holder);
                }
            }
            if waiter.held.is_none() {
                ahead.iter().for_each(|other| graph.add(waiter.owner, *other));
            }
        }
        graph
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = Owner> {
        self.tables.iter().flat_map(|table| table.waiting.iter().copied())
    }

    fn entry(&self, owner: Owner) -> Option<&OwnerEntry> {
        self.tables[owner.shard()].owner(owner)
    }

    fn waiting_ticket(&self, owner: Owner) -> Option<&Arc<Ticket>> {
        self.entry(owner)?.tickets().find(|ticket| ticket.waits_at().is_some())
    }

    fn queue_positions(&self) -> impl Iterator<Item = QueuePosition<'_>> {
        self.waiting().filter_map(|owner| {
            let ticket = self.waiting_ticket(owner)?;
            let step = ticket.waits_at()?;
            let node = self.tables[step.shard()].node(step, &ticket.steps)?;
            let index = node.queue().position(|waiter| waiter.owner == owner)?;
            let ahead = node.queue().take(index).map(|waiter| waiter.owner).collect();
            let waiter = node.queue().nth(index)?;
            Some(QueuePosition { node: ticket.steps.node(step), waiter, ahead })
        })
    }
}
