//! PostgreSQL: advisory keys of the transaction; nothing is written.

use crate::mode::SlotMode;
use crate::plan::{Plan, Step};

/// Its version, our number, and whether it only follows another.
pub(super) const HELLO: &str = "SELECT current_setting('server_version_num')::int, \
     pg_backend_pid(), pg_is_in_recovery()";

/// The oldest version that is supported.
const OLDEST: i32 = 13;

/// Why a server is of no use, if it is not.
pub(super) fn unfit(version: i32, is_standby: bool) -> Option<String> {
    if version / 10_000 < OLDEST {
        return Some(format!("it is PostgreSQL {}; {OLDEST} or newer is needed", version / 10_000));
    }
    is_standby.then(|| {
        "it is a standby, whose advisory locks the primary does not see; connect to the primary"
            .into()
    })
}

/// What a session is told once. A server that waits for a lock on behalf of a client that is gone would
/// otherwise not notice, and take the lock in the end.
pub(super) fn settings(version: i32) -> Option<&'static str> {
    (version >= 140_000).then_some("SET client_connection_check_interval = '1s'")
}

pub(super) fn cancel(pid: i32) -> String {
    format!("SELECT pg_cancel_backend({pid})::int::bigint")
}

pub(super) fn terminate(pid: i32) -> String {
    format!("SELECT pg_terminate_backend({pid})::int::bigint")
}

/// The key that a session waits for; no row if it does not. (The server holds back the results of the
/// statements before, so they do not tell.)
pub(super) fn waits_for(pid: i32) -> String {
    format!(
        "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks \
         WHERE pid = {pid} AND NOT granted AND locktype = 'advisory' LIMIT 1"
    )
}

/// One statement a key, all sent together: within one SELECT no order is promised.
pub(super) fn lock(plan: &Plan) -> String {
    let steps: Vec<Step> = plan.steps().collect();
    lock_steps(&steps)
}

pub(super) fn lock_steps(steps: &[Step]) -> String {
    statements(steps, "pg_advisory_xact_lock")
}

/// The same without waiting: each says whether it got its key.
pub(super) fn try_lock_steps(steps: &[Step]) -> String {
    statements(steps, "pg_try_advisory_xact_lock")
}

fn statements(steps: &[Step], function: &str) -> String {
    let statement = |Step { slot, mode, .. }: &Step| {
        let shared = match mode {
            SlotMode::Shared => "_shared",
            _ => "",
        };
        // The server's keys are signed; all 64 bits are used.
        format!("SELECT {function}{shared}({});", *slot as i64)
    };
    steps.iter().map(statement).collect::<Vec<_>>().join("\n")
}

/// What a failed statement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Chosen by the server to end a deadlock; its transaction has failed.
    Deadlock,
    /// Ended by a cancel; its transaction has failed.
    Cancelled,
    /// The connection is of no more use.
    Gone,
    Other,
}

pub(super) fn meaning(error: &sqlx::Error) -> Meaning {
    match error {
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("40P01") => Meaning::Deadlock,
            Some("57014") => Meaning::Cancelled,
            // Terminated by an administrator, or the server shuts down or crashed.
            Some("57P01" | "57P02" | "57P03") => Meaning::Gone,
            _ => Meaning::Other,
        },
        _ => Meaning::Gone,
    }
}
