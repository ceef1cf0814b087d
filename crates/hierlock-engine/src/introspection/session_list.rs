//! The sessions of a server, with their accounts, clients and statements.
//!
//! Values that the account may not read are left out, and the missing privilege is reported.

use super::{IntrospectionScope, Result, ask_each};
use crate::row::{CellRow, cell, number_cell};
use crate::{Dialect, ErrorClass, SessionRef, sessions};
use std::collections::HashMap;
use std::time::Duration;

/// The user variable with the label of a session on MySQL and MariaDB: its application and the locked paths.
pub const LABEL_VARIABLE: &str = "hierlock";

/// The table for labels on MySQL and MariaDB where `performance_schema` is off. A transaction never commits its row.
pub const LABEL_TABLE: &str = "hier_lock_sessions";

/// The texts before and after a label in a statement of PostgreSQL.
const LABEL_COMMENT: [&str; 2] = ["/* hierlock: ", " */"];

/// Returns the comment for a statement of PostgreSQL with a label that is too long for `application_name`.
pub fn label_comment(label: &str) -> String {
    let [before, after] = LABEL_COMMENT;
    format!("{before}{label}{after}")
}

/// Returns the label from the comment of a statement. `application_name` contains the same label, truncated, so both must
/// name the same process.
fn whole_label<'a>(statement: &'a str, application_name: &str) -> Option<&'a str> {
    let [before, after] = LABEL_COMMENT;
    let (label, _) = statement.strip_prefix(before)?.split_once(after)?;
    let process = |label: &str| Some(label.split(' ').next()?.rsplit_once(':')?.1.to_owned());
    (process(label).is_some() && process(label) == process(application_name)).then_some(label)
}

/// Returns the label that a running lock statement of MySQL or MariaDB assigns to [`LABEL_VARIABLE`]. `None` if the server shows a
/// placeholder for it: only MariaDB shows the value, because of a setting of our lock sessions.
fn assigned_label(statement: &str) -> Option<&str> {
    let (_, value) = statement.split_once(&format!("(@{LABEL_VARIABLE} := '"))?;
    Some(value.split_once('\'')?.0)
}

/// A session, as the server lists it. Values that the account may not see are None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The process id.
    pub pid: i64,
    /// The account.
    pub user: Option<String>,
    /// The client's address: host, usually with a port. None on a Unix socket of PostgreSQL.
    pub client: Option<String>,
    /// The current database.
    pub database: Option<String>,
    /// The state, as the server writes it: `idle in transaction`, `Query: updating`.
    pub state: Option<String>,
    /// The running statement; for an idle session of PostgreSQL, the last one. It may contain a password.
    pub statement: Option<String>,
    /// The time since the session entered this state.
    pub in_state_for: Option<Duration>,
    /// The client program, as it names itself; on PostgreSQL also a process of the server itself.
    pub program: Option<String>,
    /// The process id of the client on its host, if its driver sends it.
    pub client_pid: Option<i64>,
    /// The label: from [`LABEL_VARIABLE`], the running statement or [`LABEL_TABLE`]; on PostgreSQL from the comment of the last statement, else
    /// from `application_name`, where it may be truncated.
    pub label: Option<String>,
    /// The age of the open transaction.
    pub in_transaction_for: Option<Duration>,
    /// The duration of the lock wait.
    pub waiting_for: Option<Duration>,
}

/// The sessions of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionList {
    /// The sessions, ascending by process id.
    pub sessions: Vec<SessionInfo>,
    /// The privileges that the account lacks.
    pub missing: Vec<MissingPrivilege>,
}

/// A privilege that the account lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MissingPrivilege {
    /// MySQL: `SELECT` on `performance_schema`.
    PerformanceSchema,
    /// MySQL and MariaDB: `PROCESS`.
    Process,
    /// MySQL and MariaDB without `performance_schema`: `SELECT` on [`LABEL_TABLE`].
    LabelTable,
    /// PostgreSQL: membership of `pg_read_all_stats`, or of `pg_monitor`.
    ReadAllStats,
}

