//! The meaning of locks in plain words, as one table for all servers. Pure.

use super::{LockKind, LockTarget};

/// The kind of locked object, as far as the words differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockObject {
    /// An index record of InnoDB, or the gap before it.
    Record,
    /// The supremum record of an InnoDB index, of which only the gap can be locked.
    Supremum,
    Table,
    /// A row of PostgreSQL, for which sessions queue.
    Tuple,
    Transaction,
    Advisory,
    /// Another object, whose kind is the beginning of its name.
    Object,
}

use LockObject::{Advisory, Object, Record, Supremum, Table, Transaction, Tuple};

/// Returns the words for a holder or for a waiter, by the object and the mode as the server writes it. `{row}`, `{table}`
/// and `{object}` are replaced.
fn template(target: &LockTarget, granted: bool) -> String {
    let begins_with = |begin: &str| target.object.starts_with(begin);
    let words = |held: &str, waits: &str| if granted { held } else { waits }.to_owned();
    let hold = |object: &str| words("holds ", "waits for ") + object;
    let lock = |object: &str| words("holds ", "waits to lock ") + object;
    let next = |action: &str| words("is next to ", "waits to be next to ") + action;
    match (lock_object(target), target.mode.as_str()) {
        (Record, "X,REC_NOT_GAP") => lock("{row} exclusively"),
        (Record, "S,REC_NOT_GAP") => lock("{row} shared"),
        (Record, "X,GAP" | "S,GAP") => words(
            "holds the gap before {row}, so that nobody else inserts into it",
            "waits to lock the gap before {row}",
        ),
        (Record, "X") => lock("{row} exclusively, and the gap before it"),
        (Record, "S") => lock("{row} shared, and the gap before it"),
        (Record, "X,GAP,INSERT_INTENTION" | "X,INSERT_INTENTION") => words(
            "holds a place to insert into the gap before {row}",
            "waits to insert into the gap before {row}",
        ),
        (Supremum, "X,GAP,INSERT_INTENTION" | "X,INSERT_INTENTION") => words(
            "holds a place to insert behind the last row of {table}",
            "waits to insert behind the last row of {table}",
        ),
        (Supremum, _) => words(
            "holds the gap behind the last row of {table}, so that nobody else inserts there",
            "waits to lock the gap behind the last row of {table}",
        ),
        (Table, "IX") => words(
            "holds the right to change or lock rows of {table}",
            "waits to change or lock rows of {table}",
        ),
        (Table, "IS") => words(
            "holds the right to lock rows of {table} shared",
            "waits to lock rows of {table} shared",
        ),
        (Table, "X") => lock("all of {table} exclusively"),
        (Table, "S") => lock("all of {table} shared"),
        (Table, "AUTO_INC") => hold("the AUTO_INCREMENT counter of {table}"),
        (Table, "AccessShareLock") => {
            words("reads {table}", "waits to read {table} (ACCESS SHARE, as SELECT does)")
        }
        (Table, "RowShareLock") => words(
            "locks rows of {table}",
            "waits to lock rows of {table} (ROW SHARE, as SELECT … FOR UPDATE does)",
        ),
        (Table, "RowExclusiveLock") => words(
            "changes rows of {table}",
            "waits to change rows of {table} (ROW EXCLUSIVE, as INSERT, UPDATE and DELETE do)",
        ),
        (Table, "ShareUpdateExclusiveLock") => words(
            "maintains {table}",
            "waits to maintain {table} (SHARE UPDATE EXCLUSIVE, as VACUUM and CREATE INDEX CONCURRENTLY do)",
        ),
        (Table, "ShareLock") => words(
            "keeps others from changing {table}",
            "waits to keep others from changing {table} (SHARE, as CREATE INDEX does)",
        ),
        (Table, "ShareRowExclusiveLock") => words(
            "keeps others from changing {table}",
            "waits to keep others from changing {table} (SHARE ROW EXCLUSIVE, as CREATE TRIGGER and a new foreign key do)",
        ),
        (Table, "ExclusiveLock") => words(
            "lets others only read {table}",
            "waits to let others only read {table} (EXCLUSIVE, as REFRESH MATERIALIZED VIEW CONCURRENTLY does)",
        ),
        (Table, "AccessExclusiveLock") => words(
            "holds all of {table} exclusively",
            "waits to lock all of {table} exclusively (ACCESS EXCLUSIVE, as ALTER TABLE, DROP and TRUNCATE do)",
        ),
        (Tuple, "AccessShareLock") => next("lock {row} (FOR KEY SHARE)"),
        (Tuple, "RowShareLock") => next("lock {row} (FOR SHARE)"),
        (Tuple, "ExclusiveLock") => next("change {row} (UPDATE, FOR NO KEY UPDATE)"),
        (Tuple, "AccessExclusiveLock") => next("lock {row} (FOR UPDATE, DELETE)"),
        (Tuple, "updating") => words("is next to update {row}", "waits to update {row}"),
        (Tuple, "deleting") => words("is next to delete {row}", "waits to delete {row}"),
        (Tuple, "locking") => words("is next to lock {row}", "waits to lock {row}"),
        (Tuple, "inserting") => words(
            "is next to insert {row}",
            "waits to insert a key that another transaction has inserted into {table}",
        ),
        (Tuple, _) => next("lock {row}"),
        (Transaction, "ShareLock") => words(
            "waits for transaction {object} to end",
            "waits for transaction {object} to end, which has locked or changed a row",
        ),
        (Transaction, _) => {
            words("is transaction {object}", "waits for transaction {object} to end")
        }
        (Advisory, "ExclusiveLock") => words(
            "holds advisory lock {object} exclusively",
            "waits for advisory lock {object}, exclusively",
        ),
        (Advisory, "ShareLock") => {
            words("holds advisory lock {object} shared", "waits for advisory lock {object}, shared")
        }
        (Advisory, _) => hold("the lock {object}"),
        (Object, _) if begins_with("virtual transaction") => {
            words("is {object}", "waits for {object} to end, as CREATE INDEX CONCURRENTLY does")
        }
        (Object, _) if begins_with("speculative token") => words(
            "inserts with ON CONFLICT ({object})",
            "waits for an INSERT … ON CONFLICT of another transaction ({object})",
        ),
        (Object, _) if begins_with("extension") => {
            words("adds pages to a table ({object})", "waits to add pages to a table ({object})")
        }
        (Object, _) if begins_with("page") => hold("a page of an index ({object})"),
        (Object, "AccessExclusiveLock") if begins_with("object") => words(
            "changes or drops {object}",
            "waits to change or drop {object}, such as a type, a schema or a database",
        ),
        (Object, "AccessShareLock") if begins_with("object") => {
            words("uses {object}", "waits to use {object}, such as a type, a schema or a database")
        }
        (Object, _) if begins_with("object") => {
            words("holds {object}", "waits for {object}, such as a type, a schema or a database")
        }
        (Object, _) if begins_with("frozen") => {
            words("updates the {object}", "waits to update the {object}")
        }
        (Object, "X") => words("holds {object} exclusively", "waits for {object}, exclusively"),
        (Object, "S") => words("holds {object} shared", "waits for {object}, shared"),
        _ => hold("{object}"),
    }
}

