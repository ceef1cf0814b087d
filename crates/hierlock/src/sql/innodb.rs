//! What MySQL and MariaDB have in common: rows of InnoDB.

use super::statement::{Join, LockStatement, ValueForm, Writer, runs};
use super::{Dialect, Scheme};
use crate::plan::Step;
use std::fmt::Write as _;

/// From so many rows on, a list is joined instead of one SELECT a row.
const MIN_LIST_LENGTH: usize = 4;
/// Up to so many single rows and lists are a statement that the server keeps prepared; more come in too
/// many shapes. So do more keys in lists.
const MAX_PREPARED_BRANCHES: usize = 8;
const MAX_PREPARED_KEYS: usize = 256;

/// A few rows are looked up one by one, while the statement is being optimised. A long run of rows is a
/// list of values joined to the table, read after them: the order is that of the list, and each row is
/// looked up by its key. (A bare `IN` would scan when it is long, and lock what it passes.)
///
/// Lists are read later than single rows: so after the first list, everything is a list.
pub(super) fn take_rows(mut writer: Writer<'_>, steps: &[Step]) -> LockStatement {
    let scheme = writer.scheme;
    let first_list = runs(steps).position(|run| run.len() >= MIN_LIST_LENGTH).unwrap_or(usize::MAX);
    let singles: usize = runs(steps).take(first_list).map(<[Step]>::len).sum();
    let lists = runs(steps).skip(first_list).count();
    let is_short = singles + lists <= MAX_PREPARED_BRANCHES;
    if !is_short || (lists > 0 && !list_binds(scheme, steps.len() - singles)) {
        writer.form = ValueForm::Text;
    }
    if scheme.dialect == Dialect::Mysql && lists == 0 && is_short && singles > 1 {
        let sql = Join::of(steps, &mut writer).select(scheme, " STRAIGHT_JOIN ");
        return writer.finish(sql, 1);
    }
    let mut branches = Vec::new();
    for (number, run) in runs(steps).enumerate() {
        if number >= first_list {
            branches.push(list(run, &mut writer));
        } else {
            branches.extend(run.iter().map(|step| writer.select(step)));
        }
    }
    match branches.len() {
        1 => writer.finish(branches.remove(0), steps.len()),
        _ if lists <= 1 && is_short => {
            // One row for each of the list, if all others are there; one, without a list.
            let rows = if lists == 0 { 1 } else { steps.len() - singles };
            let is_count = writer.form == ValueForm::Bound && lists == 1;
            LockStatement { is_count, ..writer.finish(derived(scheme, &branches, is_count), rows) }
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
        (true, _) => rows <= MAX_PREPARED_KEYS,
    }
}

/// The rows of a run, joined to the list of their values.
fn list(run: &[Step], writer: &mut Writer<'_>) -> String {
    let [first, ..] = run else { return String::new() };
    let scheme = writer.scheme;
    let (list, row) = if scheme.strategy.is_by_id() {
        (keys(run, writer), "c.lock_key = v.x".to_owned())
    } else {
        (buckets(run, writer), format!("c.level = {} AND c.bucket = v.x", first.level))
    };
    let (fence, table) = (scheme.fence(), scheme.quoted_table());
    // The list is not to be locked: an array has no rows that could be. MariaDB cannot say so.
    let of = if scheme.dialect == Dialect::Mysql { "c" } else { "" };
    let clause = writer.clause(of, first.mode);
    format!("SELECT c.{fence} FROM {list} STRAIGHT_JOIN {table} c ON {row} {clause}")
}

/// Buckets that can be joined, as `v` with a column `x`: an array is one value, whatever its length, so
/// that one prepared statement serves all lengths. A list of one would be looked up early, as single rows
/// are; so it gets a second value, which no row has.
fn buckets(run: &[Step], writer: &mut Writer<'_>) -> String {
    let mut array = String::with_capacity(9 * run.len() + 6);
    for step in run {
        array.push(if array.is_empty() { '[' } else { ',' });
        // Writing to a String cannot fail.
        let _ = write!(array, "{}", step.slot);
    }
    array.push_str(if run.len() == 1 { ",null]" } else { "]" });
    let array = writer.value(array);
    format!("JSON_TABLE({array}, '$[*]' COLUMNS (x INT UNSIGNED PATH '$')) v")
}

/// Keys that can be joined, the same way.
fn keys(run: &[Step], writer: &mut Writer<'_>) -> String {
    // Filled up to a power of two, so that prepared ones come in few shapes; and at least two.
    let length = run.len().next_power_of_two().max(2);
    let values = run.iter().map(|step| Some(step.target.key().into_bytes()));
    let values = values.chain(std::iter::repeat(None)).take(length);
    let is_mysql = writer.scheme.dialect == Dialect::Mysql;
    let row = if is_mysql { "ROW" } else { "" };
    let rows: Vec<String> = values.map(|value| format!("{row}({})", writer.value(value))).collect();
    let rows = rows.join(", ");
    if is_mysql {
        format!("(VALUES {rows}) v(x)")
    } else {
        // MariaDB names the column after the first value; a common table expression may name it anew.
        format!("(WITH w(x) AS (VALUES {rows}) SELECT x FROM w) v")
    }
}
