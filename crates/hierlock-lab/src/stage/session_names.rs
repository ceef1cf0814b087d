//! From the server's numbers of sessions to the names of a case.

use super::LockList;
use crate::observation::{Lock, LockKind, LockedObject, Name, Wait};
use crate::record::{BlockingLock, Link};
use hierlock_engine::introspection::{
    self, DeadlockReport, IntrospectionScope, LockTarget, LockWait,
};
use std::collections::{BTreeMap, BTreeSet};

/// The sessions of a case, by the server's number, and what else is needed to name what the server says.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionNames {
    names: BTreeMap<i64, Name>,
    /// The database or schema of the case: its tables are named without it.
    home: String,
    /// The transactions that sessions have prepared, as they are called in SQL, with their numbers.
    pub(super) prepared: Vec<(String, i64)>,
}

impl SessionNames {
    pub(super) fn new(home: &str) -> Self {
        Self { names: BTreeMap::new(), home: home.to_owned(), prepared: Vec::new() }
    }

    pub(super) fn add(&mut self, pid: i64, name: Name) {
        self.names.insert(pid, name);
    }

    #[cfg(test)]
    pub(super) fn remove(&mut self, pid: i64) {
        self.names.remove(&pid);
    }

    /// The number of a session.
    pub(super) fn pid(&self, name: &Name) -> Option<i64> {
        self.names.iter().find(|(_, known)| *known == name).map(|(pid, _)| *pid)
    }

    /// What the server is asked for.
    pub(super) fn scope(&self) -> IntrospectionScope {
        IntrospectionScope {
            sessions: Some(self.names.keys().copied().collect()),
            schema: Some(self.home.clone()),
            row_locks_schema: None,
            prepared: self.prepared.clone(),
        }
    }

    /// The waits of the case, in the order of names.
    pub(super) fn waits(&self, waits: Vec<LockWait>) -> Vec<Wait> {
        let mut waits: Vec<Wait> = waits.into_iter().filter_map(|wait| self.wait(wait)).collect();
        waits.sort_by(|a, b| a.waiter.cmp(&b.waiter));
        waits
    }

    fn wait(&self, wait: LockWait) -> Option<Wait> {
        let waiter = self.names.get(&wait.waiter)?.clone();
        let name = |pid: &i64| self.names.get(pid);
        let blockers: BTreeSet<Name> = wait.blockers.iter().filter_map(name).cloned().collect();
        let strangers = wait.blockers.iter().any(|pid| name(pid).is_none());
        let thing = wait.wanted.map(|target| self.thing(target));
        Some(Wait { waiter, blockers: blockers.into_iter().collect(), strangers, thing })
    }

    /// The locks of the case, in the order of names.
    pub(super) fn locks(&self, list: introspection::LockList) -> LockList {
        let lock = |lock: introspection::SessionLock| {
            let session = self.names.get(&lock.session)?.clone();
            Some(Lock { session, thing: self.thing(lock.target), granted: lock.granted })
        };
        let mut locks: Vec<Lock> = list.locks.into_iter().filter_map(lock).collect();
        locks.sort();
        locks.dedup();
        let mut incomplete = BTreeMap::new();
        for it in list.incomplete {
            let is_meant = |pid: &i64| it.session.is_none_or(|session| session == *pid);
            let names = self.names.iter().filter(|(pid, _)| is_meant(pid));
            incomplete.extend(names.map(|(_, name)| (name.clone(), it.reason.clone())));
        }
        LockList { locks, incomplete }
    }

    /// The circle of a deadlock, if all who were in it are of the case.
    pub(super) fn circle(&self, report: &DeadlockReport) -> Option<Vec<Link>> {
        let name = |pid: i64| self.names.get(&pid).cloned();
        let link = |wait: &introspection::DeadlockWait| {
            let wants = wait.wanted.clone().map(|target| self.thing(target));
            let mut link = Link::new(name(wait.waiter)?, name(wait.holder)?, wants);
            let blocking = wait.blocking.iter().cloned();
            let lock = |lock: introspection::SessionLock| {
                BlockingLock::new(self.thing(lock.target), lock.granted)
            };
            link.blocking = blocking.map(lock).collect();
            Some(link)
        };
        report.waits.iter().map(link).collect()
    }

