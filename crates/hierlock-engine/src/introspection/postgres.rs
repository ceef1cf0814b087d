//! What PostgreSQL tells: who waits for whom exactly. A row lock is not in its table of locks: who wants a row that is
//! taken waits for the *transaction* that has it, and keeps the row's place in line (a tuple lock) meanwhile.

use super::wait_list::WaitList;
use super::{
    IncompleteLocks, IntrospectionScope, LockKind, LockList, LockTarget, Question, Result,
    SessionLock, ask_all, if_allowed, quoted,
};
use crate::row::{CellRow, cell, number_cell};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

const NO_ROW_LOCKS: &str = "PostgreSQL tells who has locked which row, and when, only with its extension \
                            pgrowlocks, which could not be made here";

/// The locks of some, with the names of their tables (a number in another database). Locks of a parallel worker are its
/// leader's. Who waits for a transaction keeps a place in line for a row: that is what it wants. (PostgreSQL 13 has no
/// `waitstart`.)
fn locks_of(scope: &IntrospectionScope, only: &str) -> String {
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
         WHERE l.pid <> pg_backend_pid() AND {} AND {only}",
        scope.condition("COALESCE(w.leader_pid, l.pid)")
    )
}

#[derive(Debug, Default)]
pub(super) struct PostgresMemory {
    /// How to write the primary key of a table, by schema and table; none if it has none.
    keys: HashMap<[String; 2], Option<String>>,
    /// The rows that are waited for, by who waits, for which transaction, and where. Meanwhile no other row is there.
    rows: HashMap<[String; 5], Option<String>>,
    /// How long the youngest wait had lasted when the waits were last asked for.
    pub(super) youngest_wait: Option<Duration>,
    /// The names of rows that were locked, by table and place.
    places: HashMap<[String; 3], String>,
}

