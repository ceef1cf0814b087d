//! The sessions of a snapshot that are shown, and their order.

use hierlock::sql::lock_report::{LockSnapshot, PathFilter, SessionLocks};
use hierlock_engine::introspection::{TreeRow, WaitTree};
use std::collections::BTreeSet;

/// The part of a snapshot that is shown.
pub(crate) struct SnapshotView<'a> {
    pub(crate) snapshot: &'a LockSnapshot,
    pub(crate) filter: Option<&'a PathFilter>,
    /// The trees of waits, with the rows that are shown.
    pub(crate) trees: Vec<(&'a WaitTree, Vec<&'a TreeRow>)>,
    /// The sessions with locks that no session waits for.
    pub(crate) holders: Vec<&'a SessionLocks>,
    /// The sessions like `holders` that are not shown.
    pub(crate) hidden_holders: Vec<&'a SessionLocks>,
}

impl<'a> SnapshotView<'a> {
    pub(crate) fn new(
        snapshot: &'a LockSnapshot,
        filter: Option<&'a PathFilter>,
        all: bool,
    ) -> Self {
        let chosen = filter.map(|filter| filter.sessions(snapshot));
        let is_chosen = |pid: i64| chosen.as_ref().is_none_or(|chosen| chosen.contains(&pid));
        let tree = |tree: &'a WaitTree| {
            let rows: Vec<&TreeRow> =
                tree.rows.iter().filter(|row| is_chosen(row.session)).collect();
            (!rows.is_empty()).then_some((tree, rows))
        };
        let trees: Vec<_> = snapshot.trees.iter().filter_map(tree).collect();
        let in_trees: BTreeSet<i64> =
            snapshot.trees.iter().flat_map(|tree| &tree.rows).map(|row| row.session).collect();
        let others = snapshot.sessions.iter().filter(|it| !in_trees.contains(&it.info.pid));
        let (holders, hidden_holders) = others.partition(|session| match filter {
            Some(_) => is_chosen(session.info.pid),
            None => all || session.is_hierlock(),
        });
        Self { snapshot, filter, trees, holders, hidden_holders }
    }

    /// Returns all sessions that are shown, in the order of the text.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = i64> {
        let in_trees = self.trees.iter().flat_map(|(_, rows)| rows).map(|row| row.session);
        in_trees.chain(self.holders.iter().map(|session| session.info.pid))
    }
}
