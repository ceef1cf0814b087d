//! Introspection of PostgreSQL, which reports blockers exactly. Row locks are not in `pg_locks`: a session that wants a
//! locked row waits for the *transaction* that holds it, and meanwhile holds a tuple lock, its place in the queue for
//! the row.

use super::wait_list::WaitList;
use super::{
    IncompleteLocks, IntrospectionQuery, IntrospectionScope, LockKind, LockList, LockTarget,
    Result, SessionLock, ask_all, if_allowed, quote,
};
use crate::row::{CellRow, cell, number_cell};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The locks that `condition` selects, with the names of their tables (the OID for another database). Locks of a
/// parallel worker count as its leader's. The tuple lock of a session that waits for a transaction shows which row it
/// wants. (PostgreSQL 13 has no `waitstart`.)
fn locks_of(scope: &IntrospectionScope, condition: &str) -> String {
    format!(
        "SELECT COALESCE(w.leader_pid, l.pid), l.locktype, l.mode, l.granted, n.nspname, \
         COALESCE(c.relname, 'relation ' || l.relation), \
         '(' || l.page || ',' || l.tuple || ')', l.transactionid, \
         CASE WHEN l.objsubid = 1 THEN (l.classid::bigint << 32 | l.objid::bigint)::text \
           ELSE l.classid || ', ' || l.objid END, \
         l.virtualxid, c.relkind, tn.nspname, COALESCE(tc.relname, 'relation ' || t.relation), \
         '(' || t.page || ',' || t.tuple || ')', t.mode, \
         CASE WHEN NOT l.granted THEN array_to_string(pg_blocking_pids(l.pid), ' ') END, \
         (EXTRACT(EPOCH FROM clock_timestamp() - (to_jsonb(l) ->> 'waitstart')::timestamptz) * 1000)::bigint \
         FROM (SELECT oid FROM pg_database WHERE datname = current_database()) own \
         CROSS JOIN pg_locks l \
         LEFT JOIN pg_stat_activity w ON w.pid = l.pid AND w.leader_pid IS NOT NULL \
         LEFT JOIN pg_class c ON c.oid = l.relation AND l.database IN (own.oid, 0) \
         LEFT JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_locks t ON NOT l.granted AND l.locktype = 'transactionid' \
           AND t.pid = l.pid AND t.locktype = 'tuple' \
         LEFT JOIN pg_class tc ON tc.oid = t.relation AND t.database IN (own.oid, 0) \
         LEFT JOIN pg_namespace tn ON tn.oid = tc.relnamespace \
         WHERE l.pid <> pg_backend_pid() AND {} AND {condition}",
        scope.condition("COALESCE(w.leader_pid, l.pid)")
    )
}

#[derive(Debug, Default)]
pub(super) struct PostgresState {
    /// The SQL expression for the primary key of a table, by schema and table; None if it has no primary key.
    keys: HashMap<[String; 2], Option<String>>,
    /// The primary keys of rows that are waited for, by waiter, transaction, table and ctid. During the wait the ctid
    /// does not change its row.
    rows: HashMap<[String; 5], Option<String>>,
    /// The age of the youngest wait in the last list of waits.
    pub(super) youngest_wait: Option<Duration>,
    /// The primary keys of rows that were locked, by table and ctid.
    locked_rows: HashMap<[String; 3], String>,
}

impl IntrospectionQuery<'_, '_> {
    pub(super) async fn postgres_waits(&mut self) -> Result<WaitList> {
        let mut waits = WaitList::default();
        let locks = locks_of(self.scope, "NOT l.granted");
        // Sessions that wait for a safe snapshot (SERIALIZABLE READ ONLY DEFERRABLE), not for a lock.
        let snapshots = format!(
            "SELECT pid, array_to_string(pg_safe_snapshot_blocking_pids(pid), ' ') \
             FROM pg_stat_activity WHERE wait_event = 'SafeSnapshot' AND {}",
            self.scope.condition("pid")
        );
        let [locks, snapshots] = ask_all(self.session, [&*locks, &snapshots]).await?;
        let ages = locks.iter().map(|row| number_cell(row, 16).unwrap_or(0).max(0) as u64);
        self.introspection.postgres.youngest_wait = ages.min().map(Duration::from_millis);
        for row in &locks {
            // Without blockers the lock was granted in the meantime.
            if let (Some(waiter), false) = (number_cell(row, 0), cell(row, 15).is_empty()) {
                let target = self.named_target(row).await?;
                waits.add(waiter, target, self.blockers_of(waiter, cell(row, 15)).await?);
            }
        }
        for row in &snapshots {
            let Some(waiter) = number_cell(row, 0) else { continue };
            let target = LockTarget::new(LockKind::Transaction, "safe snapshot", "");
            waits.add(waiter, target, pids(cell(row, 1)));
        }
        Ok(waits)
    }

