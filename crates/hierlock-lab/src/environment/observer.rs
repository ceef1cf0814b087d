//! The connection that observes the sessions of a case, and its state between probes.

use super::connection::LabConnection;
use super::namespace::{Namespace, NamespaceGuard};
use super::prepared_transactions::PreparedTransactions;
use super::server::TestServer;
use super::{CaseLocks, LabResult, settings};
use crate::observation::{Failure, Lock, SessionName, SessionWait};
use crate::record::{BlockingLock, Cycle, WaitEdge};
use hierlock_engine::Dialect;
use hierlock_engine::introspection::{
    self, DeadlockWait, Introspection, IntrospectionScope, LockTarget, LockWait, SessionLock,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

pub(super) struct Observer {
    pub(super) connection: LabConnection,
    pub(super) sessions: SessionNames,
    server: Arc<TestServer>,
    namespace: Namespace,
    prepared: PreparedTransactions,
    introspection: Introspection,
    /// PostgreSQL: the schema of the extension that lists row locks, once it has been looked up.
    row_locks_schema: OnceCell<Option<String>>,
    last_deadlock: String,
}

impl Observer {
    pub(super) fn new(
        connection: LabConnection,
        guard: &NamespaceGuard,
        names: BTreeMap<i64, SessionName>,
    ) -> Self {
        let NamespaceGuard { server, namespace, prepared, .. } = guard;
        let schema = namespace.table_schema().to_owned();
        Self {
            connection,
            sessions: SessionNames { names, schema },
            server: server.clone(),
            namespace: namespace.clone(),
            prepared: prepared.clone(),
            introspection: Introspection::default().may_enable_lock_output(server.can_list_locks),
            row_locks_schema: OnceCell::new(),
            last_deadlock: String::new(),
        }
    }

    fn scope(&self) -> IntrospectionScope {
        IntrospectionScope {
            sessions: Some(self.sessions.names.keys().copied().collect()),
            schema: Some(self.sessions.schema.clone()),
            row_locks_schema: None,
            prepared: self.prepared.of_sessions(),
            ..IntrospectionScope::default()
        }
    }

    pub(super) async fn waits(&mut self) -> LabResult<Vec<SessionWait>> {
        let scope = self.scope();
        let mut session = self.connection.lend().await?;
        let waits = self.introspection.lock_waits(&mut session, &scope).await;
        Ok(self.sessions.waits(self.connection.take_answer(waits)?))
    }

    /// Returns the time until the server's detector has checked all waits of the last probe.
    pub(super) fn next_deadlock_check(&self, deadlock_timeout: Duration) -> Duration {
        let after = deadlock_timeout + settings::POSTGRES_CHECK_DELAY;
        let youngest = self.introspection.youngest_wait();
        youngest.map_or(Duration::ZERO, |waited| after.saturating_sub(waited))
    }

    pub(super) async fn locks(&mut self) -> LabResult<CaseLocks> {
        let row_locks_schema = self.row_locks_schema().await?;
        let scope = IntrospectionScope { row_locks_schema, ..self.scope() };
        let mut session = self.connection.lend().await?;
        let locks = self.introspection.locks(&mut session, &scope).await;
        Ok(self.sessions.locks(self.connection.take_answer(locks)?))
    }

    async fn row_locks_schema(&mut self) -> LabResult<Option<String>> {
        let find = async || match &self.namespace {
            Namespace::InnodbDatabase(_) => Ok(None),
            Namespace::PostgresSchema(_) => self.server.row_locks_schema().await,
            Namespace::PostgresDatabase(_) => {
                let create = "CREATE EXTENSION IF NOT EXISTS pgrowlocks SCHEMA public";
                let is_created = self.connection.try_query(create).await?.is_ok();
                Ok(is_created.then(|| "public".to_owned()))
            }
        };
        self.row_locks_schema.get_or_try_init(find).await.cloned()
    }

    /// Returns the cycle of which `victim` was a part, if the server reports it and has not reported it before.
    pub(super) async fn deadlock(
        &mut self,
        victim: &SessionName,
        failure: &Failure,
    ) -> Option<Cycle> {
        let scope = self.scope();
        let pid = self.sessions.names.iter().find(|(_, name)| *name == victim).map(|(pid, _)| *pid);
        let is_postgres = self.connection.dialect == Dialect::Postgres;
        let mut session = self.connection.lend().await.ok()?;
        let report = match (pid, &failure.detail) {
            _ if !is_postgres => self.introspection.last_deadlock(&mut session).await,
            (Some(pid), Some(detail)) => {
                self.introspection.deadlock_of_victim(&mut session, &scope, pid, detail).await
            }
            _ => Ok(None),
        };
        let report = self.connection.take_answer(report).ok().flatten()?;
        let is_new = is_postgres || report.id != self.last_deadlock;
        let cycle = self.sessions.cycle(report.waits).filter(|_| is_new)?;
        self.last_deadlock = report.id;
        // A cycle without the victim is of another deadlock: the server reports only the last one.
        cycle.iter().any(|edge| edge.waiter == *victim).then_some(cycle)
    }
}

/// The names of a case's sessions by process id.
#[derive(Debug)]
pub(super) struct SessionNames {
    pub(super) names: BTreeMap<i64, SessionName>,
    /// The database or schema of the case, which is left out of the names of its tables.
    schema: String,
}

impl SessionNames {
    /// Returns the waits of the case, in the order of names.
    fn waits(&self, waits: Vec<LockWait>) -> Vec<SessionWait> {
        let wait = |wait: LockWait| {
            let name = |pid: &i64| self.names.get(pid);
            let mut blockers: Vec<SessionName> =
                wait.blockers.iter().filter_map(name).cloned().collect();
            blockers.sort();
            blockers.dedup();
            Some(SessionWait {
                waiter: name(&wait.waiter)?.clone(),
                blockers,
                has_outside_blocker: wait.blockers.iter().any(|pid| name(pid).is_none()),
                target: wait.wanted.map(|target| self.locked_object(target)),
            })
        };
        let mut waits: Vec<SessionWait> = waits.into_iter().filter_map(wait).collect();
        waits.sort_by(|a, b| a.waiter.cmp(&b.waiter));
        waits
    }

    /// Returns the locks of the case, in the order of names.
    fn locks(&self, list: introspection::LockList) -> CaseLocks {
        let lock = |lock: SessionLock| {
            let session = self.names.get(&lock.session)?.clone();
            Some(Lock { session, target: self.locked_object(lock.target), granted: lock.granted })
        };
        let mut locks: Vec<Lock> = list.locks.into_iter().filter_map(lock).collect();
        locks.sort();
        locks.dedup();
        let mut incomplete = BTreeMap::new();
        for gap in list.incomplete {
            let is_affected = |pid: &i64| gap.session.is_none_or(|session| session == *pid);
            let names = self.names.iter().filter(|(pid, _)| is_affected(pid));
            incomplete.extend(names.map(|(_, name)| (name.clone(), gap.reason.clone())));
        }
        CaseLocks { locks, incomplete }
    }

    /// Returns the cycle of a deadlock, if all its sessions are of the case.
    fn cycle(&self, waits: Vec<DeadlockWait>) -> Option<Cycle> {
        let name = |pid: i64| self.names.get(&pid).cloned();
        let blocking =
            |lock: SessionLock| BlockingLock::new(self.locked_object(lock.target), lock.granted);
        let edge = |wait: DeadlockWait| {
            let wants = wait.wanted.map(|target| self.locked_object(target));
            let mut edge = WaitEdge::new(name(wait.waiter)?, name(wait.holder)?, wants);
            edge.blocking = wait.blocking.into_iter().map(blocking).collect();
            Some(edge)
        };
        waits.into_iter().map(edge).collect()
    }

    /// Returns the target, with a table of the case without the name of its database.
    fn locked_object(&self, target: LockTarget) -> LockTarget {
        let object = match &target.schema {
            Some(schema) if *schema != self.schema => format!("{schema}.{}", target.object),
            _ => target.object,
        };
        LockTarget { object, schema: None, ..target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::name;
    use introspection::IncompleteLocks;

    fn names() -> SessionNames {
        let names = [(7, "B"), (8, "A"), (9, "C")].map(|(pid, text)| (pid, name(text)));
        SessionNames { names: names.into(), schema: "lab".to_owned() }
    }

    fn table(schema: &str) -> LockTarget {
        let schema = Some(schema.to_owned());
        LockTarget { schema, ..LockTarget::new(introspection::LockKind::Table, "t", "X") }
    }

    #[test]
    fn sessions_of_others_are_only_counted_as_outside_blockers() {
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
        assert_eq!(waits.len(), 2, "a wait of another session was returned");
        assert_eq!((&waits[0].waiter, waits[0].has_outside_blocker), (&name("A"), false));
        assert_eq!(
            (&waits[1].blockers[..], waits[1].has_outside_blocker),
            (&[name("A"), name("C")][..], true)
        );
        let objects: Vec<&str> =
            waits.iter().filter_map(|wait| Some(wait.target.as_ref()?.object.as_str())).collect();
        assert_eq!(objects, ["other.t", "t"]);
    }

    #[test]
    fn locks_of_other_sessions_are_left_out() {
        let lock = |session| SessionLock { session, target: table("lab"), granted: true };
        let because =
            |session, reason: &str| IncompleteLocks { session, reason: reason.to_owned() };
        let list = names().locks(introspection::LockList {
            locks: vec![lock(7), lock(8), lock(100), lock(8)],
            incomplete: vec![because(Some(7), "one"), because(Some(100), "another")],
        });
        let sessions: Vec<&SessionName> = list.locks.iter().map(|lock| &lock.session).collect();
        assert_eq!(sessions, [&name("A"), &name("B")]);
        assert_eq!(list.incomplete, [(name("B"), "one".to_owned())].into());
        let all =
            introspection::LockList { locks: Vec::new(), incomplete: vec![because(None, "x")] };
        assert_eq!(names().locks(all).incomplete.len(), 3);
    }

    #[test]
    fn a_deadlock_of_other_sessions_is_ignored() {
        let wait = |waiter, holder| {
            let target = table("lab");
            let blocking = vec![SessionLock { session: holder, target, granted: false }];
            DeadlockWait { waiter, holder, wanted: Some(table("lab")), blocking }
        };
        let cycle = names().cycle(vec![wait(7, 8), wait(8, 7)]).unwrap();
        assert_eq!((&cycle[0].waiter, &cycle[0].holder), (&name("B"), &name("A")));
        assert_eq!(cycle[0].blocking[0].target.to_string(), "table t, X");
        assert!(!cycle[0].blocking[0].granted);
        assert!(names().cycle(vec![wait(7, 100), wait(100, 7)]).is_none());
    }
}
