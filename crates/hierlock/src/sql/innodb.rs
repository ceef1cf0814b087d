//! Lock statements for rows of InnoDB, on MySQL and MariaDB.

use super::statement::{Join, LockStatement, ValueForm, Writer, runs};
use super::{Dialect, Scheme};
use crate::plan::Step;

/// The number of rows from which a run is locked by a joined list instead of one SELECT for each row.
const MIN_LIST_LENGTH: usize = 4;
/// The limits for prepared statements: single rows and lists together, and keys in lists. Longer statements would come in
/// too many shapes to be worth preparing.
const MAX_PREPARED_BRANCHES: usize = 8;
const MAX_PREPARED_KEYS: usize = 256;

/// Returns the statement that locks rows in the order of the steps.
///
/// InnoDB locks single rows while it optimises a statement. A long run of rows is a list of values joined to the table:
/// InnoDB locks its rows while it executes the statement, by their keys, in the order of the list. (A long `IN` would scan,
/// and lock other rows too.) So after the first list, every run is a list.
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
            // The join has one row for each row of the list, or one row if there is no list.
            let rows = if lists == 0 { 1 } else { steps.len() - singles };
            let is_count = writer.form == ValueForm::Bound && lists == 1;
            LockStatement { is_count, ..writer.finish(derived(scheme, &branches, is_count), rows) }
        }
        _ => writer.finish(format!("({})", branches.join(")\nUNION ALL (")), steps.len()),
    }
}

/// Joins branches, each with its own mode, which are read in the written order. A UNION ALL would do the same with a
/// temporary table. At most one branch can be a list.
fn derived(scheme: &Scheme, branches: &[String], is_count: bool) -> String {
    let table = |(number, branch): (usize, &String)| format!("({branch}) t{number}");
    let tables: Vec<String> = branches.iter().enumerate().map(table).collect();
    let column = scheme.selected_column();
    // COUNT must name the column, and count rows in which it is NULL.
    let columns =
        if is_count { format!("COUNT(t0.{column} IS NULL)") } else { format!("t0.{column}") };
    format!("SELECT {columns} FROM {}", tables.join("\nSTRAIGHT_JOIN "))
}

/// Returns whether lists of `rows` rows can be sent with bound values.
fn list_binds(scheme: &Scheme, rows: usize) -> bool {
    match (scheme.strategy.is_by_id(), scheme.dialect) {
        // A list of buckets is one JSON array of any length.
        (false, _) => true,
        // In a prepared statement, VALUES of MariaDB keeps only one of its values, and only that row would be locked.
        (true, Dialect::Mariadb) => false,
        (true, _) => rows <= MAX_PREPARED_KEYS,
    }
}

/// Returns the SELECT that locks the rows of a run, joined to the list of their values.
fn list(run: &[Step], writer: &mut Writer<'_>) -> String {
    let [first, ..] = run else { return String::new() };
    let scheme = writer.scheme;
    let (list, row) = if scheme.strategy.is_by_id() {
        (keys(run, writer), "c.lock_key = v.x".to_owned())
    } else {
        (buckets(run, writer), format!("c.level = {} AND c.bucket = v.x", first.level))
    };
    let (column, table) = (scheme.selected_column(), scheme.quoted_table());
    // Only the table is locked, not the list. MariaDB has no OF, and does not need it: an array has no rows to lock.
    let of = if scheme.dialect == Dialect::Mysql { "c" } else { "" };
    let clause = writer.clause(of, first.mode);
    let label = writer.label_clause();
    format!("SELECT c.{column} FROM {list} STRAIGHT_JOIN {table} c ON {row}{label} {clause}")
}

/// Returns the buckets of a run as a table `v` with the column `x`. A JSON array is one value, so one prepared statement
/// serves all lengths. InnoDB would treat a list of one value as a single row and lock it early, so such a list gets a
/// second value that no row has.
fn buckets(run: &[Step], writer: &mut Writer<'_>) -> String {
    let mut values: Vec<String> = run.iter().map(|step| step.slot.to_string()).collect();
    if values.len() == 1 {
        values.push("null".to_owned());
    }
    let array = writer.value(format!("[{}]", values.join(",")));
    format!("JSON_TABLE({array}, '$[*]' COLUMNS (x INT UNSIGNED PATH '$')) v")
}

/// Returns the keys of a run as a table `v` with the column `x`.
fn keys(run: &[Step], writer: &mut Writer<'_>) -> String {
    // Filled with NULL up to a power of two, so that there are few prepared statements; at least two, as in `buckets`.
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
        // MariaDB names the column after the first value; a common table expression can rename it.
        format!("(WITH w(x) AS (VALUES {rows}) SELECT x FROM w) v")
    }
}
