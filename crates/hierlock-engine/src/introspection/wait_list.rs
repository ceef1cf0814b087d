//! Collects lock waits, which servers report blocker by blocker.

use super::{IntrospectionScope, LockTarget, LockWait};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct WaitList(BTreeMap<i64, (LockTarget, BTreeSet<i64>)>);

impl WaitList {
    /// Adds blockers of a session. The first reported target of a session is kept.
    pub(super) fn add(
        &mut self,
        waiter: i64,
        wanted: LockTarget,
        blockers: impl IntoIterator<Item = i64>,
    ) {
        let (_, all) = self.0.entry(waiter).or_insert_with(|| (wanted, BTreeSet::new()));
        // A session's own lock may conflict with its request for a stronger one, but it is not a blocker.
        all.extend(blockers.into_iter().filter(|blocker| *blocker != waiter));
    }

    pub(super) fn has(&self, waiter: i64) -> bool {
        self.0.contains_key(&waiter)
    }

    /// Returns the waits of the sessions in the scope, ascending.
    pub(super) fn in_scope(self, scope: &IntrospectionScope) -> Vec<LockWait> {
        let waits = self.0.into_iter().filter(|(waiter, _)| scope.has(*waiter));
        let wait = |(waiter, (wanted, blockers)): (i64, (LockTarget, BTreeSet<i64>))| LockWait {
            waiter,
            blockers: blockers.into_iter().collect(),
            wanted: Some(wanted),
        };
        waits.map(wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::introspection::LockKind;

    #[test]
    fn blockers_are_merged_without_the_waiter_itself() {
        let target = |object: &str| LockTarget::new(LockKind::Table, object, "X");
        let mut waits = WaitList::default();
        waits.add(7, target("first"), []);
        waits.add(7, target("second"), [9, 8, 100, 7, 8]);
        waits.add(100, target("third"), [7]);
        let waits = waits.in_scope(&IntrospectionScope::of_sessions([7, 8]));
        let wanted = Some(target("first"));
        assert_eq!(waits, [LockWait { waiter: 7, blockers: vec![8, 9, 100], wanted }]);
    }
}
