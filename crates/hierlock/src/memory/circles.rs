//! Who waits for whom, read off the tables while all shards are locked; and how circles are broken.

use super::graph::WaitGraph;
use super::manager::{ALL_SHARDS, Locked, Manager, wake};
use super::node::{Owner, Waiter};
use super::pending::{Pending, State};
use super::table::{Hold, Wakers};
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
    let mut graph = wait_graph(manager, &locked, Only::Waiters);
    let mut wakers = Wakers::new();
    while let Some(circle) = graph.cycle_through(owner) {
        let youngest_extension = circle
            .into_iter()
            .filter_map(|owner| {
                let place = locked.place(owner).filter(|place| !place.pending.ordered)?;
                Some((place.waiter.since, owner, place.pending.clone()))
            })
            .max_by_key(|(since, owner, _)| (*since, *owner));
        let Some((_, victim, pending)) = youngest_extension else {
            debug_assert!(false, "ordered acquires wait in a circle");
            break;
        };
        graph.remove(victim);
        if let Some(step) = pending.waits_at() {
            let table = locked.table(step.shard());
            table.leave_queue(victim, step, &pending.moves.claims, &mut wakers);
            wakers.extend(pending.choose());
        }
    }
    drop(locked);
    wake(wakers);
}

/// What everyone who waits is waiting for.
pub(super) fn waits(manager: &Manager, locked: &Locked<'_>, now: Instant) -> HashMap<Owner, Wait> {
    let graph = wait_graph(manager, locked, Only::Everyone);
    let wait = |owner: Owner| {
        let place = locked.place(owner)?;
        let mut blocked_by: Vec<u64> = graph.blockers(owner).iter().map(|other| other.0).collect();
        blocked_by.sort_unstable();
        blocked_by.dedup();
        let wait = Wait {
            target: place.node(),
            mode: place.waiter.mode,
            waited: now.saturating_duration_since(place.waiter.since),
            blocked_by,
        };
        Some((owner, wait))
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
fn wait_graph(manager: &Manager, locked: &Locked<'_>, only: Only) -> WaitGraph {
    let places: Vec<(Owner, Place<'_>)> =
        locked.waiters().filter_map(|owner| Some((owner, locked.place(owner)?))).collect();
    let mut holders: HashMap<Target, Vec<(Owner, SlotMode)>> =
        places.iter().map(|(_, place)| (place.node(), Vec::new())).collect();
    let mut note = |hold: &Hold| {
        for (node, mode) in manager.modes_of(hold) {
            if let Some(holders) = holders.get_mut(&node) {
                holders.push((hold.owner, mode));
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
    for (owner, place) in places {
        for (holder, mode) in &holders[&place.node()] {
            if *holder != owner && !mode.is_compatible_with(place.waiter.mode) {
                graph.add(owner, *holder);
            }
        }
        if place.waiter.held.is_none() {
            place.ahead.iter().for_each(|other| graph.add(owner, *other));
        }
    }
    graph
}

/// Where someone waits.
struct Place<'a> {
    pending: &'a Arc<Pending>,
    waiter: &'a Waiter<Arc<Pending>>,
    /// Those before it in the queue.
    ahead: Vec<Owner>,
}

impl Place<'_> {
    fn node(&self) -> Target {
        let moves = &self.pending.moves;
        moves.list[self.pending.taken()].node(&moves.claims)
    }
}

/// What can be asked while all shards are locked.
impl Locked<'_> {
    fn waiters(&self) -> impl Iterator<Item = Owner> {
        self.tables.iter().flat_map(|table| table.waiting())
    }

    fn hold_of(&self, owner: Owner) -> Option<&Hold> {
        self.tables[owner.home()].hold(owner)
    }

    fn place(&self, owner: Owner) -> Option<Place<'_>> {
        let pending = self.hold_of(owner)?.pending.as_ref()?;
        debug_assert_eq!(pending.state(), State::Waiting, "whoever is listed waits");
        let step = pending.waits_at()?;
        let mut ahead = Vec::new();
        for waiter in self.tables[step.shard()].queue(step, &pending.moves) {
            if waiter.owner == owner {
                return Some(Place { pending, waiter, ahead });
            }
            ahead.push(waiter.owner);
        }
        None
    }
}
