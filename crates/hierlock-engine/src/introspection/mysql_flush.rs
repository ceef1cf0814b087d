//! Waits of MySQL for `FLUSH TABLES`, which are in no table of locks. `FLUSH TABLES t` waits until no session has the
//! old version of `t` open, and sessions that want to open `t` wait for the same. Both are visible only as a state of
//! the session. The metadata locks show which sessions have a table open: those with LOCK TABLES, and those within a
//! statement. A transaction between two statements has no table open, though it keeps its metadata lock.

use super::wait_list::WaitList;
use super::{IntrospectionScope, LockKind, LockTarget};
use crate::row::{CellRow, cell, number_cell};
use crate::{Driver, StatementWords};

const STATE: &str = "Waiting for table flush";

/// The query for all such waiters, if one of them is in the scope: process id, statement, database.
pub(super) fn waiters(scope: &IntrospectionScope) -> String {
    format!(
        "SELECT PROCESSLIST_ID, PROCESSLIST_INFO, PROCESSLIST_DB FROM performance_schema.threads \
         WHERE PROCESSLIST_STATE = '{STATE}' AND EXISTS (SELECT 1 FROM performance_schema.threads o \
         WHERE o.PROCESSLIST_STATE = '{STATE}' AND {})",
        scope.condition("o.PROCESSLIST_ID")
    )
}

/// The query for open tables: process id, schema, table.
pub(super) const OPEN_TABLES: &str = "SELECT t.PROCESSLIST_ID, m.OBJECT_SCHEMA, m.OBJECT_NAME FROM performance_schema.metadata_locks m \
     JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
     WHERE m.OBJECT_TYPE = 'TABLE' AND m.LOCK_STATUS = 'GRANTED' \
     AND t.PROCESSLIST_ID <> CONNECTION_ID() \
     AND COALESCE(t.PROCESSLIST_STATE, '') <> 'Waiting for table flush' \
     AND (m.LOCK_TYPE IN ('SHARED_READ_ONLY', 'SHARED_NO_WRITE', 'SHARED_NO_READ_WRITE', 'EXCLUSIVE') \
       OR t.PROCESSLIST_COMMAND <> 'Sleep')";

pub(super) fn add_waits(waiters: &[CellRow], open: &[CellRow], waits: &mut WaitList) {
    let statement = |row: &CellRow| StatementWords::of(Driver::Mysql, cell(row, 1));
    let statements: Vec<(i64, StatementWords, &str)> = waiters
        .iter()
        .filter_map(|row| Some((number_cell(row, 0)?, statement(row), cell(row, 2))))
        .collect();
    let is_flushed = |schema: &str, table: &str| {
        let mut flushes = statements.iter().filter(|(_, words, _)| words.first() == "flush");
        // The session of the FLUSH may have given up. The old version still has to be closed.
        flushes.clone().next().is_none()
            || flushes.any(|(_, words, database)| concerns(words, database, schema, table))
    };
    for (waiter, words, database) in &statements {
        for row in open {
            let (Some(holder), schema, table) = (number_cell(row, 0), cell(row, 1), cell(row, 2))
            else {
                continue;
            };
            let wants = concerns(words, database, schema, table);
            if holder != *waiter && wants && is_flushed(schema, table) {
                let target = LockTarget::of_table(LockKind::Table, schema, table, "FLUSH");
                waits.add(*waiter, target, [holder]);
            }
        }
        // Has no effect if a table was found.
        waits.add(*waiter, LockTarget::new(LockKind::Table, "table flush", "FLUSH"), []);
    }
}

/// Returns whether a statement is `FLUSH TABLES` without a table, or names this one, with its schema or in the session's
/// database.
fn concerns(words: &StatementWords, database: &str, schema: &str, table: &str) -> bool {
    let flushes_all = words.first() == "flush"
        && words.is_all_of(&["flush", "local", "no_write_to_binlog", "table", "tables"]);
    flushes_all || words.has_name(table) && (schema == database || words.has_name(schema))
}
