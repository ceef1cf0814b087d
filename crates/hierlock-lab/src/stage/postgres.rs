//! What PostgreSQL tells: who waits for whom exactly, for what in its own way. A row lock is not kept in
//! its table of locks: who wants a row that is taken waits for the *transaction* that has it, and keeps
//! the row's place in line (a tuple lock) meanwhile.

use super::connection::StageConnection;
use super::who::{Waits, Who};
use super::{LockList, StageError};
use crate::observation::{Lock, LockKind, Thing, Wait};
use crate::scenario::SettingValue;
use hierlock_engine::{CellRow, cell, number_cell};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// What only an administrator may set: a deadlock is looked for at once, not after a second; and what
/// the server says can be read whatever its language.
pub(super) const WISHES: [&str; 2] = ["SET deadlock_timeout = '20ms'", "SET lc_messages = 'C'"];

/// How long a question may wait for a table. A change of the table may be waiting for a session of the
/// case: who asks must not wait behind it.
pub(super) const BRIEF: &str = "SET lock_timeout = '10ms'";

/// A session looks for a deadlock this much later than it should, at the latest: a process that is woken
/// waits for its turn on the processor.
const CHECK_DELAY: Duration = Duration::from_millis(15);

/// How long after the beginning of a wait a session looks for a deadlock.
pub(super) async fn deadlock_timeout(
    connection: &mut StageConnection,
) -> Result<Duration, StageError> {
    // In milliseconds.
    let sql = "SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'";
    let rows = connection.ask(sql).await?;
    let millis = rows.first().and_then(|row| number_cell(row, 0)).unwrap_or_default();
    Ok(Duration::from_millis(millis.try_into().unwrap_or_default()))
}

/// Again for as long as it takes.
pub(super) const PATIENT: &str = "SET lock_timeout = 0";

/// Makes the extension that tells who has which rows, in the database of a case.
pub(super) const ROW_LOCKS: &str = "CREATE EXTENSION IF NOT EXISTS pgrowlocks SCHEMA public";

/// Why row locks are not told without it.
const NO_ROW_LOCKS: &str = "PostgreSQL tells who has locked which row, and when, only with its extension \
                            pgrowlocks, which could not be made here";

/// What sets a session up; nothing for autocommit, which the session sees to itself.
pub(super) fn setting(setting: &SettingValue) -> Option<String> {
    Some(match setting {
        SettingValue::Isolation(level) => {
            format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
        }
        SettingValue::Autocommit(_) => return None,
        SettingValue::LockWaitTimeout(limit) => {
            // None at all would be no limit.
            format!("SET lock_timeout = '{}ms'", limit.as_millis().max(1))
        }
        SettingValue::Sql(sql) => super::as_set(sql),
    })
}

/// The locks of some, with the names of their tables. Those of a parallel worker are its leader's. Who waits for the end of a transaction keeps a
/// place in line for a row: that is what it really wants.
fn locks_of(who: &Who, only: &str) -> String {
    format!(
        "SELECT COALESCE(w.leader_pid, l.pid), l.locktype, l.mode, l.granted, n.nspname, c.relname, \
         '(' || l.page || ',' || l.tuple || ')', l.transactionid, \
         CASE WHEN l.objsubid = 1 THEN (l.classid::bigint << 32 | l.objid::bigint)::text \
           ELSE l.classid || ', ' || l.objid END, \
         l.virtualxid, c.relkind, tn.nspname, tc.relname, \
         '(' || t.page || ',' || t.tuple || ')', t.mode, \
         CASE WHEN NOT l.granted THEN array_to_string(pg_blocking_pids(l.pid), ' ') END, \
         (EXTRACT(EPOCH FROM clock_timestamp() - l.waitstart) * 1000)::bigint \
         FROM pg_locks l \
         LEFT JOIN pg_stat_activity w ON w.pid = l.pid AND w.leader_pid IS NOT NULL \
         LEFT JOIN pg_class c ON c.oid = l.relation AND l.database = (SELECT oid FROM pg_database \
           WHERE datname = current_database()) \
         LEFT JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_locks t ON NOT l.granted AND l.locktype = 'transactionid' \
           AND t.pid = l.pid AND t.locktype = 'tuple' \
         LEFT JOIN pg_class tc ON tc.oid = t.relation \
         LEFT JOIN pg_namespace tn ON tn.oid = tc.relnamespace \
         WHERE COALESCE(w.leader_pid, l.pid) IN ({}) AND {only}",
        who.list()
    )
}

