//! What must be true of all tables together, checked after every change in this crate's own tests.

use super::manager::{ALL_SHARDS, Manager, modes_of};
use super::node::Owner;
use super::ticket::State;
use crate::mode::SlotMode;
use crate::target::Target;
use std::collections::{BTreeMap, BTreeSet};

impl Manager {
    /// 1. Each node is held just as the tickets say, and there is no other node.
    /// 2. Whoever waits stands in the queue of the node its ticket names, once, and is listed.
    /// 3. No two owners hold a node in modes that conflict.
    pub(super) fn verify(&self) {
        let locked = self.lock(ALL_SHARDS);
        let mut held: BTreeMap<Target, Vec<(Owner, SlotMode)>> = BTreeMap::new();
        let mut waits: BTreeSet<(Target, Owner)> = BTreeSet::new();
        for hold in locked.tables.iter().flat_map(|table| table.holds()) {
            for (node, mode) in modes_of(hold) {
                held.entry(node).or_default().push((hold.ticket.owner, mode));
            }
            for ticket in hold.tickets() {
                if let Some(step) = ticket.waits_at() {
                    assert!(waits.insert((ticket.moves.node(step), ticket.owner)));
                }
                assert!(ticket.taken() <= ticket.moves.list.len());
            }
        }
        let mut nodes = 0;
        for table in &locked.tables {
            for (node, counts, queue) in table.nodes() {
                nodes += 1;
                let holders = held.get(&node).map_or(&[][..], Vec::as_slice);
                for mode in SlotMode::ALL {
                    let expected = holders.iter().filter(|(_, held)| *held == mode).count();
                    assert_eq!(counts(mode), expected, "{node} {mode}: {holders:?}");
                }
                for (i, (a, held)) in holders.iter().enumerate() {
                    for (b, other) in &holders[i + 1..] {
                        assert!(held.is_compatible_with(*other), "{node}: {a:?} {b:?}");
                    }
                }
                for waiter in queue {
                    assert_eq!(waiter.tell.state_now(), State::Waiting);
                    assert!(waits.contains(&(node.clone(), waiter.owner)), "{node} {waiter:?}");
                }
            }
        }
        assert_eq!(nodes, held.len(), "a node that nobody holds, or a hold without its node");
        let listed: BTreeSet<Owner> =
            locked.tables.iter().flat_map(|table| table.waiting()).collect();
        assert_eq!(listed, waits.into_iter().map(|(_, owner)| owner).collect());
    }
}
