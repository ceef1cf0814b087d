//! Lists the holders and waiters of a server.

use super::lock_tables::LockTables;
use super::row_locks::RowQuery;
use super::{LockSlot, LockSnapshot, PreparedTransaction, SessionLocks};
use crate::sql::options::LockServer;
use crate::sql::pool::fail_if_lost;
use crate::sql::{Dialect, Options, SessionLabel};
use crate::{Error, Hierarchy, Result, Target};
use hierlock_engine::introspection::{
    Introspection, IntrospectionScope, LockList, LockWait, MissingPrivilege, SessionInfo,
    SessionLock, list_sessions,
};
use hierlock_engine::{
    CellRow, ErrorClass, ServerAddress, ServerError, Session, cell, error_message,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// The maximum number of locks in a snapshot. A transaction may have millions.
const MAX_LOCKS: usize = 20_000;

/// Lists the holders and waiters of a server, on its own connection. Changes nothing on the server, and needs no lock table.
///
/// The account needs `SELECT` on `performance_schema` and `PROCESS` on MySQL, `PROCESS` on MariaDB, and membership of
/// `pg_read_all_stats` on PostgreSQL, with `SELECT` on the lock table for row locks. Without them a snapshot contains what is
/// visible, and names the missing privileges.
#[derive(Debug)]
pub struct LockInspector {
    address: ServerAddress,
    session: Session,
    introspection: Introspection,
    /// Nodes whose rows are read on PostgreSQL, also if no session names them.
    nodes: BTreeSet<Target>,
}

impl LockInspector {
    /// Connects to the server of a lock URL. Snapshots include all lock tables of its database, with their agreements.
    ///
    /// # Errors
    /// The URL is invalid, is of another backend, or the server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        let LockServer { address, settings, .. } =
            LockServer::parse(url, Options::default(), Hierarchy::default())?;
        let mut session = Session::connect_alone(&address, settings.pool.answer_limit).await?;
        // Queries wait for a table that is being altered for the server's minimum.
        let wait_limit = match session.dialect {
            Dialect::Postgres => "SET lock_timeout = '100ms'",
            _ => "SET SESSION lock_wait_timeout = 1",
        };
        let limited = session.run(wait_limit).await;
        let (introspection, nodes) = Default::default();
        let inspector = Self { address, session, introspection, nodes };
        limited.map_err(|source| inspector.failed(source))?;
        Ok(inspector)
    }

    getters! { self:
        /// Returns the address of the server, which prints no password.
        address -> &ServerAddress = &self.address;
        /// Returns the kind of server that was found.
        dialect -> Dialect = self.session.dialect;
    }

    /// Adds a node and its ancestors to every later snapshot. PostgreSQL reports the holders of a row lock only if the row is
    /// read, and a snapshot otherwise reads only the rows of paths in session labels.
    pub fn add_path(&mut self, path: &Target) {
        self.nodes.extend((0..=path.level()).map(|level| path.ancestor(level)));
    }

    /// Returns one session, also if it has no locks. `None` if it does not exist or the account may not see it.
    ///
    /// # Errors
    /// The server does not answer.
    ///
    /// # Cancel safety
    /// As [`snapshot`](Self::snapshot).
    pub async fn session(&mut self, pid: i64) -> Result<Option<SessionLocks>> {
        let scope = IntrospectionScope::of_sessions([pid]);
        let list = list_sessions(&mut self.session.as_ref(), &scope).await;
        let mut list = list.map_err(|source| self.failed(source))?;
        Ok(list.sessions.pop().map(SessionLocks::of))
    }

    /// Returns all sessions, locks and waits.
    ///
    /// # Errors
    /// The server does not answer. The snapshot names queries that it refuses.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection cannot be used again.
    pub async fn snapshot(&mut self) -> Result<LockSnapshot> {
        let snapshot = self.read_snapshot().await;
        snapshot.map_err(|source| self.failed(source))
    }

    /// Returns the number of deadlocks that the server has resolved since its start or the last reset of the counter. `None`
    /// if the account may not see it.
    ///
    /// # Errors
    /// The server does not answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection cannot be used again.
    pub async fn deadlock_count(&mut self) -> Result<Option<u64>> {
        let count = self.introspection.deadlock_count(&mut self.session.as_ref()).await;
        count.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: sqlx::Error) -> Error {
        ServerError::Failed { server: self.address.to_string(), source }.into()
    }

    async fn read_snapshot(&mut self) -> sqlx::Result<LockSnapshot> {
        let mut snapshot = LockSnapshot::new(self.address.to_string());
        let dialect = self.session.dialect;
        snapshot.dialect = Some(dialect);
        let session = &mut self.session.as_ref();
        let account = match dialect {
            Dialect::Postgres => "SELECT quote_ident(current_user)",
            _ => {
                "SELECT CONCAT(QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', \
                  QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))"
            }
        };
        snapshot.account = session.rows(account).await?.concat().concat();
        let lock_tables = LockTables::read(session).await?;
        snapshot.notes = lock_tables.notes.clone();
        // Introspection names the rows of this schema by their keys.
        let schema = lock_tables.row_tables().next().map(|table| table.schema.clone());
        let max_locks = Some(MAX_LOCKS);
        let scope = IntrospectionScope { schema, max_locks, ..IntrospectionScope::default() };
        let sessions = list_sessions(session, &scope).await?;
        snapshot.missing = sessions.missing;
        let waits = self.introspection.lock_waits(session, &scope).await;
        let waits = if_allowed(waits, dialect, &mut snapshot)?;
        snapshot.are_waits_visible = waits.is_some();
        let locks = self.introspection.locks(session, &scope).await;
        let mut locks: LockList = if_allowed(locks, dialect, &mut snapshot)?.unwrap_or_default();
        if dialect == Dialect::Postgres {
            // The reason suggests creating an extension, but an inspector changes nothing on the server.
            locks.incomplete.clear();
            let (listed, waits) = (&sessions.sessions, waits.as_deref().unwrap_or_default());
            let rows = self.read_row_locks(&lock_tables, listed, waits, &mut snapshot).await?;
            locks.locks.extend(rows);
            let prepared =
                "SELECT gid, owner::text, database::text, prepared::text FROM pg_prepared_xacts";
            let transaction = |row: &CellRow| {
                let [name, owner, database, since] = [0, 1, 2, 3].map(|n| cell(row, n).to_owned());
                PreparedTransaction { name, owner, database, since }
            };
            let rows = self.session.as_ref().cells(prepared).await?;
            snapshot.prepared = rows.iter().map(transaction).collect();
        }
        snapshot.taken = SystemTime::now();
        snapshot.assemble(sessions.sessions, waits.unwrap_or_default(), locks, lock_tables.tables);
        let has_unread_rows = |it: &SessionLocks| it.has_unlisted_locks;
        if dialect == Dialect::Postgres && snapshot.sessions.iter().any(has_unread_rows) {
            snapshot.notes.push(
                "PostgreSQL keeps row locks in the rows: those that nobody names or waits for are not listed"
                    .to_owned(),
            );
        }
        snapshot.missing.sort();
        snapshot.missing.dedup();
        Ok(snapshot)
    }

    /// Returns the row locks on PostgreSQL: those on the rows of paths in session labels, and on the rows that sessions wait
    /// for. Fails only if the connection does; other errors are noted in the snapshot.
    async fn read_row_locks(
        &mut self,
        tables: &LockTables,
        sessions: &[SessionInfo],
        waits: &[LockWait],
        snapshot: &mut LockSnapshot,
    ) -> sqlx::Result<Vec<SessionLock>> {
        let Some(database) = tables.database.as_deref() else { return Ok(Vec::new()) };
        let is_here = |info: &&SessionInfo| info.database.as_deref() == Some(database);
        let label = |info: &SessionInfo| {
            Some((info.pid, info.label.as_deref().and_then(SessionLabel::parse)?))
        };
        let labels: BTreeMap<i64, SessionLabel> =
            sessions.iter().filter(is_here).filter_map(label).collect();
        let mut nodes: BTreeSet<Target> = labels.values().flat_map(SessionLabel::nodes).collect();
        nodes.extend(self.nodes.iter().cloned());
        let wanted = waits.iter().filter_map(|wait| wait.wanted.as_ref());
        let wanted: Vec<LockSlot> = wanted
            .filter_map(|target| LockSlot::locked_by(target, Some(database), &tables.tables))
            .collect();
        let mut locks = Vec::new();
        for table in tables.row_tables() {
            let query = RowQuery::new(table, &nodes, &wanted);
            let name = table.scheme.rows_table();
            if query.is_cut {
                snapshot.notes.push(format!(
                    "more rows of {name} are named than are read: some locks are not listed"
                ));
            }
            let Some(sql) = query.sql() else { continue };
            match fail_if_lost(self.session.as_ref().cells(&sql).await)? {
                Ok(answer) => locks.extend(query.locks(&answer, &labels)),
                Err(error) if ErrorClass::of(&error) == ErrorClass::AccessDenied => {
                    let (table, account) = (table.qualified_name(), &snapshot.account);
                    snapshot.notes.push(format!(
                        "who has locked which row of {name} is not visible to this account; GRANT SELECT ON {table} TO \
                         {account}"
                    ));
                }
                Err(error) => {
                    let why = error_message(&error);
                    snapshot.notes.push(format!(
                        "who has locked which row of {name} could not be read: {why}"
                    ));
                }
            }
        }
        Ok(locks)
    }
}

/// Returns the answer, or `None` if the account lacks a privilege, which is then added to the snapshot.
fn if_allowed<T>(
    answer: sqlx::Result<T>,
    dialect: Dialect,
    snapshot: &mut LockSnapshot,
) -> sqlx::Result<Option<T>> {
    match answer {
        Err(error) if ErrorClass::of(&error) == ErrorClass::AccessDenied => {
            snapshot.missing.push(match dialect {
                Dialect::Mysql => MissingPrivilege::PerformanceSchema,
                Dialect::Mariadb => MissingPrivilege::Process,
                Dialect::Postgres => MissingPrivilege::ReadAllStats,
            });
            Ok(None)
        }
        answer => answer.map(Some),
    }
}