    /// What is locked; a table of the case's own database without the name of that.
    fn thing(&self, target: LockTarget) -> LockedObject {
        let LockTarget { kind, schema, object, index, record, mode } = target;
        let object = match schema {
            Some(schema) if schema != self.home => format!("{schema}.{object}"),
            _ => object,
        };
        LockedObject { kind: kind.into(), object, index, record, mode }
    }
}

impl From<introspection::LockKind> for LockKind {
    fn from(kind: introspection::LockKind) -> Self {
        match kind {
            introspection::LockKind::Row => LockKind::Row,
            introspection::LockKind::Gap => LockKind::Gap,
            introspection::LockKind::Table => LockKind::Table,
            introspection::LockKind::Metadata => LockKind::Metadata,
            introspection::LockKind::Advisory => LockKind::Advisory,
            introspection::LockKind::Transaction => LockKind::Transaction,
            introspection::LockKind::Other => LockKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use introspection::{DeadlockWait, IncompleteLocks, SessionLock};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn names() -> SessionNames {
        let mut names = SessionNames::new("lab");
        for (pid, text) in [(7, "B"), (8, "A"), (9, "C")] {
            names.add(pid, name(text));
        }
        names
    }

    fn table(schema: &str) -> LockTarget {
        LockTarget {
            kind: introspection::LockKind::Table,
            schema: Some(schema.to_owned()),
            object: "t".to_owned(),
            index: None,
            record: None,
            mode: "X".to_owned(),
        }
    }

    #[test]
    fn strangers_are_told_from_sessions() {
        let wait = |waiter, blockers: &[i64], wanted| LockWait {
            waiter,
            blockers: blockers.to_vec(),
            wanted,
        };
        let waits = names().waits(vec![
            wait(7, &[8, 9, 100], Some(table("lab"))),
            wait(8, &[9], Some(table("other"))),
            wait(100, &[7], None),
        ]);
        assert_eq!(waits.len(), 2, "who is not of the case waits unseen");
        assert_eq!((&waits[0].waiter, waits[0].strangers), (&name("A"), false));
        assert_eq!(
            (&waits[1].blockers[..], waits[1].strangers),
            (&[name("A"), name("C")][..], true)
        );
        let objects: Vec<&str> =
            waits.iter().filter_map(|wait| Some(wait.thing.as_ref()?.object.as_str())).collect();
        assert_eq!(objects, ["other.t", "t"]);
    }

    #[test]
    fn locks_of_strangers_are_left_out() {
        let lock = |session| SessionLock { session, target: table("lab"), granted: true };
        let because =
            |session, reason: &str| IncompleteLocks { session, reason: reason.to_owned() };
        let list = names().locks(introspection::LockList {
            locks: vec![lock(7), lock(8), lock(100), lock(8)],
            incomplete: vec![because(Some(7), "one"), because(Some(100), "another")],
        });
        let sessions: Vec<&Name> = list.locks.iter().map(|lock| &lock.session).collect();
        assert_eq!(sessions, [&name("A"), &name("B")]);
        assert_eq!(list.incomplete, [(name("B"), "one".to_owned())].into());
        let all =
            introspection::LockList { locks: Vec::new(), incomplete: vec![because(None, "x")] };
        assert_eq!(names().locks(all).incomplete.len(), 3);
    }

    #[test]
    fn a_deadlock_of_others_is_not_ours() {
        let wait = |waiter, holder| {
            let target = table("lab");
            let blocking = vec![SessionLock { session: holder, target, granted: false }];
            DeadlockWait { waiter, holder, wanted: Some(table("lab")), blocking }
        };
        let report = |waits| DeadlockReport { id: String::new(), waits };
        let circle = names().circle(&report(vec![wait(7, 8), wait(8, 7)])).unwrap();
        assert_eq!((&circle[0].waiter, &circle[0].holder), (&name("B"), &name("A")));
        assert_eq!(circle[0].blocking[0].thing.to_string(), "table t, X");
        assert!(!circle[0].blocking[0].granted);
        assert!(names().circle(&report(vec![wait(7, 100), wait(100, 7)])).is_none());
    }
}
