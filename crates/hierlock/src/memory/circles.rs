//! Who waits for whom, read off the tables while all shards are locked; and how circles are broken.

use super::graph::WaitGraph;
use super::manager::{ALL_SHARDS, Locked, Manager, modes_of, wake};
use super::node::{Owner, Waiter};
use super::table::{Hold, Wakers};
use super::ticket::{Kind, Ticket};
use crate::mode::SlotMode;
use crate::snapshot::Wait;
use crate::sync::Ordering;
use crate::target::Target;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Ends one wait of every circle that goes through `owner`: the youngest extension in it, for that
/// can fail and keep what it had. The others go on.
pub(super) fn break_those_through(manager: &Manager, owner: Owner) {
    if manager.unordered.load(Ordering::SeqCst) == 0 {
        return;
    }
    let mut locked = manager.lock(ALL_SHARDS);
    let mut graph = wait_graph(&locked, Only::Waiters);
    let mut wakers = Wakers::new();
    while let Some(circle) = graph.cycle_through(owner) {
        let victim = circle
            .into_iter()
            .filter_map(|owner| locked.waiting_ticket(owner).cloned())
            .filter(|ticket| ticket.kind == Kind::Extend)
            .max_by_key(|ticket| (ticket.since, ticket.owner));
        let Some(victim) = victim else {
            debug_assert!(false, "ordered acquires wait in a circle");
            break;
        };
        graph.remove(victim.owner);
        if let Some(step) = victim.waits_at() {
            locked.table(step.shard()).leave_queue(step, &victim, &mut wakers);
            wakers.extend(victim.choose());
        }
    }
    drop(locked);
    wake(wakers);
}

/// What everyone who waits is waiting for.
pub(super) fn waits(locked: &Locked<'_>, now: Instant) -> HashMap<Owner, Wait> {
    let graph = wait_graph(locked, Only::Everyone);
    let wait = |owner: Owner| {
        let place = locked.place(owner)?;
        let mut blocked_by: Vec<u64> = graph.blockers(owner).iter().map(|other| other.0).collect();
        blocked_by.sort_unstable();
        blocked_by.dedup();
        let waited = now.saturating_duration_since(place.waiter.tell.since);
        Some((owner, Wait { target: place.node, mode: place.waiter.mode, waited, blocked_by }))
    };
    locked.waiters().filter_map(wait).collect()
}

/// Whose holds go into a wait-for graph: a circle consists of waiters only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Waiters,
    Everyone,
}

/// An owner waits for those who hold its node in a mode that conflicts; a newcomer also waits for
/// everyone ahead of it in the queue.
fn wait_graph(locked: &Locked<'_>, only: Only) -> WaitGraph {
    let places: Vec<Place<'_>> = locked.waiters().filter_map(|owner| locked.place(owner)).collect();
    let mut holders: HashMap<&Target, Vec<(Owner, SlotMode)>> =
        places.iter().map(|place| (&place.node, Vec::new())).collect();
    let mut note = |hold: &Hold| {
        for (node, mode) in modes_of(hold) {
            if let Some(holders) = holders.get_mut(&node) {
                holders.push((hold.ticket.owner, mode));
            }
        }
    };
    match only {
        Only::Waiters => locked.waiters().filter_map(|o| locked.hold_of(o)).for_each(&mut note),
        Only::Everyone => {
            locked.tables.iter().flat_map(|table| table.holds()).for_each(&mut note);
        }
    }
    let mut graph = WaitGraph::default();
    for Place { node, waiter, ahead } in &places {
        for (holder, mode) in &holders[node] {
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

/// Where someone waits.
struct Place<'a> {
    node: Target,
    waiter: &'a Waiter<Arc<Ticket>>,
    /// Those before it in the queue.
    ahead: Vec<Owner>,
}

/// What can be asked while all shards are locked.
impl Locked<'_> {
    fn waiters(&self) -> impl Iterator<Item = Owner> {
        self.tables.iter().flat_map(|table| table.waiting())
    }

    fn hold_of(&self, owner: Owner) -> Option<&Hold> {
        self.tables[owner.home()].hold(owner)
    }

    fn waiting_ticket(&self, owner: Owner) -> Option<&Arc<Ticket>> {
        self.hold_of(owner)?.tickets().find(|ticket| ticket.waits_at().is_some())
    }

    fn place(&self, owner: Owner) -> Option<Place<'_>> {
        let ticket = self.waiting_ticket(owner)?;
        let step = ticket.waits_at()?;
        let mut ahead = Vec::new();
        for waiter in self.tables[step.shard()].queue(step, &ticket.moves) {
            if waiter.owner == owner {
                return Some(Place { node: ticket.moves.node(step), waiter, ahead });
            }
            ahead.push(waiter.owner);
        }
        None
    }
}
