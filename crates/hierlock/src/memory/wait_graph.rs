//! The wait-for graph. Pure code.

use super::node::Owner;
use std::collections::{HashMap, HashSet};

/// A graph with edges from waiters to their blockers.
#[derive(Debug, Default)]
pub(super) struct WaitGraph {
    edges: HashMap<Owner, Vec<Owner>>,
}

impl WaitGraph {
    pub(super) fn add(&mut self, waiter: Owner, blocker: Owner) {
        self.edges.entry(waiter).or_default().push(blocker);
    }

    pub(super) fn blockers(&self, owner: Owner) -> &[Owner] {
        self.edges.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// Removes the edges of an owner that has stopped waiting.
    pub(super) fn remove(&mut self, waiter: Owner) {
        self.edges.remove(&waiter);
    }

    /// Returns a cycle through `start`, beginning with `start`: each owner waits for the next, and the last for `start`.
    pub(super) fn cycle_through(&self, start: Owner) -> Option<Vec<Owner>> {
        let mut seen = HashSet::from([start]);
        // A depth-first search: the current path, and the untried blockers of each owner on it.
        let mut path = vec![start];
        let mut untried = vec![self.blockers(start).iter()];
        while let Some(next) = untried.last_mut() {
            match next.next() {
                Some(&owner) if owner == start => return Some(path),
                Some(&owner) if seen.insert(owner) => {
                    path.push(owner);
                    untried.push(self.blockers(owner).iter());
                }
                Some(_) => {}
                None => {
                    path.pop();
                    untried.pop();
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `12 23 31`: 1 waits for 2, and so on.
    fn graph(edges: &str) -> WaitGraph {
        let mut graph = WaitGraph::default();
        for edge in edges.split_whitespace() {
            let ends: Vec<u64> = edge.bytes().map(|b| u64::from(b - b'0')).collect();
            graph.add(Owner(ends[0]), Owner(ends[1]));
        }
        graph
    }

    #[test]
    fn a_cycle_through_the_owner_is_found() {
        for (edges, cycle) in [
            ("", None),
            ("12 23 34", None),
            ("12 21", Some(vec![1, 2])),
            ("12 23 31", Some(vec![1, 2, 3])),
            // A cycle that does not contain the owner does not count.
            ("12 23 32", None),
            // The search backtracks from dead ends.
            ("12 13 24 34 35 51", Some(vec![1, 3, 5])),
            ("12 14 25 35 43 54", None),
        ] {
            let found = graph(edges).cycle_through(Owner(1));
            assert_eq!(found, cycle.map(|c| c.into_iter().map(Owner).collect()), "{edges}");
        }
    }

    #[test]
    fn a_removed_waiter_has_no_blockers() {
        let mut graph = graph("12 21");
        graph.remove(Owner(2));
        assert_eq!(graph.cycle_through(Owner(1)), None);
        assert!(graph.blockers(Owner(2)).is_empty());
    }

    #[test]
    fn a_long_chain_does_not_overflow_the_stack() {
        let mut graph = WaitGraph::default();
        for i in 0..200_000 {
            graph.add(Owner(i), Owner((i + 1) % 200_000));
        }
        assert_eq!(graph.cycle_through(Owner(7)).unwrap().len(), 200_000);
    }
}
