//! Waits of MySQL for `FLUSH TABLES`. They are in no table of locks: `FLUSH TABLES t` waits until nobody has the old
//! version of `t` open, and who wants to open `t` meanwhile waits for the same. Both show only as a state of the session.
//! Who has a table open is told by its metadata locks: a session with LOCK TABLES, or one in the middle of a statement. A
//! transaction between two statements has no table open, though it keeps its metadata lock.

use super::wait_list::WaitList;
use super::{IntrospectionScope, LockKind, LockTarget};
use crate::row::{CellRow, cell, number_cell};
use crate::{Driver, StatementWords};

const STATE: &str = "Waiting for table flush";

/// Asks who waits so, if one of ours does: session, statement, database.
pub(super) fn waiters(scope: &IntrospectionScope) -> String {
    format!(
        "SELECT PROCESSLIST_ID, PROCESSLIST_INFO, PROCESSLIST_DB FROM performance_schema.threads \
         WHERE PROCESSLIST_STATE = '{STATE}' AND EXISTS (SELECT 1 FROM performance_schema.threads o \
         WHERE o.PROCESSLIST_STATE = '{STATE}' AND {})",
        scope.condition("o.PROCESSLIST_ID")
    )
}

/// Asks who has which table open: session, schema, table.
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
        // Whoever flushed it may have given up; its old version still has to be closed.
        flushes.clone().next().is_none()
            || flushes.any(|(_, words, own)| flushes_all(words) || names(words, own, schema, table))
    };
    for (waiter, words, own) in &statements {
        for row in open {
            let (Some(holder), schema, table) = (number_cell(row, 0), cell(row, 1), cell(row, 2))
            else {
                continue;
            };
            let wants = flushes_all(words) || names(words, own, schema, table);
            if holder != *waiter && wants && is_flushed(schema, table) {
                let target = LockTarget::of_table(LockKind::Table, schema, table, "FLUSH");
                waits.add(*waiter, target, [holder]);
            }
        }
        // Unless a table has been found.
        waits.add(*waiter, LockTarget::new(LockKind::Table, "table flush", "FLUSH"), []);
    }
}

/// `FLUSH TABLES` without a table.
fn flushes_all(words: &StatementWords) -> bool {
    words.first() == "flush"
        && words.is_all_of(&["flush", "local", "no_write_to_binlog", "table", "tables"])
}

/// Does a statement name a table, or leave its database to the session's own?
fn names(words: &StatementWords, own: &str, schema: &str, table: &str) -> bool {
    words.has_name(table) && (schema == own || words.has_name(schema))
}
