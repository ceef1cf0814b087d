//! What MySQL tells: its tables of locks and of waits are live, and complete.

use super::connection::StageConnection;
use super::dictionary::Dictionary;
use super::metadata::{MetadataLock, Scope};
use super::who::{Waits, Who};
use super::{LockList, StageError, flush, innodb};
use crate::observation::{Lock, LockKind, Thing, Wait};
use hierlock_engine::{CellRow, Dialect, cell, number_cell};

/// Whoever asks must be allowed to.
pub(super) const TRIAL: &str = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";

/// The connection of a transaction, in SQL.
///
/// The thread of a lock is the one that *made* it, and that need not be its owner: the lock of a row just
/// inserted is made by whoever first wants it, and an update that moves a record makes all requests for it
/// anew, those of others too. But the lock on the table, which every transaction takes before its rows,
/// is made by itself and never moved.
fn owner(transaction: &str) -> String {
    format!(
        "(SELECT MAX(o.PROCESSLIST_ID) FROM performance_schema.data_locks h \
         JOIN performance_schema.threads o ON o.THREAD_ID = h.THREAD_ID \
         WHERE h.ENGINE_TRANSACTION_ID = {transaction} AND h.LOCK_TYPE = 'TABLE')"
    )
}

/// Who waits for a row or a table of InnoDB, blocker by blocker.
fn row_waits(who: &Who) -> String {
    format!(
        "SELECT {} AS waiter, {} AS blocker, \
         l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, l.LOCK_MODE, l.LOCK_DATA \
         FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.data_locks l \
           ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         HAVING waiter IN ({})",
        owner("w.REQUESTING_ENGINE_TRANSACTION_ID"),
        owner("w.BLOCKING_ENGINE_TRANSACTION_ID"),
        who.list()
    )
}

/// All metadata locks on anything that a session of ours has one on, or wants one on.
fn metadata_locks(only: &str) -> String {
    format!(
        "SELECT t.PROCESSLIST_ID, m.OBJECT_TYPE, m.OBJECT_SCHEMA, m.OBJECT_NAME, m.LOCK_TYPE, \
         m.LOCK_STATUS FROM performance_schema.metadata_locks m \
         JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
         WHERE t.PROCESSLIST_ID <> CONNECTION_ID() AND {only}"
    )
}

/// Who waits for a table of an dialect without rows to lock; for whom, it does not tell.
fn table_level(who: &Who) -> String {
    format!(
        "SELECT PROCESSLIST_ID FROM performance_schema.threads \
         WHERE PROCESSLIST_ID IN ({}) AND PROCESSLIST_STATE = 'Waiting for table level lock'",
        who.list()
    )
}

pub(super) async fn waits(
    connection: &mut StageConnection,
    dictionary: &mut Dictionary,
    who: &Who,
) -> Result<Vec<Wait>, StageError> {
    let pending = format!(
        "EXISTS (SELECT 1 FROM performance_schema.metadata_locks p \
         JOIN performance_schema.threads q ON q.THREAD_ID = p.OWNER_THREAD_ID \
         WHERE p.LOCK_STATUS = 'PENDING' AND q.PROCESSLIST_ID IN ({}) \
         AND p.OBJECT_TYPE = m.OBJECT_TYPE AND p.OBJECT_SCHEMA <=> m.OBJECT_SCHEMA \
         AND p.OBJECT_NAME <=> m.OBJECT_NAME)",
        who.list()
    );
    let questions =
        [&row_waits(who), &metadata_locks(&pending), &table_level(who), &flush::waiters(who)];
    let [data, metadata, states, flushes] =
        connection.ask_all(questions.map(String::as_str)).await?;
    let mut waits = Waits::default();
    for row in &data {
        let Some(waiter) = number_cell(row, 0) else { continue };
        learn(dictionary, connection, &row[2..]).await?;
        waits.add(waiter, Some(data_lock(who, dictionary, &row[2..])));
        if let Some(blocker) = number_cell(row, 1) {
            waits.blocked_by(waiter, blocker);
        }
    }
    let locks: Vec<MetadataLock> = metadata.iter().filter_map(metadata_lock).collect();
    for lock in locks.iter().filter(|lock| !lock.granted) {
        let blockers: Vec<&MetadataLock> = lock.blockers(&locks).collect();
        // Granted in the meantime, or given up.
        if blockers.is_empty() {
            continue;
        }
        waits.add(lock.owner, Some(lock.thing(who, &blockers)));
        for blocker in blockers {
            waits.blocked_by(lock.owner, blocker.owner);
        }
    }
    for row in &states {
        let Some(waiter) = number_cell(row, 0).filter(|id| !waits.has(*id)) else { continue };
        let object = "table level lock".to_owned();
        let (kind, mode) = (LockKind::Table, String::new());
        waits.add(waiter, Some(Thing { kind, object, index: None, record: None, mode }));
    }
    if !flushes.is_empty() {
        let open = connection.ask(flush::OPEN_TABLES).await?;
        flush::add_waits(who, &flushes, &open, &mut waits);
    }
    Ok(waits.of(who))
}

