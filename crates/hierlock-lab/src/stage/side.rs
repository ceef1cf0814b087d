//! The connection that asks about the sessions of a case, and what is remembered between two questions.

use super::connection::StageConnection;
use super::server::Server;
use super::session_names::SessionNames;
use super::{LockList, StageError, postgres};
use crate::observation::{Failure, Name, Wait};
use crate::record::Link;
use hierlock_engine::Dialect;
use hierlock_engine::introspection::{DeadlockReport, Introspection, IntrospectionScope};
use std::time::Duration;

/// A connection beside the sessions of a case.
pub(super) struct Side {
    pub(super) connection: StageConnection,
    dialect: Dialect,
    introspection: Introspection,
    /// PostgreSQL: has the database of the case the extension that tells row locks?
    pub(super) has_row_locks: Option<bool>,
    /// The last deadlock that has been told.
    last_deadlock: String,
}

impl Side {
    pub(super) fn new(connection: StageConnection, server: &Server) -> Self {
        Self {
            connection,
            dialect: server.dialect(),
            introspection: server.introspection(),
            has_row_locks: None,
            last_deadlock: String::new(),
        }
    }

    pub(super) async fn waits(&mut self, names: &SessionNames) -> Result<Vec<Wait>, StageError> {
        let mut session = self.connection.lend().await?;
        let waits = self.introspection.lock_waits(&mut session, &names.scope()).await;
        Ok(names.waits(self.connection.answered(waits)?))
    }

    /// How long it takes until all who waited have been looked at by the server's detector.
    pub(super) fn next_deadlock_check(&self, deadlock_timeout: Duration) -> Duration {
        let after = deadlock_timeout + postgres::CHECK_DELAY;
        let youngest = self.introspection.youngest_wait();
        youngest.map_or(Duration::ZERO, |waited| after.saturating_sub(waited))
    }

    /// `row_locks` is where PostgreSQL has the extension that tells them.
    pub(super) async fn locks(
        &mut self,
        names: &SessionNames,
        row_locks: Option<String>,
    ) -> Result<LockList, StageError> {
        let scope = IntrospectionScope { row_locks_schema: row_locks, ..names.scope() };
        let mut session = self.connection.lend().await?;
        let locks = self.introspection.locks(&mut session, &scope).await;
        Ok(names.locks(self.connection.answered(locks)?))
    }

    /// The circle in which `victim` was, if the server tells, and has not told it before.
    pub(super) async fn circle(
        &mut self,
        names: &SessionNames,
        victim: &Name,
        failure: &Failure,
    ) -> Option<Vec<Link>> {
        let report = self.deadlock(names, victim, failure).await.ok().flatten()?;
        let is_new = self.dialect == Dialect::Postgres || report.id != self.last_deadlock;
        let circle = names.circle(&report).filter(|_| is_new)?;
        self.last_deadlock = report.id;
        Some(circle)
    }

    async fn deadlock(
        &mut self,
        names: &SessionNames,
        victim: &Name,
        failure: &Failure,
    ) -> Result<Option<DeadlockReport>, StageError> {
        let Self { introspection, connection, .. } = self;
        if self.dialect != Dialect::Postgres {
            let mut session = connection.lend().await?;
            let report = introspection.last_deadlock(&mut session).await;
            return connection.answered(report);
        }
        let (Some(victim), Some(detail)) = (names.pid(victim), &failure.detail) else {
            return Ok(None);
        };
        let (mut session, scope) = (connection.lend().await?, names.scope());
        let report = introspection.deadlock_of_victim(&mut session, &scope, victim, detail).await;
        connection.answered(report)
    }
}
