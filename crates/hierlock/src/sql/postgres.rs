//! PostgreSQL: advisory keys, or rows.

use super::statement::{Join, LockStatement, ValueForm, Writer, runs};
use super::updaters;
use crate::{SlotMode, Step};
use hierlock_engine::LockWaitPolicy;

/// A number that ascends: the place in the server's log of a message that is written for it. (The number of
/// the transaction would not do. It is given when something is first locked, so who has come by a node later may
/// have a smaller one; and a server that was killed gives it again.)
pub(super) const TOKEN: &str =
    "SELECT (pg_logical_emit_message(false, 'hierlock', ''::text) - '0/0'::pg_lsn)::text";

/// Has all of the log so far on disk when it is done, so that no place in it is given again.
pub(super) const FLUSH: &str = "BEGIN; SET LOCAL synchronous_commit = local; \
     SELECT pg_logical_emit_message(true, 'hierlock', ''::text); COMMIT";

/// Up to so many slots are written out one by one, in one statement.
const MAX_SINGLES: usize = 8;

/// A few keys are written out, and taken from left to right; more are an array, and taken in its order:
/// it is a plain scan of it. Not waiting, each says whether it was got, in a row of its own.
pub(super) fn take_keys(mut writer: Writer<'_>, steps: &[Step]) -> LockStatement {
    let waits = writer.policy == LockWaitPolicy::Wait;
    let function = if waits { "pg_advisory_xact_lock" } else { "pg_try_advisory_xact_lock" };
    // The server's keys are signed; all 64 bits are used.
    let key = |step: &Step| step.slot as i64;
    let is_shared = |step: &Step| step.mode == SlotMode::Shared;
    if waits && steps.len() <= MAX_SINGLES {
        let call = |step: &Step| {
            let key = writer.value(key(step));
            format!("{function}{}({key})", if is_shared(step) { "_shared" } else { "" })
        };
        let calls: Vec<String> = steps.iter().map(call).collect();
        return writer.finish(format!("SELECT {}", calls.join(", ")), 1);
    }
    let keys = writer.value(steps.iter().map(key).collect::<Vec<i64>>());
    let shared = writer.value(steps.iter().map(is_shared).collect::<Vec<bool>>());
    let is_counted = waits && writer.form == ValueForm::Bound;
    let statement = writer.finish(call_each(function, &keys, &shared), steps.len());
    if is_counted { statement.counted() } else { statement }
}

/// Calls a function for each key of an array, in order; what each says is a row.
pub(super) fn call_each(function: &str, keys: &str, shared: &str) -> String {
    format!(
        "SELECT CASE WHEN s THEN {function}_shared(k) ELSE {function}(k) END \
         FROM unnest({keys}::bigint[], {shared}::boolean[]) v(k, s)"
    )
}

/// Rows, and before them what updaters need besides.
pub(super) fn take(mut writer: Writer<'_>, steps: &[Step]) -> LockStatement {
    let Some(keys) = updaters::take(writer.scheme, steps, writer.policy) else {
        return take_rows(writer, steps);
    };
    writer.form = ValueForm::Text;
    let rows = take_rows(writer, steps);
    let sql = format!("{};\n{}", keys.sql, rows.sql);
    LockStatement { sql, rows: keys.rows + rows.rows, ..rows }
}

/// A few rows are one join, which locks them in the order of its clauses. A long run of rows can come after them: they
/// are locked while it is still being sorted, and it is locked after that. Several long runs are one statement each.
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
        // As a person would write it.
        ([step], []) => writer.select(step),
        _ => Join::of(singles, &mut writer).with_run(last, &mut writer).select(scheme, ", "),
    };
    let is_counted = !last.is_empty() && writer.form == ValueForm::Bound;
    let statement = writer.finish(sql, last.len().max(1));
    if is_counted { statement.counted() } else { statement }
}