impl Question<'_, '_> {
    pub(super) async fn postgres_waits(&mut self) -> Result<WaitList> {
        let mut waits = WaitList::default();
        let locks = locks_of(self.scope, "NOT l.granted");
        // Who waits for no lock, but for a snapshot that no writer can spoil.
        let snapshots = format!(
            "SELECT pid, array_to_string(pg_safe_snapshot_blocking_pids(pid), ' ') \
             FROM pg_stat_activity WHERE wait_event = 'SafeSnapshot' AND {}",
            self.scope.condition("pid")
        );
        let [locks, snapshots] = ask_all(self.session, [&*locks, &snapshots]).await?;
        let waited = locks.iter().map(|row| number_cell(row, 16).unwrap_or(0).max(0) as u64);
        self.memory.postgres.youngest_wait = waited.min().map(Duration::from_millis);
        for row in &locks {
            // Nobody in the way: it was granted between two looks.
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

    /// What a lock is on, a row being named by its primary key if that can be read, else by its place.
    async fn named_target(&mut self, row: &CellRow) -> Result<LockTarget> {
        let mut target = target(row);
        let (LockKind::Row, Some(place)) = (target.kind, &target.record) else {
            return Ok(target);
        };
        let table = [target.schema.as_deref().unwrap_or_default(), &target.object];
        let wait = [cell(row, 0), cell(row, 7), table[0], table[1], place].map(str::to_owned);
        if !self.memory.postgres.rows.contains_key(&wait) {
            let key = self.row_key(table, place).await?;
            self.memory.postgres.rows.insert(wait.clone(), key);
        }
        target.record = self.memory.postgres.rows[&wait].clone().or(target.record);
        Ok(target)
    }

    /// The primary key of the row at a place, if it can be read at once.
    async fn row_key(&mut self, table: [&str; 2], place: &str) -> Result<Option<String>> {
        let [schema, name] = table;
        // Somebody else's tables are not read.
        if self.scope.schema.as_deref() != Some(schema) {
            return Ok(None);
        }
        let (keys, known) = (&mut self.memory.postgres.keys, table.map(str::to_owned));
        if !keys.contains_key(&known) {
            let rows = self.session.cells(&primary_key(schema, name)).await?;
            keys.insert(known.clone(), first_cell(rows));
        }
        let Some(Some(key)) = keys.get(&known) else { return Ok(None) };
        let relation = relation(schema, name);
        let row = format!("SELECT {key} || '' FROM {relation} WHERE ctid = '{place}'");
        // The table may be locked as a whole, or gone.
        Ok(if_allowed(self.session.cells(&row).await)?.and_then(first_cell))
    }

    pub(super) async fn postgres_locks(&mut self) -> Result<LockList> {
        let mut list = LockList::default();
        let mut tables = BTreeSet::new();
        let rows = self.session.cells(&locks_of(self.scope, "l.locktype <> 'virtualxid'")).await?;
        for row in &rows {
            let Some(session) = number_cell(row, 0) else { continue };
            let granted = cell(row, 3) == "t";
            // Who waits for a transaction because of a row only has a place in line for the row.
            let is_place_in_line = |other: &CellRow| {
                other[0] == row[0] && !cell(other, 12).is_empty() && other[13] == row[6]
            };
            if cell(row, 1) == "tuple" && granted && rows.iter().any(is_place_in_line) {
                continue;
            }
            if cell(row, 1) == "relation" {
                match (cell(row, 10), cell(row, 4)) {
                    ("r" | "p", schema) if self.scope.schema.as_deref() == Some(schema) => {
                        tables.insert(cell(row, 5));
                    }
                    ("r" | "p", schema) if !schema.starts_with("pg_") => {}
                    // Indexes are locked along with their tables, catalogues by every statement.
                    _ => continue,
                }
            }
            let target = self.named_target(row).await?;
            list.locks.push(SessionLock { session, target, granted });
        }
        let mut unread = None;
        if let (Some(extension), Some(schema)) = (&self.scope.row_locks_schema, &self.scope.schema)
        {
            for table in tables {
                match self.row_locks(extension, [schema, table]).await? {
                    Some(rows) => list.locks.extend(rows),
                    None => unread = Some(format!("the row locks of {table} could not be read")),
                }
            }
        } else {
            unread = Some(NO_ROW_LOCKS.to_owned());
        }
        list.incomplete.extend(unread.map(|reason| IncompleteLocks { session: None, reason }));
        Ok(list)
    }

    /// The row at a place: its primary key if that can be read, or was when it was locked; else the place.
    pub(super) async fn row_at(&mut self, table: [&str; 2], place: &str) -> Result<String> {
        let now = self.row_key(table, place).await?;
        let known = [table[0], table[1], place].map(str::to_owned);
        let known = || self.memory.postgres.places.get(&known).cloned();
        Ok(now.or_else(known).unwrap_or_else(|| place.to_owned()))
    }

    /// Who has rows of a table, by the extension that tells; `None` if the table cannot be read.
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
            quoted(&relation(schema, name), '\'')
        );
        let mut locks = Vec::new();
        // Behind a change of the table it cannot be read.
        let Some(rows) = if_allowed(self.session.cells(&sql).await)? else { return Ok(None) };
        for row in rows {
            let session = number_cell(&row, 1).filter(|pid| self.scope.has(*pid));
            let Some(session) = session else { continue };
            let place = cell(&row, 0);
            let key = self.row_key(table, place).await?;
            if let Some(key) = &key {
                let known = [schema, name, place].map(str::to_owned);
                self.memory.postgres.places.insert(known, key.clone());
            }
            let target = LockTarget {
                record: key.or_else(|| Some(place.to_owned())),
                ..LockTarget::of_table(LockKind::Row, schema, name, cell(&row, 2))
            };
            locks.push(SessionLock { session, target, granted: true });
        }
        Ok(Some(locks))
    }

    /// The blockers of a session. A prepared transaction, which is 0, becomes its preparer, if all of these are known.
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

/// The numbers of sessions, with a blank between two.
fn pids(list: &str) -> Vec<i64> {
    list.split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

fn first_cell(rows: Vec<CellRow>) -> Option<String> {
    rows.into_iter().next()?.into_iter().next()?
}

/// Asks how to write the primary key of a table.
fn primary_key(schema: &str, table: &str) -> String {
    format!(
        "SELECT string_agg(quote_ident(a.attname), ' || '', '' || ' ORDER BY k.n) \
         FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, n), pg_attribute a \
         WHERE i.indrelid = (SELECT c.oid FROM pg_class c JOIN pg_namespace s \
           ON s.oid = c.relnamespace WHERE s.nspname = {} AND c.relname = {}) AND i.indisprimary \
         AND a.attrelid = i.indrelid AND a.attnum = k.attnum",
        quoted(schema, '\''),
        quoted(table, '\'')
    )
}

fn relation(schema: &str, table: &str) -> String {
    format!("{}.{}", quoted(schema, '"'), quoted(table, '"'))
}

fn target(row: &CellRow) -> LockTarget {
    let mode = cell(row, 2);
    let of_table = |kind| LockTarget::of_table(kind, cell(row, 4), cell(row, 5), mode);
    match cell(row, 1) {
        "relation" | "extend" | "page" => of_table(LockKind::Table),
        "tuple" => LockTarget { record: row[6].clone(), ..of_table(LockKind::Row) },
        // It waits for a transaction because of a row.
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
