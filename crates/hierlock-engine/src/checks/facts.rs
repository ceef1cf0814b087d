//! The facts of a server that the checks read.

use super::Cluster;
use crate::introspection::{if_allowed, rows_if_allowed};
use crate::row::CellRow;
use crate::{
    Dialect, Purpose, Session, SessionSettings, cell, error_message, introspection, number_cell,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Values by name: server settings or status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// Returns a value; None if there is no value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a value as a number; None if there is no number of this name.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// Returns whether a switch is on; None if there is no value of this name.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| matches!(value, "ON" | "on" | "1" | "YES"))
    }

    /// Sets a value.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_ascii_lowercase(), value.into());
    }

    /// Adds rows with the name in the first column and the value in column `column`.
    pub(super) fn add_rows(&mut self, rows: &[CellRow], column: usize) {
        for row in rows {
            self.set(cell(row, 0), cell(row, column));
        }
    }
}

/// The server's clock compared with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The milliseconds that the server's clock is ahead of ours; negative if it is behind.
    pub offset_ms: i64,
    /// The round trip of the query.
    pub round_trip: Duration,
}

/// The facts of a server. A fact that the server did not report is missing.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The server.
    pub dialect: Dialect,
    /// `VERSION()`; on PostgreSQL `server_version_num`.
    pub version: String,
    /// The server's description of itself: `@@version_comment`; on PostgreSQL `version()`.
    pub product: String,
    /// Whether the server is a replica or accepts no writes.
    pub is_read_only: bool,
    /// The cluster that the server belongs to.
    pub cluster: Option<Cluster>,
    /// The initial session settings of the account.
    pub settings: Values,
    /// The settings that a lock session has requested.
    pub requested: Values,
    /// The actual settings of the lock session.
    pub session: Values,
    /// The status: connections, replicas.
    pub state: Values,
    /// The clock.
    pub clock: Option<ClockReading>,
    /// Whether the account may query locks and lock waits; else the error of the server.
    pub probes: Option<Result<(), String>>,
    /// Whether the account may write its label to [`LABEL_TABLE`](introspection::LABEL_TABLE) and read the labels of other
    /// sessions; else the error of the server. The writer of labels sets this where `performance_schema` is off.
    pub label_table: Option<Result<(), String>>,
    /// Whether a pooler assigns a connection per transaction. The owner of the pool sets this.
    pub is_pooled: Option<bool>,
    /// The number of connections that the clients need. The owner of their settings sets this.
    pub needed_connections: Option<u64>,
}

const INNODB_SETTINGS: &str = "'aurora_version', 'innodb_deadlock_detect', 'innodb_lock_wait_timeout', \
     'innodb_rollback_on_timeout', 'innodb_snapshot_isolation', 'max_connections', 'max_user_connections', \
     'performance_schema', 'transaction_isolation', 'tx_isolation', 'wait_timeout'";

const INNODB_STATE: &str = "'Slaves_connected', 'Slaves_running', 'Threads_connected'";

const POSTGRES_SETTINGS: &str = "SELECT name, setting, reset_val FROM pg_settings WHERE name IN (\
     'deadlock_timeout', 'default_transaction_isolation', 'idle_in_transaction_session_timeout', \
     'idle_session_timeout', 'lock_timeout', 'max_connections', 'neon.timeline_id', 'reserved_connections', \
     'superuser_reserved_connections')";

/// One row per value: its name and a number.
const POSTGRES_STATE: &str = "\
     SELECT 'connections', count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
     UNION ALL SELECT 'role_connections', count(*) FROM pg_stat_activity WHERE usename = current_user \
     UNION ALL SELECT 'role_limit', rolconnlimit FROM pg_roles WHERE rolname = current_user \
     UNION ALL SELECT 'database_limit', datconnlimit FROM pg_database WHERE datname = current_database() \
     UNION ALL SELECT 'superuser', rolsuper::int FROM pg_roles WHERE rolname = current_user \
     UNION ALL SELECT 'replicas', count(*) FROM pg_stat_replication \
     UNION ALL SELECT 'reads_all', pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')::int \
     UNION ALL SELECT 'aurora', count(*) FROM pg_proc WHERE proname = 'aurora_version'";

/// Counts the sources that MySQL replicates from, except those of its group, and its replicas. A source that is
/// unreachable at the moment is counted too.
const MYSQL_STATE: &str = "\
     SELECT 'sources', COUNT(*) FROM performance_schema.replication_connection_status \
     WHERE SERVICE_STATE <> 'OFF' AND CHANNEL_NAME NOT LIKE 'group\\_replication%' \
     UNION ALL SELECT 'replicas', COUNT(*) FROM performance_schema.threads \
     WHERE PROCESSLIST_COMMAND LIKE 'Binlog Dump%'";