impl MissingPrivilege {
    /// Returns the information that is hidden without the privilege.
    pub fn hidden(self) -> &'static str {
        match self {
            MissingPrivilege::PerformanceSchema => {
                "who waits for whom, and the locks and labels of sessions"
            }
            MissingPrivilege::Process => {
                "sessions of other users, and the times of open transactions and of waits"
            }
            MissingPrivilege::LabelTable => "the labels of sessions",
            MissingPrivilege::ReadAllStats => {
                "statements, states, hosts and times of other users' sessions"
            }
        }
    }

    /// Returns the statement that grants the privilege to `account`, which must be quoted for SQL.
    pub fn grant(self, account: &str) -> String {
        match self {
            MissingPrivilege::PerformanceSchema => {
                format!("GRANT SELECT ON performance_schema.* TO {account}")
            }
            MissingPrivilege::Process => format!("GRANT PROCESS ON *.* TO {account}"),
            MissingPrivilege::LabelTable => format!("GRANT SELECT ON {LABEL_TABLE} TO {account}"),
            MissingPrivilege::ReadAllStats => format!("GRANT pg_read_all_stats TO {account}"),
        }
    }
}

/// Lists the sessions, except the one that runs the query. That session must not be in a transaction. On PostgreSQL
/// processes of the server are listed too, because a vacuum holds locks.
///
/// # Errors
/// The error of the server, or a timeout.
pub async fn list_sessions(
    session: &mut SessionRef<'_>,
    scope: &IntrospectionScope,
) -> Result<SessionList> {
    let mut list = match session.dialect {
        Dialect::Postgres => postgres(session, scope).await?,
        Dialect::Mysql | Dialect::Mariadb => innodb(session, scope).await?,
    };
    list.sessions.sort_by_key(|session| session.pid);
    Ok(list)
}

/// PostgreSQL's replacement for a statement that the account may not see.
const HIDDEN_STATEMENT: &str = "<insufficient privilege>";

async fn postgres(session: &mut SessionRef<'_>, scope: &IntrospectionScope) -> Result<SessionList> {
    let millis_since =
        |time: &str| format!("(EXTRACT(EPOCH FROM clock_timestamp() - {time}) * 1000)::bigint");
    // PostgreSQL 13 has no `waitstart`.
    let sql = format!(
        "SELECT a.pid, a.usename, \
         COALESCE(a.client_hostname, host(a.client_addr)) || COALESCE(':' || NULLIF(a.client_port, -1), ''), \
         a.datname, a.state, a.query, {}, \
         COALESCE(NULLIF(a.application_name, ''), NULLIF(a.backend_type, 'client backend')), NULL, \
         a.application_name, {}, {} FROM pg_stat_activity a LEFT JOIN (\
         SELECT pid, min((to_jsonb(l) ->> 'waitstart')::timestamptz) AS since FROM pg_locks l \
         WHERE NOT granted GROUP BY pid) w ON w.pid = a.pid \
         WHERE a.leader_pid IS NULL AND a.pid <> pg_backend_pid() AND {}",
        millis_since("a.state_change"),
        // A transaction may have begun long before its locks; the label of a lock session contains the time of the
        // locks.
        millis_since(
            "GREATEST(a.xact_start, \
             to_timestamp(substring(a.application_name FROM ' @([0-9]{1,11}) ')::bigint))"
        ),
        millis_since("w.since"),
        scope.condition("a.pid")
    );
    let rows = session.cells(&sql).await?;
    let mut list = SessionList::default();
    for mut session in rows.iter().filter_map(session_info) {
        if session.statement.take_if(|statement| statement == HIDDEN_STATEMENT).is_some() {
            list.missing = vec![MissingPrivilege::ReadAllStats];
        }
        let name = session.label.as_deref().unwrap_or_default();
        let whole = session.statement.as_deref().and_then(|sql| whole_label(sql, name));
        session.label = whole.map(str::to_owned).or(session.label);
        list.sessions.push(session);
    }
    Ok(list)
}

/// Returns an expression for the milliseconds since a time in InnoDB's tables, which use the time zone of the server's
/// host.
fn millis_since(time: &str) -> String {
    format!(
        "TIMESTAMPDIFF(MICROSECOND, CONVERT_TZ({time}, 'SYSTEM', '+00:00'), UTC_TIMESTAMP(6)) DIV 1000"
    )
}