/// Describes the holder of a lock, or the session that waits for it:
/// `waits to insert into the gap before id 10 of shop.orders`. `columns` are the key columns, if known.
pub fn lock_words(target: &LockTarget, columns: &[String], granted: bool) -> String {
    let words = template(target, granted);
    let table = table_name(target);
    let object = if target.schema.is_some() { &table } else { &target.object };
    // The inserted texts may contain braces, so only one placeholder is replaced.
    let parts = [
        ("{row}", row(target, columns, &table)),
        ("{table}", table.clone()),
        ("{object}", object.clone()),
    ];
    match parts.iter().find_map(|(name, value)| Some((words.split_once(name)?, value))) {
        Some(((before, after), value)) => format!("{before}{value}{after}"),
        None => words,
    }
}

fn lock_object(target: &LockTarget) -> LockObject {
    let is_supremum = target.record.as_deref() == Some("supremum");
    // The lock modes of PostgreSQL, and the verbs of its error contexts.
    let is_postgres = target.mode.ends_with("Lock") || target.mode.ends_with("ing");
    match target.kind {
        LockKind::Row | LockKind::Gap if target.index.is_none() || is_postgres => Tuple,
        LockKind::Row | LockKind::Gap if is_supremum => Supremum,
        LockKind::Row | LockKind::Gap => Record,
        LockKind::Table | LockKind::Metadata => Table,
        LockKind::Transaction => Transaction,
        LockKind::Advisory => Advisory,
        LockKind::Node | LockKind::Other => Object,
    }
}

/// Returns `shop.orders`, or the OID where PostgreSQL reports only that.
fn table_name(target: &LockTarget) -> String {
    let is_number =
        !target.object.is_empty() && target.object.bytes().all(|byte| byte.is_ascii_digit());
    match &target.schema {
        Some(schema) => format!("{schema}.{}", target.object),
        None if is_number => format!("table number {}", target.object),
        None => target.object.clone(),
    }
}

/// Returns `id 10 of shop.orders`; `email 'a', id 1 of shop.users (index by_email)`; `the row at (0,1) of accounts`.
fn row(target: &LockTarget, columns: &[String], table: &str) -> String {
    let index = match target.index.as_deref() {
        None | Some("PRIMARY" | "GEN_CLUST_INDEX") => String::new(),
        Some(index) => format!(" (index {index})"),
    };
    let Some(record) = &target.record else { return format!("a row of {table}{index}") };
    let values = super::key_value::fields(record);
    let name = if target.index.is_none() {
        format!("the row at {record}")
    } else if !columns.is_empty() && values.len() <= columns.len() {
        let named = columns.iter().zip(values).map(|(column, value)| format!("{column} {value}"));
        named.collect::<Vec<_>>().join(", ")
    } else {
        format!("key {record}")
    };
    format!("{name} of {table}{index}")
}

#[cfg(test)]
mod tests;
