//! SQL to query and to end sessions by process id.

use crate::Dialect;

/// SQL that cancels the running statement of a session.
pub fn cancel(dialect: Dialect, pid: i64) -> String {
    if dialect.is_innodb() {
        format!("KILL QUERY {pid}")
    } else {
        format!("SELECT pg_cancel_backend({pid})::text")
    }
}

/// SQL that ends a session and releases its locks.
pub fn terminate(dialect: Dialect, pid: i64) -> String {
    if dialect.is_innodb() {
        format!("KILL {pid}")
    } else {
        format!("SELECT pg_terminate_backend({pid})::text")
    }
}

/// SQL for the value that distinguishes a session from a later one with the same process id: host and port, or the
/// start time. Returns no row if the account may not see the session.
pub fn identity_of(dialect: Dialect, pid: impl std::fmt::Display) -> String {
    if dialect.is_innodb() {
        format!("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = {pid}")
    } else {
        format!(
            "SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = {pid}"
        )
    }
}

/// SQL for whether a session runs no statement. Returns no row if there is no such session that the account may see.
pub fn is_idle(dialect: Dialect, pid: i64) -> String {
    if dialect.is_innodb() {
        format!("SELECT COMMAND = 'Sleep' FROM information_schema.PROCESSLIST WHERE ID = {pid}")
    } else {
        format!(
            "SELECT (COALESCE(state, '') LIKE 'idle%')::int::text FROM pg_stat_activity WHERE pid = {pid}"
        )
    }
}

/// SQL for the current database of the session.
pub fn current_database(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { "SELECT DATABASE()" } else { "SELECT current_database()" }
}

/// The column with the server's time, in seconds since 1970.
pub(crate) fn epoch_seconds(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() {
        "CAST(UNIX_TIMESTAMP() AS SIGNED)"
    } else {
        "floor(extract(epoch FROM clock_timestamp()))::bigint"
    }
}

/// The column with the session's own process id.
pub fn own_pid(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { "CAST(CONNECTION_ID() AS SIGNED)" } else { "pg_backend_pid()::bigint" }
}

/// The columns with the session's own process id and identity.
pub(crate) fn own_identity(dialect: Dialect) -> String {
    let pid = if dialect.is_innodb() { "CONNECTION_ID()" } else { "pg_backend_pid()" };
    format!("{}, ({})", own_pid(dialect), identity_of(dialect, pid))
}

/// Returns whether MySQL or MariaDB rejects writes. A Galera node without a majority rejects the first statement, but would
/// answer the second. On an Aurora replica only `innodb_read_only` is set. `read_only` is an enumeration in newer versions of
/// MariaDB.
pub(crate) const IS_READ_ONLY: &str =
    "DO 0; SELECT IF(CONCAT(@@read_only) IN ('0', 'OFF'), @@innodb_read_only, 1)";

/// The columns with the server's version, its product, and whether it is read-only.
pub(crate) fn version(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() {
        "VERSION(), @@version_comment, IF(CONCAT(@@read_only) IN ('0', 'OFF'), @@innodb_read_only, 1)"
    } else {
        "current_setting('server_version_num')::bigint, version(), pg_is_in_recovery()::int::bigint"
    }
}

/// SQL for the version and the product. Servers with little SQL support understand this too.
pub(crate) fn product(dialect: Dialect) -> &'static str {
    if dialect.is_innodb() { "SELECT VERSION(), @@version_comment" } else { "SELECT '', version()" }
}
