//! PostgreSQL: advisory keys, or rows.

use super::Scheme;
use super::session::{Judgement, Meaning};
use super::statement::{Statement, Wait, runs};
use crate::mode::SlotMode;
use crate::plan::Step;

/// Its version, our number, and whether it only follows another.
pub(super) const HELLO: &str = "SELECT current_setting('server_version_num')::bigint, \
     pg_backend_pid()::bigint, pg_is_in_recovery()::int::bigint";

/// The oldest version that is supported.
const OLDEST: i64 = 13;

/// Is it of use?
pub(super) fn judge(version: i64, is_standby: bool) -> Judgement {
    if version / 10_000 < OLDEST {
        let version = version / 10_000;
        return Judgement::unfit(format!(
            "it is PostgreSQL {version}; {OLDEST} or newer is needed"
        ));
    }
    match is_standby {
        true => Judgement::unfit(
            "it is a standby, whose locks the primary does not see; connect to the primary"
                .to_owned(),
        ),
        false => Judgement::Fit,
    }
}

/// What a session is told once. A server that waits for a lock on behalf of a client that is gone would
/// otherwise not notice, and take the lock in the end.
pub(super) fn settings(version: i64) -> String {
    let isolation = "SET default_transaction_isolation = 'read committed'";
    match version >= 140_000 {
        true => format!("{isolation}; SET client_connection_check_interval = '1s'"),
        false => isolation.to_owned(),
    }
}

pub(super) fn cancel(pid: i64) -> String {
    format!("SELECT pg_cancel_backend({pid})::text")
}

pub(super) fn terminate(pid: i64) -> String {
    format!("SELECT pg_terminate_backend({pid})::text")
}

/// The slot that a session waits for, by its name; no row if it does not. (The server holds back the
/// results of the statements before, so they do not tell.)
pub(super) fn waits_for(scheme: &Scheme, pid: i64) -> String {
    let Some(name) = row_name(scheme) else {
        return format!(
            "SELECT (classid::bigint << 32 | objid::bigint)::text FROM pg_locks \
             WHERE pid = {pid} AND NOT granted AND locktype = 'advisory' LIMIT 1"
        );
    };
    // Whoever waits for a row has, or waits for, its tuple's lock. A change of the table may be waiting
    // for the very session that asks this: it must not wait behind the change.
    let table = scheme.rows_table();
    format!(
        "SET lock_timeout = '20ms'; SELECT {name} FROM {table} WHERE ctid = (SELECT format('(%s,%s)', page, tuple)::tid \
         FROM pg_locks WHERE pid = {pid} AND locktype = 'tuple' \
         AND relation = '{table}'::regclass LIMIT 1)"
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

/// One statement a run of keys, all sent together. Within one, keys are taken in the order of the array:
/// it is a plain scan of it.
pub(super) fn take_keys(steps: &[Step], wait: Wait) -> Statement {
    let function = match wait {
        Wait::Yes => "pg_advisory_xact_lock",
        Wait::No => "pg_try_advisory_xact_lock",
    };
    let statement = |run: &[Step]| {
        let shared = match run.first().map(|step| step.mode) {
            Some(SlotMode::Shared) => "_shared",
            _ => "",
        };
        // The server's keys are signed; all 64 bits are used.
        let keys: Vec<String> = run.iter().map(|step| (step.slot as i64).to_string()).collect();
        match &keys[..] {
            [key] => format!("SELECT {function}{shared}({key})"),
            _ => {
                let keys = keys.join(",");
                format!("SELECT {function}{shared}(k) FROM unnest('{{{keys}}}'::bigint[]) k")
            }
        }
    };
    Statement::text(runs(steps).map(statement).collect::<Vec<_>>().join(";\n"))
}

/// One statement a run of rows, all sent together; within one, rows are locked after they are sorted.
pub(super) fn take_rows(scheme: &Scheme, steps: &[Step], wait: Wait) -> Statement {
    let statement = |run: &[Step]| {
        let Some(first) = run.first() else { return String::new() };
        let values: Vec<String> =
            run.iter().map(|step| scheme.value(step).literal(scheme.dialect)).collect();
        let (fence, table) = (scheme.fence(), scheme.rows_table());
        let clause = scheme.clause(first.mode, wait);
        if let [value] = &values[..] {
            let row = scheme.row(&first.level.to_string(), value);
            return format!("SELECT {fence} FROM {table} WHERE {row} {clause}");
        }
        let values = values.join(",");
        match scheme.strategy.is_by_id() {
            // Ordered as the plan is, which is not the order of the keys.
            true => format!(
                "SELECT lock_key FROM unnest(ARRAY[{values}]::bytea[]) WITH ORDINALITY v(x, n) \
                 JOIN {table} c ON c.lock_key = v.x ORDER BY n {}",
                scheme.clause_of("c", first.mode, wait)
            ),
            false => format!(
                "SELECT {fence} FROM {table} WHERE level = {} AND bucket = ANY('{{{values}}}') \
                 ORDER BY bucket {clause}",
                first.level
            ),
        }
    };
    Statement::text(runs(steps).map(statement).collect::<Vec<_>>().join(";\n"))
}

pub(super) fn meaning(code: &str) -> Meaning {
    match code {
        "40P01" => Meaning::Deadlock,
        "55P03" => Meaning::Refused,
        "57014" => Meaning::Cancelled,
        // Terminated by an administrator, or the server shuts down or crashed; idle for too long.
        "57P01" | "57P02" | "57P03" | "25P03" | "57P05" => Meaning::Gone,
        // No such table, no such column.
        "42P01" | "42703" => Meaning::NoSuchTable,
        _ => Meaning::Other,
    }
}
