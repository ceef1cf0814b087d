//! What MySQL tells: its tables of locks and of waits are live, and complete.

use super::dictionary::Dictionary;
use super::metadata::{MetadataLock, Scope};
use super::{
    IntrospectionScope, LockKind, LockList, LockTarget, LockWait, SessionLock, WaitList, ask_all,
    innodb, mysql_flush,
};
use crate::row::{CellRow, cell, number_cell};
use crate::{Dialect, SessionRef};

/// Whoever asks must be allowed to.
pub(super) const PERMISSION_CHECK: &str = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";

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
fn row_waits(scope: &IntrospectionScope) -> String {
    format!(
        "SELECT {} AS waiter, {} AS blocker, \
         l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, l.LOCK_MODE, l.LOCK_DATA \
         FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.data_locks l \
           ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         HAVING {}",
        owner("w.REQUESTING_ENGINE_TRANSACTION_ID"),
        owner("w.BLOCKING_ENGINE_TRANSACTION_ID"),
        scope.condition("waiter")
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
fn table_level(scope: &IntrospectionScope) -> String {
    format!(
        "SELECT PROCESSLIST_ID FROM performance_schema.threads \
         WHERE {} AND PROCESSLIST_STATE = 'Waiting for table level lock'",
        scope.condition("PROCESSLIST_ID")
    )
}

pub(super) async fn waits(
    session: &mut SessionRef<'_>,
    dictionary: &mut Dictionary,
    scope: &IntrospectionScope,
) -> Result<Vec<LockWait>, sqlx::Error> {
    let pending = format!(
        "EXISTS (SELECT 1 FROM performance_schema.metadata_locks p \
         JOIN performance_schema.threads q ON q.THREAD_ID = p.OWNER_THREAD_ID \
         WHERE p.LOCK_STATUS = 'PENDING' AND {} \
         AND p.OBJECT_TYPE = m.OBJECT_TYPE AND p.OBJECT_SCHEMA <=> m.OBJECT_SCHEMA \
         AND p.OBJECT_NAME <=> m.OBJECT_NAME)",
        scope.condition("q.PROCESSLIST_ID")
    );
    let questions = [
        &row_waits(scope),
        &metadata_locks(&pending),
        &table_level(scope),
        &mysql_flush::waiters(scope),
    ];
    let [data, metadata, states, flushes] = ask_all(session, questions.map(String::as_str)).await?;
    let mut waits = WaitList::default();
    for row in &data {
        let Some(waiter) = number_cell(row, 0) else { continue };
        learn(dictionary, session, &row[2..]).await?;
        waits.add(waiter, data_lock(dictionary, &row[2..]));
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
        waits.add(lock.owner, lock.target(&blockers));
        for blocker in blockers {
            waits.blocked_by(lock.owner, blocker.owner);
        }
    }
    for row in &states {
        let Some(waiter) = number_cell(row, 0).filter(|id| !waits.has(*id)) else { continue };
        waits.add(waiter, LockTarget::new(LockKind::Table, "table level lock", ""));
    }
    if !flushes.is_empty() {
        let open = session.cells(mysql_flush::OPEN_TABLES).await?;
        mysql_flush::add_waits(&flushes, &open, &mut waits);
    }
    Ok(waits.in_scope(scope))
}

pub(super) async fn locks(
    session: &mut SessionRef<'_>,
    dictionary: &mut Dictionary,
    scope: &IntrospectionScope,
) -> Result<LockList, sqlx::Error> {
    let sql = format!(
        "SELECT {}, l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, l.LOCK_MODE, \
         l.LOCK_DATA, l.LOCK_STATUS FROM performance_schema.data_locks l",
        owner("l.ENGINE_TRANSACTION_ID")
    );
    let rows = session.cells(&sql).await?;
    let mut locks = Vec::new();
    for row in &rows {
        let Some(owner) = number_cell(row, 0).filter(|pid| scope.has(*pid)) else {
            continue;
        };
        learn(dictionary, session, &row[1..]).await?;
        let granted = cell(row, 7) == "GRANTED";
        let target = data_lock(dictionary, &row[1..]);
        locks.push(SessionLock { session: owner, target, granted });
    }
    let ours = scope.condition("t.PROCESSLIST_ID");
    let rows = session.cells(&metadata_locks(&ours)).await?;
    locks.extend(rows.iter().filter_map(metadata_lock).filter_map(|lock| {
        // Every statement has these, on everything that contains its tables.
        let is_noise = matches!(&lock.scope, Scope::Other(_)) && lock.mode == "INTENTION_EXCLUSIVE";
        (!is_noise).then(|| lock.session_lock())
    }));
    locks.sort();
    locks.dedup();
    Ok(LockList { locks, ..LockList::default() })
}

/// Learns the columns of the index of a lock.
async fn learn(
    dictionary: &mut Dictionary,
    session: &mut SessionRef<'_>,
    row: &[Option<String>],
) -> Result<(), sqlx::Error> {
    match cell(row, 3) {
        "RECORD" => {
            let place = [cell(row, 0), cell(row, 1), cell(row, 2)];
            innodb::learn(dictionary, session, Dialect::Mysql, place).await
        }
        _ => Ok(()),
    }
}

/// Schema, table, index, type, mode, data.
fn data_lock(dictionary: &Dictionary, row: &[Option<String>]) -> LockTarget {
    let (schema, table, index, mode) = (cell(row, 0), cell(row, 1), cell(row, 2), cell(row, 4));
    match cell(row, 3) {
        "RECORD" => {
            let place = [schema, table, index];
            let record = row[5].as_deref().map(|data| match data.starts_with("supremum") {
                true => data.to_owned(),
                false => dictionary.record_of_data(place, data),
            });
            innodb::record(place, record.as_deref(), mode)
        }
        "TABLE" => LockTarget::of_table(LockKind::Table, schema, table, mode),
        other => {
            let object = format!("{} {table}", other.to_lowercase());
            LockTarget::of_table(LockKind::Other, schema, &object, mode)
        }
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
        schema: cell(row, 2).to_owned(),
        name: cell(row, 3).to_owned(),
        mode: cell(row, 4).to_owned(),
        granted: cell(row, 5) == "GRANTED",
    })
}
