//! Waits as they are found: a server tells them blocker by blocker.

use super::{IntrospectionScope, LockTarget, LockWait};
use std::collections::{BTreeMap, BTreeSet};

/// Waits as they are found.
#[derive(Debug, Default)]
pub(super) struct WaitList {
    found: BTreeMap<i64, (BTreeSet<i64>, Option<LockTarget>)>,
}

impl WaitList {
    /// Somebody waits, for whom is not known (yet).
    pub(super) fn add(&mut self, waiter: i64, wanted: LockTarget) {
        let (_, known) = self.found.entry(waiter).or_default();
        known.get_or_insert(wanted);
    }

    pub(super) fn blocked_by(&mut self, waiter: i64, blocker: i64) {
        // A session may hold up itself (a lock of its own that it wants stronger), but not wait for it.
        if blocker != waiter {
            self.found.entry(waiter).or_default().0.insert(blocker);
        }
    }

    pub(super) fn has(&self, waiter: i64) -> bool {
        self.found.contains_key(&waiter)
    }

    /// Returns those of the sessions that are asked about, ascending.
    pub(super) fn in_scope(self, scope: &IntrospectionScope) -> Vec<LockWait> {
        let waits = self.found.into_iter().filter(|(waiter, _)| scope.has(*waiter));
        let wait = |(waiter, (blockers, wanted))| LockWait {
            waiter,
            blockers: BTreeSet::into_iter(blockers).collect(),
            wanted,
        };
        waits.map(wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::introspection::LockKind;

    #[test]
    fn blockers_are_gathered_and_nobody_waits_for_itself() {
        let target = |object: &str| LockTarget::new(LockKind::Table, object, "X");
        let mut waits = WaitList::default();
        waits.add(7, target("first"));
        waits.add(7, target("second"));
        for blocker in [9, 8, 100, 7, 8] {
            waits.blocked_by(7, blocker);
        }
        waits.blocked_by(100, 7);
        let waits = waits.in_scope(&IntrospectionScope::of_sessions([7, 8]));
        let wanted = Some(target("first"));
        assert_eq!(waits, [LockWait { waiter: 7, blockers: vec![8, 9, 100], wanted }]);
    }
}