/// Who waits for no lock, but for a snapshot that no writer can spoil.
fn safe_snapshots(who: &Who) -> String {
    format!(
        "SELECT pid, array_to_string(pg_safe_snapshot_blocking_pids(pid), ' ') \
         FROM pg_stat_activity WHERE wait_event = 'SafeSnapshot' AND pid IN ({})",
        who.list()
    )
}

/// What is remembered between two questions.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// How to write the primary key of a table, by schema and table; none if it has none.
    keys: HashMap<[String; 2], Option<String>>,
    /// The rows that are waited for, by who waits, for which transaction, and where: as long as somebody
    /// waits for a row, its place is not used for another.
    rows: HashMap<[String; 5], Option<String>>,
    /// How long the youngest wait had lasted when the waits were last asked for.
    youngest_wait: Option<Duration>,
    /// The names of rows that were locked, by table and place.
    places: HashMap<[String; 3], String>,
}

impl Memory {
    pub(super) async fn waits(
        &mut self,
        connection: &mut StageConnection,
        who: &Who,
    ) -> Result<Vec<Wait>, StageError> {
        let mut waits = Waits::default();
        let locks = locks_of(who, "NOT l.granted");
        let [locks, snapshots] = connection.ask_all([&locks, &safe_snapshots(who)]).await?;
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
            let mut thing = thing(who, row);
            self.name_wanted(connection, who, row, &mut thing).await?;
            waits.add(waiter, Some(thing));
            let by_prepared = prepared_blockers(connection, who, waiter, cell(row, 15)).await?;
            match by_prepared.is_empty() {
                true => blocked_by(&mut waits, waiter, cell(row, 15)),
                false => blocked_by(&mut waits, waiter, &by_prepared),
            }
        }
        for row in &snapshots {
            let Some(waiter) = number_cell(row, 0) else { continue };
            let thing = named(LockKind::Transaction, "safe snapshot".to_owned(), "");
            waits.add(waiter, Some(thing));
            blocked_by(&mut waits, waiter, cell(row, 1));
        }
        Ok(waits.of(who))
    }

    /// How long it takes until all who waited have looked for a deadlock, if they do so after this time.
    pub(super) fn next_deadlock_check(&self, deadlock_timeout: Duration) -> Duration {
        let after = deadlock_timeout + CHECK_DELAY;
        self.youngest_wait.map_or(Duration::ZERO, |waited| after.saturating_sub(waited))
    }

    /// Names the row of a lock by its primary key instead of its place.
    async fn name_wanted(
        &mut self,
        connection: &mut StageConnection,
        who: &Who,
        row: &CellRow,
        thing: &mut Thing,
    ) -> Result<(), StageError> {
        let (home, table) = match cell(row, 1) {
            "tuple" => (cell(row, 4), cell(row, 5)),
            _ => (cell(row, 11), cell(row, 12)),
        };
        let Some(place) = thing.record.clone().filter(|_| thing.kind == LockKind::Row) else {
            return Ok(());
        };
        let known = [cell(row, 0), cell(row, 7), home, table, &place].map(str::to_owned);
        let name = match self.rows.get(&known) {
            Some(name) => name.clone(),
            None => {
                let name = self.row_name(connection, who, [home, table], &place).await?;
                self.rows.insert(known, name.clone());
                name
            }
        };
        thing.record = name.or(Some(place));
        Ok(())
    }

    /// The primary key of the row at a place, if it can be read at once.
    async fn row_name(
        &mut self,
        connection: &mut StageConnection,
        who: &Who,
        [home, table]: [&str; 2],
        place: &str,
    ) -> Result<Option<String>, StageError> {
        // Somebody else's tables are not read.
        if home != who.home {
            return Ok(None);
        }
        let known = [home, table].map(str::to_owned);
        if !self.keys.contains_key(&known) {
            let key = connection.ask(&primary_key(home, table)).await?.into_iter().next();
            self.keys.insert(known.clone(), key.and_then(|mut row| row.remove(0)));
        }
        let Some(Some(key)) = self.keys.get(&known) else { return Ok(None) };
        let relation = relation(home, table);
        let key = format!("SELECT {key} || '' FROM {relation} WHERE ctid = '{place}'");
        // The table may be locked as a whole, or gone.
        let rows = connection.try_ask(&key).await?.unwrap_or_default();
        Ok(rows.into_iter().next().and_then(|mut row| row.remove(0)))
    }

    pub(super) async fn locks(
        &mut self,
        connection: &mut StageConnection,
        who: &Who,
        row_locks: Option<&str>,
    ) -> Result<LockList, StageError> {
        let mut locks = Vec::new();
        let mut tables = BTreeSet::new();
        let mut unread = None;
        let rows = connection.ask(&locks_of(who, "l.locktype <> 'virtualxid'")).await?;
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
                    ("r" | "p", home) if home == who.home => {
                        tables.insert(cell(row, 5).to_owned());
                    }
                    ("r" | "p", home) if !home.starts_with("pg_") => {}
                    // Indexes are locked along with their tables, catalogues by every statement.
                    _ => continue,
                }
            }
            let mut thing = thing(who, row);
            self.name_wanted(connection, who, row, &mut thing).await?;
            locks.extend(who.lock(pid, thing, cell(row, 3) == "t"));
        }
        match row_locks {
            None => unread = Some(NO_ROW_LOCKS.to_owned()),
            Some(schema) => {
                for table in tables {
                    match self.row_locks(connection, who, schema, &table).await? {
                        Some(rows) => locks.extend(rows),
                        None => {
                            unread = Some(format!("the row locks of {table} could not be read"));
                        }
                    }
                }
            }
        }
        locks.sort();
        locks.dedup();
        let incomplete =
            unread.map(|why| who.names().map(|name| (name.clone(), why.clone())).collect());
        Ok(LockList { locks, incomplete: incomplete.unwrap_or_default() })
    }

    /// The row at a place: its primary key if that can be read, or was when it was locked; else the place.
    pub(super) async fn row_at(
        &mut self,
        connection: &mut StageConnection,
        who: &Who,
        [home, table]: [&str; 2],
        place: &str,
    ) -> Result<String, StageError> {
        let now = self.row_name(connection, who, [home, table], place).await?;
        let known = || self.places.get(&[home, table, place].map(str::to_owned)).cloned();
        Ok(now.or_else(known).unwrap_or_else(|| place.to_owned()))
    }

    /// Who has rows of a table, by the extension that tells; `None` if the table cannot be read.
    async fn row_locks(
        &mut self,
        connection: &mut StageConnection,
        who: &Who,
        schema: &str,
        table: &str,
    ) -> Result<Option<Vec<Lock>>, StageError> {
        let sql = format!(
            "SELECT r.locked_row, p.pid, m.mode FROM {schema}.pgrowlocks({}) r, \
             unnest(r.pids) WITH ORDINALITY p(pid, n), unnest(r.modes) WITH ORDINALITY m(mode, n) \
             WHERE p.n = m.n",
            quoted(&relation(&who.home, table), '\'')
        );
        let mut locks = Vec::new();
        // Behind a change of the table it cannot be read.
        let Ok(rows) = connection.try_ask(&sql).await? else { return Ok(None) };
        for row in rows {
            let Some(pid) = number_cell(&row, 1) else { continue };
            let place = cell(&row, 0);
            let name = self.row_name(connection, who, [&who.home, table], place).await?;
            if let Some(name) = &name {
                self.places.insert([&who.home, table, place].map(str::to_owned), name.clone());
            }
            let thing = Thing {
                record: name.or_else(|| Some(place.to_owned())),
                ..named(LockKind::Row, table.to_owned(), cell(&row, 2))
            };
            locks.extend(who.lock(pid, thing, true));
        }
        Ok(Some(locks))
    }
}

