//! Sessions of PostgreSQL.

/// Its number, and since when it has been there.
pub(super) const OWN_IDENTITY: &str = "pg_backend_pid()::bigint, (SELECT extract(epoch FROM backend_start)::text \
     FROM pg_stat_activity WHERE pid = pg_backend_pid())";

pub(super) const VERSION: &str =
    "current_setting('server_version_num')::bigint, pg_is_in_recovery()::int::bigint";

pub(super) fn cancel(pid: i64) -> String {
    format!("SELECT pg_cancel_backend({pid})::text")
}

pub(super) fn terminate(pid: i64) -> String {
    format!("SELECT pg_terminate_backend({pid})::text")
}

pub(super) fn identity_of(pid: i64) -> String {
    format!(
        "SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = {pid}"
    )
}

/// What we may not see is not idle.
pub(super) fn is_idle(pid: i64) -> String {
    format!(
        "SELECT (COALESCE(state, '') LIKE 'idle%')::int::text FROM pg_stat_activity WHERE pid = {pid}"
    )
}
