//! What MySQL and MariaDB have in common: rows of InnoDB.

use super::session::Meaning;
use super::statement::{Statement, Value, Wait, runs};
use super::{Dialect, Scheme, mariadb, mysql};
use crate::plan::Step;

/// From so many rows on, a list is joined instead of one SELECT a row.
const LIST_FROM: usize = 4;
/// Up to so many SELECTs are one prepared statement; more of them come in too many shapes to keep.
const PREPARED_UP_TO: usize = 12;

/// Its version, our number, and whether it only follows another.
pub(super) const HELLO: &str = "SELECT VERSION(), CONNECTION_ID(), @@read_only";

/// What a session that locks is told once: only rows of the plan are locked, a transaction begins by
/// itself, and a wait ends when *we* say so.
pub(super) fn settings(lock_wait_timeout: u32) -> String {
    format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION autocommit = 0, innodb_lock_wait_timeout = {lock_wait_timeout}"
    )
}

/// The longest that a server knows: 34 years.
pub(super) const LONGEST_WAIT: u32 = 1_073_741_824;

pub(super) fn cancel(pid: i64) -> String {
    format!("KILL QUERY {pid}")
}

pub(super) fn terminate(pid: i64) -> String {
    format!("KILL {pid}")
}

/// Branches of a UNION ALL, which InnoDB runs one after the other. A long run of rows is a list of
/// values joined to the table: the order is that of the list, and each row is looked up by its key. (A
/// bare `IN` would scan when it is long, and lock what it passes.)
///
/// A single row is looked up before anything runs, while the statement is being optimised: so after
/// the first list, everything is a list.
pub(super) fn take_rows(scheme: &Scheme, steps: &[Step], wait: Wait) -> Statement {
    let first_list = runs(steps).position(|run| run.len() >= LIST_FROM).unwrap_or(usize::MAX);
    let prepared = steps.len() <= PREPARED_UP_TO && first_list == usize::MAX;
    let mut values = Vec::new();
    let mut branches = Vec::new();
    let mut place = |value: Value| match prepared {
        true => {
            values.push(value);
            "?".to_owned()
        }
        false => value.literal(scheme.dialect),
    };
    for (number, run) in runs(steps).enumerate() {
        if number >= first_list {
            branches.push(list(scheme, run, wait));
            continue;
        }
        for step in run {
            branches.push(single(scheme, step, wait, &mut place));
        }
    }
    let sql = match branches.len() {
        1 => branches.remove(0),
        _ => format!("({})", branches.join(")\nUNION ALL (")),
    };
    Statement { sql, values }
}

fn single(
    scheme: &Scheme,
    step: &Step,
    wait: Wait,
    place: &mut impl FnMut(Value) -> String,
) -> String {
    // The key text says its level itself.
    let level = match scheme.strategy.is_by_id() {
        true => String::new(),
        false => place(Value::Number(step.level as u64)),
    };
    let row = scheme.row(&level, &place(scheme.value(step)));
    let (fence, table, clause) =
        (scheme.fence(), scheme.rows_table(), scheme.clause(step.mode, wait));
    format!("SELECT {fence} FROM {table} WHERE {row} {clause}")
}

fn list(scheme: &Scheme, run: &[Step], wait: Wait) -> String {
    let values = run.iter().map(|step| scheme.value(step).literal(scheme.dialect));
    // A list of one would be looked up early too; nothing equals NULL.
    let values = values.chain((run.len() == 1).then(|| "NULL".to_owned()));
    let list = match scheme.dialect {
        Dialect::Mariadb => mariadb::list(values),
        _ => mysql::list(values),
    };
    let [first, ..] = run else { return String::new() };
    let level = match scheme.strategy.is_by_id() {
        true => String::new(),
        false => format!("c.level = {} AND ", first.level),
    };
    let (fence, table, column) = (scheme.fence(), scheme.rows_table(), scheme.column());
    let clause = scheme.clause(first.mode, wait);
    format!(
        "SELECT c.{fence} FROM {list} STRAIGHT_JOIN {table} c ON {level}c.{column} = v.x {clause}"
    )
}

/// What a failed statement means. The numbers of MySQL and MariaDB are one family.
pub(super) fn meaning(number: u16) -> Meaning {
    match number {
        1213 => Meaning::Deadlock,
        // NOWAIT on MySQL; NOWAIT, or the server's own limit, on MariaDB; the limit on MySQL.
        3572 | 1205 => Meaning::Refused,
        1317 | 3024 | 1969 => Meaning::Cancelled,
        // Killed, or the server shuts down.
        1927 | 1053 | 3169 | 4031 => Meaning::Gone,
        // No such table, no such column.
        1146 | 1054 => Meaning::NoSuchTable,
        _ => Meaning::Other,
    }
}
