//! The sessions of a snapshot that are related to a node.

use super::{LockSlot, LockSnapshot, ReportedLock, SessionLocks};
use crate::Target;
use std::collections::BTreeSet;

/// The relation of a lock to the node of a [`PathFilter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathRelation {
    /// The lock is on the node, on an ancestor or on a descendant.
    Node,
    /// The lock is on another node in the same bucket.
    OtherPathInBucket,
    /// The lock is on the slot of the node, and its path is unknown.
    SameSlot,
}

/// The slots of a node and its ancestors.
#[derive(Clone, Debug)]
pub struct PathFilter {
    node: Target,
    /// The slots with their levels.
    slots: Vec<(usize, LockSlot)>,
}

impl PathFilter {
    /// Makes a filter for a node. `slots` are the slots of the node and its ancestors, with their levels.
    pub fn new(node: Target, slots: Vec<(usize, LockSlot)>) -> Self {
        Self { node, slots }
    }

    /// Returns the node that maps to a slot: the filter's node or one of its ancestors.
    pub fn node_in(&self, slot: &LockSlot) -> Option<Target> {
        let (level, _) = self.slots.iter().find(|(_, known)| known == slot)?;
        Some(self.node.ancestor(*level))
    }

    /// Returns the relation of a lock to the node, or `None` if they are unrelated.
    pub fn relation(&self, lock: &ReportedLock) -> Option<PathRelation> {
        let node = &self.node;
        if lock.nodes.iter().any(|locked| node.contains(locked)) {
            return Some(PathRelation::Node);
        }
        let slot = lock.slot.as_ref()?;
        let in_slot = self.node_in(slot)?;
        // Every lock below an ancestor shares it, which does not relate it to the node.
        if in_slot != *node && lock.is_shared() {
            return None;
        }
        Some(match &lock.nodes[..] {
            [] => PathRelation::SameSlot,
            nodes if nodes.iter().any(|locked| locked.contains(node)) => PathRelation::Node,
            _ => PathRelation::OtherPathInBucket,
        })
    }

    /// Returns whether a session holds or waits for the node, an ancestor or a descendant, by its locks or by its label.
    pub fn has(&self, session: &SessionLocks) -> bool {
        let is_related = |path: &Target| self.node.contains(path) || path.contains(&self.node);
        session.locks().any(|lock| self.relation(lock).is_some())
            || session.unconfirmed_paths().any(is_related)
    }

    /// Returns the process ids of the sessions that are related to the node, and of their blockers.
    pub fn sessions(&self, snapshot: &LockSnapshot) -> BTreeSet<i64> {
        let has = |session: &&SessionLocks| self.has(session);
        let mut found: BTreeSet<i64> = BTreeSet::new();
        let mut queue: Vec<i64> =
            snapshot.sessions.iter().filter(has).map(|session| session.info.pid).collect();
        while let Some(pid) = queue.pop() {
            if found.insert(pid) {
                let wait = snapshot.session(pid).and_then(|session| session.wait.as_ref());
                queue.extend(wait.into_iter().flat_map(|wait| &wait.blockers));
            }
        }
        found
    }
}