impl ServerFacts {
    /// Returns empty facts.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            version: String::new(),
            product: String::new(),
            is_read_only: false,
            cluster: None,
            settings: Values::default(),
            requested: Values::default(),
            session: Values::default(),
            state: Values::default(),
            clock: None,
            probes: None,
            label_table: None,
            is_pooled: None,
            needed_connections: None,
        }
    }

    /// Returns the facts that a session has read when it was opened.
    pub(crate) fn of_session(session: &Session) -> Self {
        let (version, product) = (session.version.clone(), session.product.clone());
        let is_read_only = session.is_read_only;
        Self { version, product, is_read_only, ..Self::new(session.dialect) }
    }

    /// Reads the facts for the checks at connect. Fails with the error of the server.
    pub(crate) async fn at_connect(session: &mut Session) -> Result<Self, sqlx::Error> {
        let mut facts = Self::of_session(session);
        if session.dialect.is_innodb() {
            facts.cluster = Cluster::read(session).await?;
            let name = "innodb_rollback_on_timeout";
            let rows = if_allowed(session.rows(&format!("SELECT @@{name}")).await)?;
            if let Some(value) = rows.iter().flatten().next() {
                facts.settings.set(name, &*value[0]);
            }
            // A Galera node without a majority refuses even a ROLLBACK.
            if_allowed(session.run("ROLLBACK").await)?;
        }
        Ok(facts)
    }

    /// Reads all facts, on a clean lock session with these settings. Fails if the connection is lost.
    pub async fn read(
        session: &mut Session,
        settings: &SessionSettings,
    ) -> Result<Self, sqlx::Error> {
        let mut facts = Self::of_session(session);
        for (name, value) in settings.values(session.dialect, Purpose::Lock) {
            facts.requested.set(name, value);
        }
        if session.dialect.is_innodb() {
            facts.read_innodb(session).await?;
        } else {
            facts.read_postgres(session).await?;
        }
        let has_performance_schema = facts.settings.is_on("performance_schema") == Some(true);
        let access =
            introspection::check_access(&mut session.as_ref(), has_performance_schema).await;
        facts.probes = match access {
            Err(error) if crate::ErrorClass::of(&error).is_connection_lost() => return Err(error),
            Err(error) => Some(Err(error_message(&error))),
            Ok(()) => Some(Ok(())),
        };
        facts.clock = read_clock(session).await?;
        if_allowed(session.leave_transaction().await)?;
        Ok(facts)
    }

    /// Returns the value that a lock session has for a setting, if it has requested another.
    pub(super) fn refused_setting(&self, name: &str) -> Option<&str> {
        let requested = self.requested.get(name)?;
        self.session.get(name).filter(|actual| *actual != requested)
    }

    async fn read_innodb(&mut self, session: &mut Session) -> Result<(), sqlx::Error> {
        let sql = format!(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ({INNODB_SETTINGS}); \
             SHOW SESSION VARIABLES WHERE Variable_name IN ({INNODB_SETTINGS}); \
             SHOW GLOBAL STATUS WHERE Variable_name IN ({INNODB_STATE})"
        );
        if let Some(results) = if_allowed(session.as_ref().results(&sql).await)? {
            let lists = [&mut self.settings, &mut self.session, &mut self.state];
            for (values, result) in lists.into_iter().zip(results) {
                values.add_rows(&result.rows, 1);
            }
        }
        self.cluster = Cluster::read(session).await?;
        if self.dialect == Dialect::Mysql {
            self.state.add_rows(&rows_if_allowed(&mut session.as_ref(), MYSQL_STATE).await?, 1);
        }
        Ok(())
    }

    async fn read_postgres(&mut self, session: &mut Session) -> Result<(), sqlx::Error> {
        let settings = rows_if_allowed(&mut session.as_ref(), POSTGRES_SETTINGS).await?;
        self.session.add_rows(&settings, 1);
        self.settings.add_rows(&settings, 2);
        self.state.add_rows(&rows_if_allowed(&mut session.as_ref(), POSTGRES_STATE).await?, 1);
        Ok(())
    }
}

/// Reads the clock. The server reads it about halfway through the round trip.
async fn read_clock(session: &mut Session) -> Result<Option<ClockReading>, sqlx::Error> {
    // Milliseconds since 1970.
    let query = if session.dialect.is_innodb() {
        "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)"
    } else {
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
    let (begun, before) = (Instant::now(), SystemTime::now());
    let rows = rows_if_allowed(&mut session.as_ref(), query).await?;
    let round_trip = begun.elapsed();
    let server_ms = rows.first().and_then(|row| number_cell(row, 0));
    let client_time = (before + round_trip / 2).duration_since(UNIX_EPOCH).unwrap_or_default();
    let offset = |server_ms: i64| server_ms.saturating_sub(client_time.as_millis() as i64);
    Ok(server_ms.map(|server_ms| ClockReading { offset_ms: offset(server_ms), round_trip }))
}
