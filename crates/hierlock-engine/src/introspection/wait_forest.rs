//! Lock waits as trees. The root of each is a blocker that waits for no other session. Pure.
//!
//! A tree is a flat list in print order, so a chain of a thousand sessions needs no recursion.

use super::LockWait;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A root blocker or a cycle, with all sessions that wait behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitTree {
    /// The kind of root.
    pub root: TreeRoot,
    /// The sessions, each before those that wait behind it. Roots have depth 0.
    pub rows: Vec<TreeRow>,
}

/// The kind of root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeRoot {
    /// A session that does not wait.
    Blocker,
    /// Sessions that wait for each other. They are the rows at depth 0: each waits for the next, the last for the
    /// first.
    Cycle,
    /// A waiting session whose blockers the server does not report.
    Unknown,
}

impl TreeRoot {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            TreeRoot::Blocker => "blocker",
            TreeRoot::Cycle => "cycle",
            TreeRoot::Unknown => "unknown",
        }
    }
}

/// A session of a tree. Each session is in one tree, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// The process id; 0 for a prepared transaction of PostgreSQL.
    pub session: i64,
    /// The distance to the root; 0 for the root.
    pub depth: usize,
    /// The blocker below which it is listed; in a cycle the next session. None for a root blocker.
    pub parent: Option<i64>,
    /// The other blockers, ascending.
    pub other_blockers: Vec<i64>,
}

impl WaitTree {
    /// Returns the number of waiting sessions in the tree.
    pub fn waiting(&self) -> usize {
        let roots = self.rows.iter().filter(|row| row.depth == 0).count();
        match self.root {
            TreeRoot::Blocker => self.rows.len() - roots,
            TreeRoot::Cycle | TreeRoot::Unknown => self.rows.len(),
        }
    }
}

/// Returns the trees of these waits, the largest first. A session with several blockers is listed below the one that is
/// nearest to a root.
pub fn wait_trees(waits: &[LockWait]) -> Vec<WaitTree> {
    let mut forest = Forest::new(waits);
    let is_root = |pid: &i64| forest.blockers.get(pid).is_none_or(|blockers| blockers.is_empty());
    let sessions: BTreeSet<&i64> = forest.blockers.keys().chain(forest.waiters.keys()).collect();
    let roots: Vec<i64> = sessions.into_iter().copied().filter(is_root).collect();
    forest.add_trees(&roots.iter().map(|root| (*root, None)).collect::<Vec<_>>());
    let mut trees: Vec<WaitTree> = Vec::new();
    for root in roots {
        let has_unknown_blocker = forest.blockers.contains_key(&root);
        let kind = if has_unknown_blocker { TreeRoot::Unknown } else { TreeRoot::Blocker };
        trees.push(forest.tree(kind, &[root]));
    }
    while let Some(cycle) = forest.next_cycle() {
        let next = |index: usize| Some(cycle[(index + 1) % cycle.len()]);
        let members: Vec<_> =
            cycle.iter().enumerate().map(|(index, pid)| (*pid, next(index))).collect();
        forest.add_trees(&members);
        trees.push(forest.tree(TreeRoot::Cycle, &cycle));
    }
    trees.sort_by_key(|tree| std::cmp::Reverse(tree.rows.len()));
    trees
}

#[derive(Debug, Default)]
struct Forest {
    /// The blockers of each waiting session.
    blockers: BTreeMap<i64, BTreeSet<i64>>,
    waiters: BTreeMap<i64, BTreeSet<i64>>,
    /// The parent of each session that is in a tree already.
    parents: BTreeMap<i64, Option<i64>>,
    /// The sessions below each session.
    children: BTreeMap<i64, Vec<i64>>,
}

impl Forest {
    fn new(waits: &[LockWait]) -> Self {
        let mut forest = Self::default();
        for wait in waits {
            let blockers = forest.blockers.entry(wait.waiter).or_default();
            for blocker in wait.blockers.iter().filter(|blocker| **blocker != wait.waiter) {
                blockers.insert(*blocker);
                forest.waiters.entry(*blocker).or_default().insert(wait.waiter);
            }
        }
        forest
    }

    /// Adds these roots to the forest, and breadth first all sessions that wait behind them.
    fn add_trees(&mut self, roots: &[(i64, Option<i64>)]) {
        self.parents.extend(roots.iter().copied());
        let mut queue: VecDeque<i64> = roots.iter().map(|(root, _)| *root).collect();
        while let Some(blocker) = queue.pop_front() {
            for waiter in self.waiters.get(&blocker).into_iter().flatten() {
                if !self.parents.contains_key(waiter) {
                    self.parents.insert(*waiter, Some(blocker));
                    self.children.entry(blocker).or_default().push(*waiter);
                    queue.push_back(*waiter);
                }
            }
        }
    }

    /// Returns a cycle of sessions that are in no tree yet, each waiting for the next. Such a session waits only for
    /// others like it, so following the blockers ends in a cycle.
    fn next_cycle(&self) -> Option<Vec<i64>> {
        let first = self.blockers.keys().find(|pid| !self.parents.contains_key(pid))?;
        cycle_from(*first, |pid| self.blockers.get(&pid)?.first().copied())
    }