async fn innodb(session: &mut SessionRef<'_>, scope: &IntrospectionScope) -> Result<SessionList> {
    let is_mysql = session.dialect == Dialect::Mysql;
    let millis = if is_mysql { "TIME * 1000" } else { "CAST(TIME_MS AS SIGNED)" };
    // All sessions with PROCESS, else only those of the account.
    let processes = format!(
        "SELECT ID, USER, HOST, DB, CONCAT_WS(': ', COMMAND, NULLIF(STATE, '')), INFO, {millis} \
         FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Daemon' AND ID <> {} AND {}",
        sessions::own_pid(session.dialect),
        scope.condition("ID")
    );
    let transactions = format!(
        "SELECT trx_mysql_thread_id, {}, {} FROM information_schema.INNODB_TRX \
         WHERE trx_mysql_thread_id <> 0",
        millis_since("trx_started"),
        millis_since("trx_wait_started")
    );
    let attribute = |name: &str| {
        format!(
            "(SELECT MAX(a.ATTR_VALUE) FROM performance_schema.session_connect_attrs a \
             WHERE a.PROCESSLIST_ID = t.PROCESSLIST_ID AND a.ATTR_NAME = '{name}')"
        )
    };
    // Begins with the columns of `processes`. It lists all sessions even without PROCESS, but without ports.
    let threads = format!(
        "SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_HOST, t.PROCESSLIST_DB, \
         CONCAT_WS(': ', t.PROCESSLIST_COMMAND, NULLIF(t.PROCESSLIST_STATE, '')), t.PROCESSLIST_INFO, \
         t.PROCESSLIST_TIME * 1000, COALESCE({}, {}), {}, \
         (SELECT MAX(CAST(v.VARIABLE_VALUE AS CHAR)) FROM performance_schema.user_variables_by_thread v \
         WHERE v.THREAD_ID = t.THREAD_ID AND v.VARIABLE_NAME = '{LABEL_VARIABLE}') \
         FROM performance_schema.threads t WHERE t.TYPE = 'FOREGROUND' \
         AND t.PROCESSLIST_COMMAND <> 'Daemon' AND t.PROCESSLIST_ID <> {} AND {}",
        attribute("program_name"),
        attribute("_client_name"),
        attribute("_pid"),
        sessions::own_pid(session.dialect),
        scope.condition("t.PROCESSLIST_ID")
    );
    let [processes, transactions, threads] =
        ask_each(session, [&*processes, &transactions, &threads]).await?;
    let mut missing = Vec::new();
    // MariaDB reads only labels from performance_schema, if it is on, and reads waits elsewhere.
    if threads.is_none() && is_mysql {
        missing.push(MissingPrivilege::PerformanceSchema);
    }
    if transactions.is_none() {
        missing.push(MissingPrivilege::Process);
    }
    // If `performance_schema` is off, its tables are empty.
    let labels = if threads.as_ref().is_none_or(Vec::is_empty) {
        read_label_table(session, &mut missing).await?
    } else {
        HashMap::new()
    };
    let infos = threads.iter().flatten().filter_map(session_info);
    let mut by_pid: HashMap<i64, SessionInfo> = infos.map(|info| (info.pid, info)).collect();
    for process in processes.iter().flatten().filter_map(session_info) {
        let SessionInfo { program, client_pid, label, .. } =
            by_pid.remove(&process.pid).unwrap_or_default();
        // The row of a hold that is being extended does not name the new targets yet.
        let assigned = process.statement.as_deref().and_then(assigned_label).map(str::to_owned);
        let label = label.or(assigned).or_else(|| labels.get(&process.pid).cloned());
        by_pid.insert(process.pid, SessionInfo { program, client_pid, label, ..process });
    }
    for row in transactions.iter().flatten() {
        if let Some(info) = number_cell(row, 0).and_then(|pid| by_pid.get_mut(&pid)) {
            info.in_transaction_for = duration_cell(row, 1);
            info.waiting_for = duration_cell(row, 2);
        }
    }
    Ok(SessionList { sessions: by_pid.into_values().collect(), missing })
}

