//! What PostgreSQL tells: who waits for whom exactly, for what in its own way. A row lock is not kept in
//! its table of locks: who wants a row that is taken waits for the *transaction* that has it, and keeps
//! the row's place in line (a tuple lock) meanwhile.

use super::{
    IncompleteLocks, IntrospectionScope, LockKind, LockList, LockTarget, LockWait, SessionLock,
    WaitList, ask_all, if_allowed, quoted,
};
use crate::SessionRef;
use crate::row::{CellRow, cell, number_cell};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Why row locks are not told without it.
const NO_ROW_LOCKS: &str = "PostgreSQL tells who has locked which row, and when, only with its extension \
                            pgrowlocks, which could not be made here";

/// The locks of some, with the names of their tables; a table of another database has a number only. Locks of a parallel
/// worker are its leader's. Who waits for the end of a transaction keeps a place in line for a row: that is what it really
/// wants. (PostgreSQL 13 does not have `waitstart`: there it is null.)
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

/// Who waits for no lock, but for a snapshot that no writer can spoil.
fn safe_snapshots(scope: &IntrospectionScope) -> String {
    format!(
        "SELECT pid, array_to_string(pg_safe_snapshot_blocking_pids(pid), ' ') \
         FROM pg_stat_activity WHERE wait_event = 'SafeSnapshot' AND {}",
        scope.condition("pid")
    )
}

/// What is remembered between two questions.
#[derive(Debug, Default)]
pub(super) struct PostgresMemory {
    /// How to write the primary key of a table, by schema and table; none if it has none.
    keys: HashMap<[String; 2], Option<String>>,
    /// The rows that are waited for, by who waits, for which transaction, and where: as long as somebody
    /// waits for a row, its place is not used for another.
    rows: HashMap<[String; 5], Option<String>>,
    /// How long the youngest wait had lasted when the waits were last asked for.
    pub(super) youngest_wait: Option<Duration>,
    /// The names of rows that were locked, by table and place.
    places: HashMap<[String; 3], String>,
}

