//! Lock statements for advisory keys and rows of PostgreSQL.

use super::statement::{Join, LockStatement, ValueForm, Writer, runs};
use super::update_keys;
use crate::{SlotMode, Step};
use hierlock_engine::LockWaitPolicy;

/// Returns an ascending number: the WAL position of a message that is written for it. (Transaction ids are not suitable:
/// they are assigned at the first lock, so a later holder of a node can have a smaller one, and a server that was killed
/// assigns them again.)
pub(super) const TOKEN: &str =
    "SELECT (pg_logical_emit_message(false, 'hierlock', ''::text) - '0/0'::pg_lsn)::text";

/// Flushes the WAL to disk, so that a crash cannot repeat a WAL position that was returned.
pub(super) const FLUSH: &str = "BEGIN; SET LOCAL synchronous_commit = local; \
     SELECT pg_logical_emit_message(true, 'hierlock', ''::text); COMMIT";

/// The number of slots that a statement names one by one. More are an array.
const MAX_SINGLES: usize = 8;

/// Returns the statement that takes advisory keys. A few keys are separate calls, which run from left to right. More keys
/// are an array, which is scanned in its order. A statement that does not wait returns a row for each key: whether it was
/// taken.
pub(super) fn take_keys(mut writer: Writer<'_>, steps: &[Step]) -> LockStatement {
    let waits = writer.policy == LockWaitPolicy::Wait;
    let function = if waits { "pg_advisory_xact_lock" } else { "pg_try_advisory_xact_lock" };
    // Keys are signed on the server. All 64 bits are used.
    let key = |step: &Step| step.slot as i64;
    let is_shared = |step: &Step| step.mode == SlotMode::Shared;
    if waits && steps.len() <= MAX_SINGLES {
        let label = writer.label_column();
        let call = |step: &Step| {
            let key = writer.value(key(step));
            format!("{function}{}({key})", if is_shared(step) { "_shared" } else { "" })
        };
        let calls: Vec<String> = steps.iter().map(call).collect();
        return writer.finish(format!("SELECT {label}{}", calls.join(", ")), 1);
    }
    let keys = writer.value(steps.iter().map(key).collect::<Vec<i64>>());
    let shared = writer.value(steps.iter().map(is_shared).collect::<Vec<bool>>());
    let sql = call_each(function, &keys, &shared) + &writer.label_clause();
    let rows = steps.len();
    if waits { writer.finish_counted(sql, rows) } else { writer.finish(sql, rows) }
}

/// Returns the query that calls a function for each key of an array, in order. Each result is a row.
pub(super) fn call_each(function: &str, keys: &str, shared: &str) -> String {
    format!(
        "SELECT CASE WHEN s THEN {function}_shared(k) ELSE {function}(k) END \
         FROM unnest({keys}::bigint[], {shared}::boolean[]) v(k, s)"
    )
}

/// Returns the statement that locks rows, after the advisory keys of update locks.
pub(super) fn take(mut writer: Writer<'_>, steps: &[Step]) -> LockStatement {
    let Some(keys) = update_keys::take(writer.scheme, steps, writer.policy) else {
        return take_rows(writer, steps);
    };
    writer.form = ValueForm::Text;
    let label = writer.label_clause();
    let rows = take_rows(writer, steps);
    let sql = format!("{}{label};\n{}", keys.sql, rows.sql);
    LockStatement { sql, rows: keys.rows + rows.rows, ..rows }
}

/// Returns the statement that locks rows. A few rows are one join, which locks them in the order of its clauses. One long run
/// can follow them in the same statement: it is sorted before it is locked, and the others are locked by then. Several long
/// runs are one statement each.
fn take_rows(mut writer: Writer<'_>, steps: &[Step]) -> LockStatement {
    let scheme = writer.scheme;
    let singles = match runs(steps).last() {
        Some(last) if steps.len() > MAX_SINGLES => steps.len() - last.len(),
        _ => steps.len(),
    };
    if singles > MAX_SINGLES {
        writer.form = ValueForm::Text;
        let statement =
            |run: &[Step]| Join::default().with_run(run, &mut writer).select(scheme, ", ");
        let sql = runs(steps).map(statement).collect::<Vec<_>>().join(";\n");
        return writer.finish(sql, steps.len());
    }
    let (singles, last) = steps.split_at(singles);
    let sql = match (singles, last) {
        ([step], []) => writer.select(step),
        _ => Join::of(singles, &mut writer).with_run(last, &mut writer).select(scheme, ", "),
    };
    match last.len() {
        0 => writer.finish(sql, 1),
        rows => writer.finish_counted(sql, rows),
    }
}