    fn tree(&self, root: TreeRoot, roots: &[i64]) -> WaitTree {
        let mut rows = Vec::new();
        let mut stack: Vec<(i64, usize)> = roots.iter().rev().map(|pid| (*pid, 0)).collect();
        while let Some((session, depth)) = stack.pop() {
            let parent = self.parents.get(&session).copied().flatten();
            let blockers = self.blockers.get(&session).into_iter().flatten().copied();
            let other_blockers = blockers.filter(|blocker| Some(*blocker) != parent).collect();
            rows.push(TreeRow { session, depth, parent, other_blockers });
            let children = self.children.get(&session).into_iter().flatten().rev();
            stack.extend(children.map(|child| (*child, depth + 1)));
        }
        WaitTree { root, rows }
    }
}

/// Follows `next` from `first` into a cycle, and returns it from its smallest member on. None if there is an end.
pub(super) fn cycle_from<T: Copy + Ord>(first: T, next: impl Fn(T) -> Option<T>) -> Option<Vec<T>> {
    let mut path = vec![first];
    loop {
        let member = next(*path.last()?)?;
        if let Some(begin) = path.iter().position(|earlier| *earlier == member) {
            let mut cycle = path.split_off(begin);
            let smallest = cycle.iter().enumerate().min_by_key(|(_, member)| **member)?.0;
            cycle.rotate_left(smallest);
            return Some(cycle);
        }
        path.push(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waits(edges: &[(i64, &[i64])]) -> Vec<LockWait> {
        let wait = |(waiter, blockers): &(i64, &[i64])| LockWait {
            waiter: *waiter,
            blockers: blockers.to_vec(),
            wanted: None,
        };
        edges.iter().map(wait).collect()
    }

    /// Formats a tree: in `blocker 1 -2 --3 -4+3`, 2 and 4 wait behind 1, 3 behind 2, and 4 also behind 3.
    fn text(tree: &WaitTree) -> String {
        let row = |row: &TreeRow| {
            let others: String = row.other_blockers.iter().map(|pid| format!("+{pid}")).collect();
            format!("{}{}{others}", "-".repeat(row.depth), row.session)
        };
        let rows: Vec<String> = tree.rows.iter().map(row).collect();
        format!("{} {}", tree.root.name(), rows.join(" "))
    }

    #[test]
    fn waits_are_grouped_by_root_blocker() {
        for (case, edges, expected) in [
            ("nobody waits", &[][..], &[][..]),
            ("chain", &[(2, &[1][..]), (3, &[2]), (4, &[3])], &["blocker 1 -2 --3 ---4"]),
            ("star", &[(2, &[1]), (3, &[1]), (4, &[1])], &["blocker 1 -2 -3 -4"]),
            (
                "queue: earlier waiters are blockers too",
                &[(2, &[1]), (3, &[1, 2]), (4, &[1, 2, 3])],
                &["blocker 1 -2 -3+2 -4+2+3"],
            ),
            (
                "several root blockers",
                &[(3, &[1, 2]), (4, &[2])],
                &["blocker 1 -3+2", "blocker 2 -4"],
            ),
            ("cycle", &[(1, &[2]), (2, &[1])], &["cycle 1 2"]),
            (
                "behind a cycle",
                &[(7, &[5]), (5, &[6]), (6, &[5]), (8, &[7])],
                &["cycle 5 -7 --8 6"],
            ),
            (
                "a cycle with another blocker is not a root",
                &[(2, &[1, 3]), (3, &[2])],
                &["blocker 1 -2+3 --3"],
            ),
            ("blocker unknown", &[(2, &[]), (3, &[2])], &["unknown 2 -3"]),
            ("prepared transaction", &[(5, &[0]), (6, &[0, 5])], &["blocker 0 -5 -6+5"]),
            ("a session does not wait for itself", &[(2, &[2, 1])], &["blocker 1 -2"]),
            (
                "greatest tree first",
                &[(2, &[1]), (11, &[10]), (12, &[10])],
                &["blocker 10 -11 -12", "blocker 1 -2"],
            ),
        ] {
            let trees: Vec<String> = wait_trees(&waits(edges)).iter().map(text).collect();
            assert_eq!(trees, expected, "{case}");
        }
    }

    #[test]
    fn the_parent_in_a_cycle_is_the_next_member() {
        let trees = wait_trees(&waits(&[(3, &[1]), (1, &[2]), (2, &[3])]));
        let parents: Vec<_> = trees[0].rows.iter().map(|row| (row.session, row.parent)).collect();
        assert_eq!(parents, [(1, Some(2)), (2, Some(3)), (3, Some(1))]);
        assert_eq!(trees[0].waiting(), 3);
    }

    proptest! {
        /// For any waits: every session is listed once, below one of its blockers.
        #[test]
        fn every_session_is_listed_once(
            edges in prop::collection::vec((1..12i64, prop::collection::vec(0..12i64, 0..4)), 0..20)
        ) {
            let edges: Vec<(i64, &[i64])> = edges.iter().map(|(w, b)| (*w, &b[..])).collect();
            let waits = waits(&edges);
            let rows: Vec<TreeRow> =
                wait_trees(&waits).into_iter().flat_map(|tree| tree.rows).collect();
            let mut listed: Vec<i64> = rows.iter().map(|row| row.session).collect();
            listed.sort_unstable();
            let expected: BTreeSet<i64> = waits
                .iter()
                .flat_map(|wait| wait.blockers.iter().copied().chain([wait.waiter]))
                .collect();
            prop_assert_eq!(listed, Vec::from_iter(expected));
            for row in rows {
                if let Some(parent) = row.parent {
                    let is_wait = |wait: &LockWait| {
                        wait.waiter == row.session && wait.blockers.contains(&parent)
                    };
                    prop_assert!(waits.iter().any(is_wait));
                }
            }
        }
    }
}