impl PostgresMemory {
    pub(super) async fn waits(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<Vec<LockWait>, sqlx::Error> {
        let mut waits = WaitList::default();
        let locks = locks_of(scope, "NOT l.granted");
        let [locks, snapshots] = ask_all(session, [&locks, &safe_snapshots(scope)]).await?;
        self.youngest_wait = None;
        for row in &locks {
            let Some(waiter) = number_cell(row, 0) else { continue };
            let waited = number_cell(row, 16).and_then(|millis| millis.try_into().ok());
            let waited = Duration::from_millis(waited.unwrap_or_default());
            self.youngest_wait = Some(self.youngest_wait.map_or(waited, |known| known.min(waited)));
            // Nobody in the way: it was granted between two looks.
            if cell(row, 15).is_empty() {
                continue;
            }
            let mut target = target(row);
            self.name_row(session, scope, row, &mut target).await?;
            waits.add(waiter, target);
            let by_prepared = prepared_blockers(session, scope, waiter, cell(row, 15)).await?;
            match by_prepared.is_empty() {
                true => blocked_by(&mut waits, waiter, cell(row, 15)),
                false => blocked_by(&mut waits, waiter, &by_prepared),
            }
        }
        for row in &snapshots {
            let Some(waiter) = number_cell(row, 0) else { continue };
            waits.add(waiter, LockTarget::new(LockKind::Transaction, "safe snapshot", ""));
            blocked_by(&mut waits, waiter, cell(row, 1));
        }
        Ok(waits.in_scope(scope))
    }

    /// Names the row of a lock by its primary key instead of its place.
    async fn name_row(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        row: &CellRow,
        target: &mut LockTarget,
    ) -> Result<(), sqlx::Error> {
        let (schema, table) = match cell(row, 1) {
            "tuple" => (cell(row, 4), cell(row, 5)),
            _ => (cell(row, 11), cell(row, 12)),
        };
        let Some(place) = target.record.clone().filter(|_| target.kind == LockKind::Row) else {
            return Ok(());
        };
        let known = [cell(row, 0), cell(row, 7), schema, table, &place].map(str::to_owned);
        let name = match self.rows.get(&known) {
            Some(name) => name.clone(),
            None => {
                let name = self.row_key(session, scope, [schema, table], &place).await?;
                self.rows.insert(known, name.clone());
                name
            }
        };
        target.record = name.or(Some(place));
        Ok(())
    }

    /// The primary key of the row at a place, if it can be read at once.
    async fn row_key(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        [schema, table]: [&str; 2],
        place: &str,
    ) -> Result<Option<String>, sqlx::Error> {
        // Somebody else's tables are not read.
        if scope.schema.as_deref() != Some(schema) {
            return Ok(None);
        }
        let known = [schema, table].map(str::to_owned);
        if !self.keys.contains_key(&known) {
            let key = session.cells(&primary_key(schema, table)).await?.into_iter().next();
            self.keys.insert(known.clone(), key.and_then(|mut row| row.remove(0)));
        }
        let Some(Some(key)) = self.keys.get(&known) else { return Ok(None) };
        let relation = relation(schema, table);
        let key = format!("SELECT {key} || '' FROM {relation} WHERE ctid = '{place}'");
        // The table may be locked as a whole, or gone.
        let rows = if_allowed(session.cells(&key).await)?.unwrap_or_default();
        Ok(rows.into_iter().next().and_then(|mut row| row.remove(0)))
    }

    pub(super) async fn locks(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<LockList, sqlx::Error> {
        let mut locks = Vec::new();
        let mut tables = BTreeSet::new();
        let mut unread = None;
        let rows = session.cells(&locks_of(scope, "l.locktype <> 'virtualxid'")).await?;
        for row in &rows {
            let Some(pid) = number_cell(row, 0) else { continue };
            // Who waits for a transaction because of a row only has a place in line for the row.
            let is_place_in_line = |other: &CellRow| {
                other[0] == row[0] && !cell(other, 12).is_empty() && other[13] == row[6]
            };
            if cell(row, 1) == "tuple" && cell(row, 3) == "t" && rows.iter().any(is_place_in_line) {
                continue;
            }
            if cell(row, 1) == "relation" {
                match (cell(row, 10), cell(row, 4)) {
                    ("r" | "p", schema) if scope.schema.as_deref() == Some(schema) => {
                        tables.insert(cell(row, 5).to_owned());
                    }
                    ("r" | "p", schema) if !schema.starts_with("pg_") => {}
                    // Indexes are locked along with their tables, catalogues by every statement.
                    _ => continue,
                }
            }
            let mut target = target(row);
            self.name_row(session, scope, row, &mut target).await?;
            locks.push(SessionLock { session: pid, target, granted: cell(row, 3) == "t" });
        }
        match (&scope.row_locks_schema, &scope.schema) {
            (Some(extension), Some(schema)) => {
                for table in tables {
                    match self.row_locks(session, scope, extension, [schema, &table]).await? {
                        Some(rows) => locks.extend(rows),
                        None => {
                            unread = Some(format!("the row locks of {table} could not be read"));
                        }
                    }
                }
            }
            _ => unread = Some(NO_ROW_LOCKS.to_owned()),
        }
        locks.sort();
        locks.dedup();
        let incomplete = unread.map(|reason| IncompleteLocks { session: None, reason });
        Ok(LockList { locks, incomplete: incomplete.into_iter().collect() })
    }

    /// The row at a place: its primary key if that can be read, or was when it was locked; else the place.
    pub(super) async fn row_at(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        [schema, table]: [&str; 2],
        place: &str,
    ) -> Result<String, sqlx::Error> {
        let now = self.row_key(session, scope, [schema, table], place).await?;
        let known = || self.places.get(&[schema, table, place].map(str::to_owned)).cloned();
        Ok(now.or_else(known).unwrap_or_else(|| place.to_owned()))
    }

    /// Who has rows of a table, by the extension that tells; `None` if the table cannot be read.
    async fn row_locks(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        extension: &str,
        [schema, table]: [&str; 2],
    ) -> Result<Option<Vec<SessionLock>>, sqlx::Error> {
        let sql = format!(
            "SELECT r.locked_row, p.pid, m.mode FROM {extension}.pgrowlocks({}) r, \
             unnest(r.pids) WITH ORDINALITY p(pid, n), unnest(r.modes) WITH ORDINALITY m(mode, n) \
             WHERE p.n = m.n",
            quoted(&relation(schema, table), '\'')
        );
        let mut locks = Vec::new();
        // Behind a change of the table it cannot be read.
        let Some(rows) = if_allowed(session.cells(&sql).await)? else { return Ok(None) };
        for row in rows {
            let Some(pid) = number_cell(&row, 1).filter(|pid| scope.has(*pid)) else { continue };
            let place = cell(&row, 0);
            let key = self.row_key(session, scope, [schema, table], place).await?;
            if let Some(key) = &key {
                self.places.insert([schema, table, place].map(str::to_owned), key.clone());
            }
            let target = LockTarget {
                record: key.or_else(|| Some(place.to_owned())),
                ..LockTarget::of_table(LockKind::Row, schema, table, cell(&row, 2))
            };
            locks.push(SessionLock { session: pid, target, granted: true });
        }
        Ok(Some(locks))
    }
}

/// The blockers of a session, a prepared transaction being the session that prepared it; empty if there is
/// none among them of which that is known.
async fn prepared_blockers(
    session: &mut SessionRef<'_>,
    scope: &IntrospectionScope,
    waiter: i64,
    blockers: &str,
) -> Result<String, sqlx::Error> {
    // Prepared transactions have no process, and no number.
    if scope.prepared.is_empty() || !blockers.split(' ').any(|pid| pid == "0") {
        return Ok(String::new());
    }
    let what = |of: &str| {
        let columns =
            ["database", "relation", "page", "tuple", "transactionid", "classid", "objid"];
        columns.map(|column| format!("{of}.{column}")).join(", ")
    };
    let sql = format!(
        "SELECT quote_literal(p.gid) FROM pg_locks w JOIN pg_locks h ON h.granted AND h.pid IS NULL \
         AND h.locktype = w.locktype AND ({}) IS NOT DISTINCT FROM ({}) \
         JOIN pg_locks own ON own.granted AND own.pid IS NULL AND own.locktype = 'transactionid' \
         AND own.virtualtransaction = h.virtualtransaction \
         JOIN pg_prepared_xacts p ON p.transaction = own.transactionid \
         WHERE NOT w.granted AND w.pid = {waiter}",
        what("h"),
        what("w")
    );
    let rows = session.cells(&sql).await?;
    let preparer = |row: &CellRow| scope.prepared.iter().find(|(name, _)| name == cell(row, 0));
    let preparers: Vec<&(String, i64)> = rows.iter().filter_map(preparer).collect();
    // One of which that is not known stays without a session.
    if preparers.is_empty() || preparers.len() < rows.len() {
        return Ok(String::new());
    }
    let others = blockers.split(' ').filter(|pid| *pid != "0").map(str::to_owned);
    let preparers = preparers.iter().map(|(_, id)| id.to_string());
    Ok(others.chain(preparers).collect::<Vec<_>>().join(" "))
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

fn blocked_by(waits: &mut WaitList, waiter: i64, list: &str) {
    for blocker in list.split(' ').filter_map(|pid| pid.parse().ok()) {
        waits.blocked_by(waiter, blocker);
    }
}

/// What a lock is on.
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