    /// Returns the target of a lock. A row is named by its primary key if that can be read, else by its ctid.
    async fn named_target(&mut self, row: &CellRow) -> Result<LockTarget> {
        let mut target = target(row);
        let (LockKind::Row, Some(ctid)) = (target.kind, &target.record) else {
            return Ok(target);
        };
        let table = [target.schema.as_deref().unwrap_or_default(), &target.object];
        let wait = [cell(row, 0), cell(row, 7), table[0], table[1], ctid].map(str::to_owned);
        if !self.introspection.postgres.rows.contains_key(&wait) {
            let key = self.row_key(table, ctid).await?;
            self.introspection.postgres.rows.insert(wait.clone(), key);
        }
        target.record = self.introspection.postgres.rows[&wait].clone().or(target.record);
        Ok(target)
    }

    /// Returns the primary key of the row at a ctid, if it can be read at once.
    async fn row_key(&mut self, table: [&str; 2], ctid: &str) -> Result<Option<String>> {
        let [schema, name] = table;
        // Only tables of this schema may be read.
        if self.scope.schema.as_deref() != Some(schema) {
            return Ok(None);
        }
        let (keys, relation_key) =
            (&mut self.introspection.postgres.keys, table.map(str::to_owned));
        if !keys.contains_key(&relation_key) {
            let rows = self.session.cells(&primary_key(schema, name)).await?;
            keys.insert(relation_key.clone(), first_cell(rows));
        }
        let Some(Some(key)) = keys.get(&relation_key) else { return Ok(None) };
        let relation = relation(schema, name);
        let row = format!("SELECT {key} || '' FROM {relation} WHERE ctid = '{ctid}'");
        // The table may be locked or dropped.
        Ok(if_allowed(self.session.cells(&row).await)?.and_then(first_cell))
    }

    pub(super) async fn postgres_locks(&mut self) -> Result<LockList> {
        let mut list = LockList::default();
        let mut tables = BTreeSet::new();
        let rows = self.session.cells(&locks_of(self.scope, "l.locktype <> 'virtualxid'")).await?;
        for row in &rows {
            let Some(session) = number_cell(row, 0) else { continue };
            let granted = cell(row, 3) == "t";
            // A tuple lock of a session that waits for a transaction only shows which row it waits for.
            let is_wait_for_row = |other: &CellRow| {
                other[0] == row[0] && !cell(other, 12).is_empty() && other[13] == row[6]
            };
            if cell(row, 1) == "tuple" && granted && rows.iter().any(is_wait_for_row) {
                continue;
            }
            if cell(row, 1) == "relation" {
                match (cell(row, 10), cell(row, 4)) {
                    ("r" | "p", schema) if self.scope.schema.as_deref() == Some(schema) => {
                        tables.insert(cell(row, 5));
                    }
                    ("r" | "p", schema) if !schema.starts_with("pg_") => {}
                    // Indexes are locked along with their tables, catalogs by every statement.
                    _ => continue,
                }
            }
            let target = self.named_target(row).await?;
            list.locks.push(SessionLock { session, target, granted });
        }
        let mut add_reason =
            |reason| list.incomplete.push(IncompleteLocks { session: None, reason });
        if let (Some(extension), Some(schema)) = (&self.scope.row_locks_schema, &self.scope.schema)
        {
            for table in tables {
                match self.row_locks(extension, [schema, table]).await? {
                    Some(rows) => list.locks.extend(rows),
                    None => add_reason(format!("the row locks of {table} could not be read")),
                }
            }
        } else {
            add_reason(
                "PostgreSQL lists row locks only with the extension pgrowlocks, which could not be created"
                    .to_owned(),
            );
        }
        Ok(list)
    }

    /// Returns the primary key of the row at a ctid, if it can be read now or was read when it was locked; else the
    /// ctid.
    pub(super) async fn row_at(&mut self, table: [&str; 2], ctid: &str) -> Result<String> {
        let now = self.row_key(table, ctid).await?;
        let row = [table[0], table[1], ctid].map(str::to_owned);
        let when_locked = || self.introspection.postgres.locked_rows.get(&row).cloned();
        Ok(now.or_else(when_locked).unwrap_or_else(|| ctid.to_owned()))
    }