pub(super) async fn locks(
    connection: &mut StageConnection,
    dictionary: &mut Dictionary,
    who: &Who,
) -> Result<LockList, StageError> {
    let sql = format!(
        "SELECT {}, l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, l.LOCK_MODE, \
         l.LOCK_DATA, l.LOCK_STATUS FROM performance_schema.data_locks l",
        owner("l.ENGINE_TRANSACTION_ID")
    );
    let rows = connection.ask(&sql).await?;
    let mut locks: Vec<Lock> = Vec::new();
    for row in &rows {
        let Some(owner) = number_cell(row, 0).filter(|id| who.name(*id).is_some()) else {
            continue;
        };
        learn(dictionary, connection, &row[1..]).await?;
        let granted = cell(row, 7) == "GRANTED";
        locks.extend(who.lock(owner, data_lock(who, dictionary, &row[1..]), granted));
    }
    let ours = format!("t.PROCESSLIST_ID IN ({})", who.list());
    let rows = connection.ask(&metadata_locks(&ours)).await?;
    locks.extend(rows.iter().filter_map(metadata_lock).filter_map(|lock| {
        // Every statement has these, on everything that contains its tables.
        let is_noise = matches!(&lock.scope, Scope::Other(_)) && lock.mode == "INTENTION_EXCLUSIVE";
        (!is_noise).then(|| who.lock(lock.owner, lock.thing(who, &[]), lock.granted))?
    }));
    locks.sort();
    locks.dedup();
    Ok(LockList { locks, ..LockList::default() })
}

/// Learns the columns of the index of a lock.
async fn learn(
    dictionary: &mut Dictionary,
    connection: &mut StageConnection,
    row: &[Option<String>],
) -> Result<(), StageError> {
    match cell(row, 3) {
        "RECORD" => {
            let place = [cell(row, 0), cell(row, 1), cell(row, 2)];
            innodb::learn(dictionary, connection, Dialect::Mysql, place).await
        }
        _ => Ok(()),
    }
}

/// Schema, table, index, type, mode, data.
fn data_lock(who: &Who, dictionary: &Dictionary, row: &[Option<String>]) -> Thing {
    let (home, table, index) = (cell(row, 0), cell(row, 1), cell(row, 2));
    match cell(row, 3) {
        "RECORD" => {
            let place = [home, table, index];
            let record = row[5].as_deref().map(|told| match told.starts_with("supremum") {
                true => told.to_owned(),
                false => dictionary.told_record(place, told),
            });
            innodb::record(who, place, record.as_deref(), cell(row, 4))
        }
        "TABLE" => innodb::table(who, home, table, cell(row, 4)),
        other => Thing {
            kind: LockKind::Other,
            object: format!("{} {}", other.to_lowercase(), who.table(home, table)),
            index: None,
            record: None,
            mode: cell(row, 4).to_owned(),
        },
    }
}

fn metadata_lock(row: &CellRow) -> Option<MetadataLock> {
    let scope = match cell(row, 1) {
        "TABLE" | "FUNCTION" | "PROCEDURE" | "TRIGGER" | "EVENT" => Scope::Object,
        "USER LEVEL LOCK" => Scope::User,
        other => Scope::Other(other.to_owned()),
    };
    Some(MetadataLock {
        owner: number_cell(row, 0)?,
        scope,
        home: cell(row, 2).to_owned(),
        name: cell(row, 3).to_owned(),
        mode: cell(row, 4).to_owned(),
        granted: cell(row, 5) == "GRANTED",
    })
}
