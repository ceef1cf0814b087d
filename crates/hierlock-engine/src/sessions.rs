//! Questions about sessions, and the ways to end them, in SQL, by the server's number for a session.

use crate::Dialect;

/// Ends the statement that a session runs.
pub fn cancel(dialect: Dialect, pid: i64) -> String {
    if dialect.is_innodb() {
        format!("KILL QUERY {pid}")
    } else {
        format!("SELECT pg_cancel_backend({pid})::text")
    }
}

/// Ends a session, with all it holds.
pub fn terminate(dialect: Dialect, pid: i64) -> String {
    if dialect.is_innodb() {
        format!("KILL {pid}")
    } else {
        format!("SELECT pg_terminate_backend({pid})::text")
    }
}

/// What tells a session from a later one of the same number: host and port, or when it began. No row if we see none.
pub fn identity_of(dialect: Dialect, pid: impl std::fmt::Display) -> String {
    if dialect.is_innodb() {
        format!("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = {pid}")
    } else {
        format!(
            "SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = {pid}"
        )
    }
}

/// Whether a session is between two statements. No row if there is no such session, or none that we may see.
pub fn is_idle(dialect: Dialect, pid: i64) -> String {
    if dialect.is_innodb() {
        format!("SELECT COMMAND = 'Sleep' FROM information_schema.PROCESSLIST WHERE ID = {pid}")
    } else {
        format!(
            "SELECT (COALESCE(state, '') LIKE 'idle%')::int::text FROM pg_stat_activity WHERE pid = {pid}"
        )
    }
}

/// The column by which a session asks for its number.
pub fn own_pid(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { "CAST(CONNECTION_ID() AS SIGNED)" } else { "pg_backend_pid()::bigint" }
}

/// The columns by which a session asks who it is: its number, and its identity.
pub(crate) fn own_identity(dialect: Dialect) -> String {
    let pid = if dialect.is_innodb() { "CONNECTION_ID()" } else { "pg_backend_pid()" };
    format!("{}, ({})", own_pid(dialect), identity_of(dialect, pid))
}

/// The columns by which a server says its version, and whether it only follows another.
pub(crate) fn version(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() {
        "VERSION(), @@read_only"
    } else {
        "current_setting('server_version_num')::bigint, pg_is_in_recovery()::int::bigint"
    }
}
