//! The sessions of a server.

use super::IntrospectionScope;
use crate::row::{CellRow, cell, number_cell};
use crate::{Dialect, SessionRef, sessions};
use std::time::Duration;

/// A session, as the server lists it. What the account may not see is None.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The server's number for it.
    pub pid: i64,
    /// Whose it is.
    pub user: Option<String>,
    /// From where it has come: a host, maybe with a port. None over a socket of PostgreSQL.
    pub client: Option<String>,
    /// The database that it is in.
    pub database: Option<String>,
    /// What it does, in the server's own words: `idle in transaction`, `Query: updating`.
    pub state: Option<String>,
    /// The statement that it runs; on PostgreSQL, of an idle session, the last that it ran.
    pub statement: Option<String>,
    /// How long it has been in this state.
    pub in_state_for: Option<Duration>,
}

/// Lists the sessions of clients, ascending by number, without the one that asks.
///
/// # Errors
/// What the server says, or that it does not answer.
pub async fn list_sessions(
    session: &mut SessionRef<'_>,
    scope: &IntrospectionScope,
) -> Result<Vec<SessionInfo>, sqlx::Error> {
    let (list, pid) = match session.dialect {
        Dialect::Postgres => (
            "SELECT pid, usename, COALESCE(client_hostname, host(client_addr)), datname, state, query, \
             (EXTRACT(EPOCH FROM clock_timestamp() - state_change) * 1000)::bigint \
             FROM pg_stat_activity WHERE backend_type = 'client backend'",
            "pid",
        ),
        Dialect::Mysql => (
            "SELECT PROCESSLIST_ID, PROCESSLIST_USER, PROCESSLIST_HOST, PROCESSLIST_DB, \
             CONCAT_WS(': ', PROCESSLIST_COMMAND, NULLIF(PROCESSLIST_STATE, '')), PROCESSLIST_INFO, \
             PROCESSLIST_TIME * 1000 FROM performance_schema.threads \
             WHERE TYPE = 'FOREGROUND' AND PROCESSLIST_COMMAND <> 'Daemon'",
            "PROCESSLIST_ID",
        ),
        Dialect::Mariadb => (
            "SELECT ID, USER, HOST, DB, CONCAT_WS(': ', COMMAND, NULLIF(STATE, '')), INFO, \
             CAST(TIME_MS AS SIGNED) FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Daemon'",
            "ID",
        ),
    };
    let sql = format!(
        "{list} AND {pid} <> {} AND {} ORDER BY {pid}",
        sessions::own_pid(session.dialect),
        scope.condition(pid)
    );
    Ok(session.cells(&sql).await?.iter().filter_map(read).collect())
}

fn read(row: &CellRow) -> Option<SessionInfo> {
    let text = |column: usize| Some(cell(row, column).to_owned()).filter(|text| !text.is_empty());
    let millis = number_cell(row, 6).and_then(|millis| millis.try_into().ok());
    Some(SessionInfo {
        pid: number_cell(row, 0)?,
        user: text(1),
        client: text(2),
        database: text(3),
        state: text(4),
        statement: text(5),
        in_state_for: millis.map(Duration::from_millis),
    })
}
