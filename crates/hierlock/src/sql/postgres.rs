//! PostgreSQL: advisory keys, or rows.

use super::statement::{Form, Join, Statement, Value, Wait, Writer, runs};
use super::{Dialect, Scheme, updaters};
use crate::mode::SlotMode;
use crate::plan::Step;

/// A number that ascends: the place in the server's log of a message that is written for it. (The number of
/// the transaction would not do. It is given when something is first locked, so who has come by a node later may
/// have a smaller one; and a server that was killed gives it again.)
pub(super) const TOKEN: &str =
    "SELECT (pg_logical_emit_message(false, 'hierlock', ''::text) - '0/0'::pg_lsn)::text";

/// Has all of the log so far on disk when it is done, so that no place in it is given again.
pub(super) const FLUSH: &str = "BEGIN; SET LOCAL synchronous_commit = local; \
     SELECT pg_logical_emit_message(true, 'hierlock', ''::text); COMMIT";

/// The slot that a session waits for, by its name; no row if it does not. (The server holds back the
/// results of the statements before, so they do not tell.)
pub(super) fn waits_for(scheme: &Scheme, pid: i64) -> String {
    let Some(name) = row_name(scheme) else {
        return format!(
            "SELECT (classid::bigint << 32 | objid::bigint)::text FROM pg_locks \
             WHERE pid = {pid} AND NOT granted AND locktype = 'advisory' LIMIT 1"
        );
    };
    // Whoever waits for a row has, or waits for, its tuple's lock; except that a row which is held already
    // and wanted in a stronger mode has none, only the end of a transaction is waited for. A change of the
    // table may be waiting for the very session that asks this: it must not wait behind the change.
    let (table, updater) = (scheme.quoted_table(), updaters::NAME);
    format!(
        "SET lock_timeout = '20ms'; (SELECT {name} AS name, 0 AS rank FROM {table} \
         WHERE ctid = (SELECT format('(%s,%s)', page, tuple)::tid FROM pg_locks \
         WHERE pid = {pid} AND locktype = 'tuple' AND relation = '{table}'::regclass LIMIT 1) \
         UNION ALL SELECT '{updater}' || objid, 0 FROM pg_locks WHERE pid = {pid} AND NOT granted \
         AND locktype = 'advisory' AND classid = '{table}'::regclass AND objsubid = 2 \
         UNION ALL SELECT '', 1 FROM pg_locks \
         WHERE pid = {pid} AND NOT granted AND locktype = 'transactionid') \
         ORDER BY rank LIMIT 1"
    )
}

/// How a row is called, in SQL.
fn row_name(scheme: &Scheme) -> Option<&'static str> {
    match scheme.strategy {
        super::Strategy::Striped => Some("level || ', ' || bucket"),
        super::Strategy::PerId | super::Strategy::OnDemand => Some("encode(lock_key, 'hex')"),
        super::Strategy::Advisory => None,
    }
}

/// Up to so many slots are written out one by one, in one statement.
const SINGLES_UP_TO: usize = 8;

/// A few keys are written out, and taken from left to right; more are an array, and taken in its order:
/// it is a plain scan of it. Not waiting, each says whether it was got, in a row of its own.
pub(super) fn take_keys(steps: &[Step], wait: Wait, form: Form) -> Statement {
    let mut writer = Writer::new(Dialect::Postgres, form == Form::Bound);
    let function = match wait {
        Wait::Yes => "pg_advisory_xact_lock",
        Wait::No => "pg_try_advisory_xact_lock",
    };
    // The server's keys are signed; all 64 bits are used.
    let key = |step: &Step| step.slot as i64;
    let is_shared = |step: &Step| step.mode == SlotMode::Shared;
    if wait == Wait::Yes && steps.len() <= SINGLES_UP_TO {
        let call = |step: &Step| {
            let key = writer.value(Value::Signed(key(step)));
            format!("{function}{}({key})", if is_shared(step) { "_shared" } else { "" })
        };
        let calls: Vec<String> = steps.iter().map(call).collect();
        return writer.finish(format!("SELECT {}", calls.join(", ")), 1);
    }
    let keys = writer.value(Value::Numbers(steps.iter().map(key).collect()));
    let shared = writer.value(Value::Flags(steps.iter().map(is_shared).collect()));
    let sql = format!(
        "SELECT CASE WHEN s THEN {function}_shared(k) ELSE {function}(k) END \
         FROM unnest({keys}::bigint[], {shared}::boolean[]) v(k, s)"
    );
    let statement = writer.finish(sql, steps.len());
    match (wait, form) {
        (Wait::Yes, Form::Bound) => statement.counted(),
        _ => statement,
    }
}

/// Rows, and before them what updaters need besides.
pub(super) fn take(scheme: &Scheme, steps: &[Step], wait: Wait, form: Form) -> Statement {
    let Some(keys) = updaters::take(scheme, steps, wait) else {
        return take_rows(scheme, steps, wait, form);
    };
    let rows = take_rows(scheme, steps, wait, Form::Text);
    let sql = format!("{};\n{}", keys.sql, rows.sql);
    Statement { sql, rows: keys.rows + rows.rows, ..rows }
}

/// A few rows are one join, which locks them in the order of its clauses. A long run of rows can come
/// after them: they are locked while it is still being sorted, and it is locked after that. Several long
/// runs are one statement each.
fn take_rows(scheme: &Scheme, steps: &[Step], wait: Wait, form: Form) -> Statement {
    let singles = match runs(steps).last() {
        _ if steps.len() <= SINGLES_UP_TO => steps.len(),
        Some(last) => steps.len() - last.len(),
        None => 0,
    };
    if singles > SINGLES_UP_TO {
        let mut writer = Writer::new(Dialect::Postgres, false);
        let statement = |run: &[Step]| {
            let join = Join::default().with_run(scheme, run, wait, &mut writer);
            join.select(scheme, ", ")
        };
        let sql = runs(steps).map(statement).collect::<Vec<_>>().join(";\n");
        return writer.finish(sql, steps.len());
    }
    let mut writer = Writer::new(Dialect::Postgres, form == Form::Bound);
    let (singles, last) = steps.split_at(singles);
    let sql = match (singles, last) {
        // As a person would write it.
        ([step], []) => scheme.select(step, wait, &mut writer),
        _ => {
            let join = Join::of(scheme, singles, wait, &mut writer);
            let join = join.with_run(scheme, last, wait, &mut writer);
            join.select(scheme, ", ")
        }
    };
    let statement = writer.finish(sql, last.len().max(1));
    match (last, form) {
        ([_, ..], Form::Bound) => statement.counted(),
        _ => statement,
    }
}