/// Returns whether `performance_schema` is off. MySQL and MariaDB then hide the user variables of other sessions.
///
/// # Errors
/// Fails with the error of the server, or if it does not answer.
pub async fn is_performance_schema_off(session: &mut SessionRef<'_>) -> Result<bool> {
    let rows = session.cells("SHOW GLOBAL VARIABLES LIKE 'performance_schema'").await?;
    // A server may be built without performance_schema.
    Ok(rows.first().is_none_or(|row| cell(row, 1) != "ON"))
}

/// Reads the labels in [`LABEL_TABLE`], by process id. Holders write them and do not commit.
async fn read_label_table(
    session: &mut SessionRef<'_>,
    missing: &mut Vec<MissingPrivilege>,
) -> Result<HashMap<i64, String>> {
    // An ALTER TABLE may wait for a holder. This query must not wait behind it.
    let (before, hint) = match session.dialect {
        Dialect::Mariadb => ("SET STATEMENT lock_wait_timeout = 0 FOR ", ""),
        _ => ("", " /*+ SET_VAR(lock_wait_timeout = 1) */"),
    };
    let sql = format!(
        "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; \
         {before}SELECT{hint} session, label FROM {LABEL_TABLE}"
    );
    let rows = match session.cells(&sql).await {
        Ok(rows) => rows,
        Err(error) if ErrorClass::of(&error).is_connection_lost() => return Err(error),
        Err(error) => {
            // Otherwise the isolation level would apply to the next transaction.
            session.run("ROLLBACK").await?;
            let is_denied = ErrorClass::of(&error) == ErrorClass::AccessDenied;
            if is_denied && is_performance_schema_off(session).await? {
                missing.push(MissingPrivilege::LabelTable);
            }
            Vec::new()
        }
    };
    let label = |row: &CellRow| Some((number_cell(row, 0)?, cell(row, 1).to_owned()));
    Ok(rows.iter().filter_map(label).collect())
}

/// Reads a session. Missing columns are None.
fn session_info(row: &CellRow) -> Option<SessionInfo> {
    let text = |column: usize| Some(cell(row, column).to_owned()).filter(|text| !text.is_empty());
    Some(SessionInfo {
        pid: number_cell(row, 0)?,
        user: text(1),
        client: text(2),
        database: text(3),
        state: text(4),
        statement: text(5),
        in_state_for: duration_cell(row, 6),
        program: text(7),
        client_pid: number_cell(row, 8),
        label: text(9),
        in_transaction_for: duration_cell(row, 10),
        waiting_for: duration_cell(row, 11),
    })
}

/// Reads milliseconds, which are negative if a clock was set back.
fn duration_cell(row: &CellRow, column: usize) -> Option<Duration> {
    number_cell(row, column).map(|millis| Duration::from_millis(millis.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_lock_statement_shows_its_label() {
        let statement = |value: &str| {
            format!(
                "SELECT 1 FROM (SELECT of_7 FROM t WHERE (@hierlock := {value}) IS NOT NULL) t0"
            )
        };
        let label = "cron@web-3:4711 @1763418665 u1/a1";
        assert_eq!(assigned_label(&statement(&format!("'{label}'"))), Some(label));
        for statement in [statement("?"), statement("'cut off"), "SELECT 1".to_owned()] {
            assert_eq!(assigned_label(&statement), None, "{statement}");
        }
    }

    #[test]
    fn the_label_in_a_comment_must_name_the_process_of_the_application_name() {
        let label = "shop/cron@web-3.example.org:4711 @1763418665 u1/a1 u7 +3";
        let ping = format!("{} SELECT 1", label_comment(label));
        assert_eq!(whole_label(&ping, "cron@web-3:4711 @1763418665 u1/a*"), Some(label));
        for (statement, application_name) in [
            (&*ping, "cron@web-3:4712 @1763418665 u1/a*"),
            (&*ping, "psql"),
            (&*ping, ""),
            // Truncated to track_activity_query_size.
            (&ping[..40], "cron@web-3:4711 @1763418665 u1/a*"),
            ("/* hierlock: */ SELECT 1", "psql"),
            ("SELECT 1", "cron@web-3:4711 @1763418665 u1/a*"),
        ] {
            assert_eq!(whole_label(statement, application_name), None, "{statement}");
        }
    }
}