/// The blockers of a session, a prepared transaction being the session that prepared it; empty if there is
/// none among them that one of the case has prepared.
async fn prepared_blockers(
    connection: &mut StageConnection,
    who: &Who,
    waiter: i64,
    blockers: &str,
) -> Result<String, StageError> {
    // Prepared transactions have no process, and no number.
    if who.prepared.is_empty() || !blockers.split(' ').any(|pid| pid == "0") {
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
    let rows = connection.ask(&sql).await?;
    let preparer = |row: &CellRow| who.prepared.iter().find(|(name, _)| name == cell(row, 0));
    let preparers: Vec<&(String, i64)> = rows.iter().filter_map(preparer).collect();
    // One that nobody of the case has prepared stays a stranger.
    if preparers.is_empty() || preparers.len() < rows.len() {
        return Ok(String::new());
    }
    let others = blockers.split(' ').filter(|pid| *pid != "0").map(str::to_owned);
    let preparers = preparers.iter().map(|(_, id)| id.to_string());
    Ok(others.chain(preparers).collect::<Vec<_>>().join(" "))
}

/// Asks how to write the primary key of a table.
fn primary_key(home: &str, table: &str) -> String {
    format!(
        "SELECT string_agg(quote_ident(a.attname), ' || '', '' || ' ORDER BY k.n) \
         FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, n), pg_attribute a \
         WHERE i.indrelid = (SELECT c.oid FROM pg_class c JOIN pg_namespace s \
           ON s.oid = c.relnamespace WHERE s.nspname = {} AND c.relname = {}) AND i.indisprimary \
         AND a.attrelid = i.indrelid AND a.attnum = k.attnum",
        quoted(home, '\''),
        quoted(table, '\'')
    )
}

fn relation(home: &str, table: &str) -> String {
    format!("{}.{}", quoted(home, '"'), quoted(table, '"'))
}

fn blocked_by(waits: &mut Waits, waiter: i64, list: &str) {
    for blocker in list.split(' ').filter_map(|pid| pid.parse().ok()) {
        waits.blocked_by(waiter, blocker);
    }
}

/// What a lock is on.
fn thing(who: &Who, row: &CellRow) -> Thing {
    let mode = cell(row, 2);
    let table = || who.table(cell(row, 4), cell(row, 5));
    match cell(row, 1) {
        "relation" | "extend" | "page" => named(LockKind::Table, table(), mode),
        "tuple" => Thing { record: row[6].clone(), ..named(LockKind::Row, table(), mode) },
        // It waits for a transaction because of a row.
        "transactionid" if !cell(row, 12).is_empty() => {
            let table = who.table(cell(row, 11), cell(row, 12));
            Thing { record: row[13].clone(), ..named(LockKind::Row, table, cell(row, 14)) }
        }
        "transactionid" => named(LockKind::Transaction, cell(row, 7).to_owned(), mode),
        "virtualxid" => named(LockKind::Transaction, cell(row, 9).to_owned(), mode),
        "advisory" => named(LockKind::Advisory, cell(row, 8).to_owned(), mode),
        other => named(LockKind::Other, other.to_owned(), mode),
    }
}

pub(super) fn named(kind: LockKind, object: String, mode: &str) -> Thing {
    Thing { kind, object, index: None, record: None, mode: mode.to_owned() }
}

pub(super) fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}
