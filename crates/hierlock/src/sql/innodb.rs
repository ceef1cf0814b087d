//! What MySQL and MariaDB have in common: rows of InnoDB.

use super::statement::{Form, Join, Statement, Value, Wait, Writer, runs};
use super::{Dialect, Scheme, mariadb, mysql};
use crate::plan::Step;
use std::fmt::Write as _;

/// From so many rows on, a list is joined instead of one SELECT a row.
const LIST_FROM: usize = 4;
/// Up to so many single rows and lists are a statement that the server keeps prepared; more come in too
/// many shapes. So do more keys in lists.
const BRANCHES_UP_TO: usize = 8;
const KEYS_UP_TO: usize = 256;

/// A few rows are looked up one by one, while the statement is being optimised. A long run of rows is a
/// list of values joined to the table, read after them: the order is that of the list, and each row is
/// looked up by its key. (A bare `IN` would scan when it is long, and lock what it passes.)
///
/// Lists are read later than single rows: so after the first list, everything is a list.
pub(super) fn take_rows(scheme: &Scheme, steps: &[Step], wait: Wait, form: Form) -> Statement {
    let first_list = runs(steps).position(|run| run.len() >= LIST_FROM).unwrap_or(usize::MAX);
    let singles: usize = runs(steps).take(first_list).map(<[Step]>::len).sum();
    let lists = runs(steps).skip(first_list).count();
    let is_short = singles + lists <= BRANCHES_UP_TO;
    let binds = form == Form::Bound
        && is_short
        && (lists == 0 || list_binds(scheme, steps.len() - singles));
    let mut writer = Writer::new(scheme.dialect, binds);
    if scheme.dialect == Dialect::Mysql && lists == 0 && is_short && singles > 1 {
        let join = Join::of(scheme, steps, wait, &mut writer);
        let sql = join.select(scheme, " STRAIGHT_JOIN ");
        return writer.finish(sql, 1);
    }
    let mut branches = Vec::new();
    for (number, run) in runs(steps).enumerate() {
        match number >= first_list {
            true => branches.push(list(scheme, run, wait, &mut writer)),
            false => {
                branches.extend(run.iter().map(|step| scheme.select(step, wait, &mut writer)));
            }
        }
    }
    match branches.len() {
        1 => writer.finish(branches.remove(0), steps.len()),
        _ if lists <= 1 && is_short => {
            // One row for each of the list, if all others are there; one, without a list.
            let rows = if lists == 0 { 1 } else { steps.len() - singles };
            let is_count = binds && lists == 1;
            Statement { is_count, ..writer.finish(derived(scheme, &branches, is_count), rows) }
        }
        _ => writer.finish(format!("({})", branches.join(")\nUNION ALL (")), steps.len()),
    }
}

/// Branches as tables of a join, each with its own mode, read in the order of writing. A UNION ALL would
/// do the same through a temporary table. Lists cannot be joined to each other.
fn derived(scheme: &Scheme, branches: &[String], is_count: bool) -> String {
    let table = |(number, branch): (usize, &String)| format!("({branch}) t{number}");
    let tables: Vec<String> = branches.iter().enumerate().map(table).collect();
    let fence = scheme.fence();
    // The fence may be NULL, and has to be named.
    let columns =
        if is_count { format!("COUNT(t0.{fence} IS NULL)") } else { format!("t0.{fence}") };
    format!("SELECT {columns} FROM {}", tables.join("\nSTRAIGHT_JOIN "))
}

/// Can lists of so many rows be sent with values bound?
fn list_binds(scheme: &Scheme, rows: usize) -> bool {
    match (scheme.strategy.is_by_id(), scheme.dialect) {
        // One array each, however long.
        (false, _) => true,
        // Prepared, MariaDB's VALUES forgets all values but one, and would lock that row alone.
        (true, Dialect::Mariadb) => false,
        (true, _) => rows <= KEYS_UP_TO,
    }
}

/// The rows of a run, joined to the list of their values.
fn list(scheme: &Scheme, run: &[Step], wait: Wait, writer: &mut Writer) -> String {
    let [first, ..] = run else { return String::new() };
    let (list, row) = match scheme.strategy.is_by_id() {
        true => (keys(scheme, run, writer), "c.lock_key = v.x".to_owned()),
        false => (buckets(run, writer), format!("c.level = {} AND c.bucket = v.x", first.level)),
    };
    let (fence, table) = (scheme.fence(), scheme.quoted_table());
    let clause = match scheme.dialect {
        // The list is not to be locked: an array has no rows that could be.
        Dialect::Mysql => scheme.clause_of("c", first.mode, wait),
        _ => scheme.clause(first.mode, wait),
    };
    format!("SELECT c.{fence} FROM {list} STRAIGHT_JOIN {table} c ON {row} {clause}")
}

/// Buckets that can be joined, as `v` with a column `x`: an array is one value, whatever its length, so
/// that one prepared statement serves all lengths. A list of one would be looked up early, as single rows
/// are; so it gets a second value, which no row has.
fn buckets(run: &[Step], writer: &mut Writer) -> String {
    let mut array = String::with_capacity(8 * run.len() + 8);
    for step in run {
        array.push(if array.is_empty() { '[' } else { ',' });
        // Writing to a String cannot fail.
        let _ = write!(array, "{}", step.slot);
    }
    array.push_str(if run.len() == 1 { ",null]" } else { "]" });
    let array = writer.value(Value::Json(array));
    format!("JSON_TABLE({array}, '$[*]' COLUMNS (x INT UNSIGNED PATH '$')) v")
}

/// Keys that can be joined, the same way.
fn keys(scheme: &Scheme, run: &[Step], writer: &mut Writer) -> String {
    // Filled up to a power of two, so that prepared ones come in few shapes; and at least two.
    let length = run.len().next_power_of_two().max(2);
    let values = run.iter().map(|step| scheme.value(step));
    let values: Vec<String> = values
        .chain(std::iter::repeat(Value::Null))
        .take(length)
        .map(|value| writer.value(value))
        .collect();
    match scheme.dialect {
        Dialect::Mariadb => mariadb::list(values),
        _ => mysql::list(values),
    }
}