    /// Returns the row locks of a table, from pgrowlocks. None if the table cannot be read.
    async fn row_locks(
        &mut self,
        extension: &str,
        table: [&str; 2],
    ) -> Result<Option<Vec<SessionLock>>> {
        let [schema, name] = table;
        let sql = format!(
            "SELECT r.locked_row, p.pid, m.mode FROM {extension}.pgrowlocks({}) r, \
             unnest(r.pids) WITH ORDINALITY p(pid, n), unnest(r.modes) WITH ORDINALITY m(mode, n) \
             WHERE p.n = m.n",
            quote(&relation(schema, name), '\'')
        );
        let mut locks = Vec::new();
        // The table cannot be read while it is altered.
        let Some(rows) = if_allowed(self.session.cells(&sql).await)? else { return Ok(None) };
        for row in rows {
            let session = number_cell(&row, 1).filter(|pid| self.scope.has(*pid));
            let Some(session) = session else { continue };
            let ctid = cell(&row, 0);
            let key = self.row_key(table, ctid).await?;
            if let Some(key) = &key {
                let row = [schema, name, ctid].map(str::to_owned);
                self.introspection.postgres.locked_rows.insert(row, key.clone());
            }
            let target = LockTarget {
                record: key.or_else(|| Some(ctid.to_owned())),
                ..LockTarget::of_table(LockKind::Row, schema, name, cell(&row, 2))
            };
            locks.push(SessionLock { session, target, granted: true });
        }
        Ok(Some(locks))
    }

    /// Returns the blockers of a session. 0, a prepared transaction, is replaced by the sessions in the scope that
    /// represent it, if all are known.
    async fn blockers_of(&mut self, waiter: i64, list: &str) -> Result<Vec<i64>> {
        let (mut blockers, prepared) = (pids(list), &self.scope.prepared);
        if prepared.is_empty() || !blockers.contains(&0) {
            return Ok(blockers);
        }
        let sql = format!(
            "SELECT quote_literal(p.gid) FROM pg_locks w JOIN pg_locks h ON h.granted AND h.pid IS NULL \
             AND h.locktype = w.locktype \
             AND (h.database, h.relation, h.page, h.tuple, h.transactionid, h.classid, h.objid) \
             IS NOT DISTINCT FROM \
             (w.database, w.relation, w.page, w.tuple, w.transactionid, w.classid, w.objid) \
             JOIN pg_locks own ON own.granted AND own.pid IS NULL AND own.locktype = 'transactionid' \
             AND own.virtualtransaction = h.virtualtransaction \
             JOIN pg_prepared_xacts p ON p.transaction = own.transactionid \
             WHERE NOT w.granted AND w.pid = {waiter}"
        );
        let rows = self.session.cells(&sql).await?;
        let preparer =
            |row: &CellRow| Some(prepared.iter().find(|(name, _)| name == cell(row, 0))?.1);
        let preparers: Option<Vec<i64>> = rows.iter().map(preparer).collect();
        if let Some(preparers) = preparers.filter(|preparers| !preparers.is_empty()) {
            blockers.retain(|pid| *pid != 0);
            blockers.extend(preparers);
        }
        Ok(blockers)
    }
}

/// Parses process ids separated by spaces.
fn pids(list: &str) -> Vec<i64> {
    list.split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

fn first_cell(rows: Vec<CellRow>) -> Option<String> {
    rows.into_iter().next()?.into_iter().next()?
}

/// The query for the SQL expression of a table's primary key.
fn primary_key(schema: &str, table: &str) -> String {
    format!(
        "SELECT string_agg(quote_ident(a.attname), ' || '', '' || ' ORDER BY k.n) \
         FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, n), pg_attribute a \
         WHERE i.indrelid = (SELECT c.oid FROM pg_class c JOIN pg_namespace s \
           ON s.oid = c.relnamespace WHERE s.nspname = {} AND c.relname = {}) AND i.indisprimary \
         AND a.attrelid = i.indrelid AND a.attnum = k.attnum",
        quote(schema, '\''),
        quote(table, '\'')
    )
}

fn relation(schema: &str, table: &str) -> String {
    format!("{}.{}", quote(schema, '"'), quote(table, '"'))
}

fn target(row: &CellRow) -> LockTarget {
    let mode = cell(row, 2);
    let of_table = |kind| LockTarget::of_table(kind, cell(row, 4), cell(row, 5), mode);
    match cell(row, 1) {
        "relation" | "extend" | "page" => of_table(LockKind::Table),
        "tuple" => LockTarget { record: row[6].clone(), ..of_table(LockKind::Row) },
        // The session waits for a transaction because of a row.
        "transactionid" if !cell(row, 12).is_empty() => LockTarget {
            record: row[13].clone(),
            ..LockTarget::of_table(LockKind::Row, cell(row, 11), cell(row, 12), cell(row, 14))
        },
        "transactionid" => LockTarget::new(LockKind::Transaction, cell(row, 7), mode),
        "virtualxid" => LockTarget::new(LockKind::Transaction, cell(row, 9), mode),
        "advisory" => LockTarget::new(LockKind::Advisory, cell(row, 8), mode),
        other => LockTarget::new(LockKind::Other, other, mode),
    }
}
