//! Introspection of a server: its sessions, lock waits, locks and deadlocks. Sessions are identified by process id
//! (pid).
//!
//! ```text
//!   Introspection ── one per connection that asks; caches the table definitions
//!     mysql      tables of locks and waits: live and complete      mysql_flush: waits for FLUSH TABLES
//!     mariadb    SHOW ENGINE INNODB STATUS, tables after a pause
//!     postgres   pg_locks, pg_blocking_pids, pgrowlocks            postgres_deadlock: the error of a victim
//!        │
//!        ├─ innodb_status, innodb_deadlock   parsers of that status      metadata   rules of metadata locks
//!        ├─ session_list   accounts, clients and statements              wait_forest   waits as trees by root blocker
//!        ├─ deadlock_dump, postgres_log      deadlocks in texts and logs, lock_words: locks in plain words
//!        └─ dictionary, key_value, key_time  keys from bytes to readable values
//! ```

pub mod conflict;
mod deadlock_dump;
mod dictionary;
mod innodb_deadlock;
pub mod innodb_status;
mod key_time;
mod key_value;
mod lock;
mod lock_words;
mod log_fields;
mod mariadb;
mod metadata;
mod mysql;
mod mysql_flush;
mod pasted_text;
mod postgres;
mod postgres_deadlock;
mod postgres_log;
mod postgres_wait;
mod scope;
mod session_list;
mod wait_forest;
mod wait_list;

pub use deadlock_dump::{
    DeadlockDump, DeadlockLock, DeadlockMember, RowContext, is_server_text, read_deadlocks,
};
pub use lock::{
    DeadlockReport, DeadlockWait, IncompleteLocks, LockKind, LockList, LockTarget, LockWait,
    SessionLock,
};
pub use lock_words::lock_words;
pub use mariadb::{DISABLE_LOCK_OUTPUT, ENABLE_LOCK_OUTPUT, IS_LOCK_OUTPUT_ENABLED};
pub use scope::IntrospectionScope;
pub use session_list::{
    LABEL_TABLE, LABEL_VARIABLE, MissingPrivilege, SessionInfo, SessionList,
    is_performance_schema_off, label_comment, list_sessions,
};
pub use wait_forest::{TreeRoot, TreeRow, WaitTree, wait_trees};

use crate::row::CellRow;
use crate::{Dialect, ErrorClass, SessionRef};
use dictionary::Dictionary;
use innodb_deadlock::InnodbDeadlock;
use mariadb::MariadbState;
use postgres::PostgresState;
use std::time::Duration;

type Result<T> = std::result::Result<T, sqlx::Error>;

/// Queries a server about its sessions. Fails with the error of the server, or if it does not respond.
///
/// The session of the queries should have a short lock timeout, because naming a row of PostgreSQL reads its table.
#[derive(Debug, Default)]
pub struct Introspection {
    dictionary: Dictionary,
    mariadb: MariadbState,
    postgres: PostgresState,
}

/// One query: the session that runs it, the sessions it is about, and the state of earlier queries.
struct IntrospectionQuery<'a, 's> {
    session: &'a mut SessionRef<'s>,
    scope: &'a IntrospectionScope,
    introspection: &'a mut Introspection,
}

impl Introspection {
    /// Sets whether MariaDB's lock output may be [switched on](ENABLE_LOCK_OUTPUT) when it is off. The setting is
    /// global and needs an administrator. By default it is not changed.
    #[must_use]
    pub fn may_enable_lock_output(mut self, may: bool) -> Self {
        self.mariadb.may_enable_lock_output = may;
        self
    }

    /// Fails if the account may not query locks.
    pub async fn check_permission(&self, session: &mut SessionRef<'_>) -> Result<()> {
        let sql = match session.dialect {
            Dialect::Mysql => mysql::ACCESS_CHECK,
            Dialect::Mariadb => innodb_status::QUERY,
            Dialect::Postgres => return Ok(()),
        };
        session.cells(sql).await.map(|_| ())
    }

    /// Returns the lock waits: live, never from a cache that lags.
    pub async fn lock_waits(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<Vec<LockWait>> {
        let mut query = IntrospectionQuery { session, scope, introspection: self };
        let waits = match query.session.dialect {
            Dialect::Mysql => query.mysql_waits().await,
            Dialect::Mariadb => query.mariadb_waits().await,
            Dialect::Postgres => query.postgres_waits().await,
        };
        Ok(waits?.in_scope(scope))
    }

    /// Returns the locks of the sessions, held and wanted, as far as the server lists them.
    pub async fn locks(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<LockList> {
        let mut query = IntrospectionQuery { session, scope, introspection: self };
        let mut list = match query.session.dialect {
            Dialect::Mysql => query.mysql_locks().await,
            Dialect::Mariadb => query.mariadb_locks().await,
            Dialect::Postgres => query.postgres_locks().await,
        }?;
        list.locks.sort();
        list.locks.dedup();
        Ok(list)
    }

    /// Returns the last deadlock in the server's status. PostgreSQL reports deadlocks only to the
    /// [victim](Self::deadlock_of_victim).
    pub async fn last_deadlock(
        &mut self,
        session: &mut SessionRef<'_>,
    ) -> Result<Option<DeadlockReport>> {
        let deadlock = self.last_innodb_deadlock(session).await?;
        Ok(deadlock.and_then(|deadlock| deadlock.report(&self.dictionary)))
    }

    /// Returns all details of the last deadlock in the server's status; None on PostgreSQL. Keys of tables that no
    /// longer exist or that the account may not see are guessed.
    pub async fn last_deadlock_dump(
        &mut self,
        session: &mut SessionRef<'_>,
    ) -> Result<Option<DeadlockDump>> {
        let deadlock = self.last_innodb_deadlock(session).await?;
        self.dictionary.guesses = true;
        Ok(deadlock.map(|deadlock| deadlock.dump(&self.dictionary)))
    }

    async fn last_innodb_deadlock(
        &mut self,
        session: &mut SessionRef<'_>,
    ) -> Result<Option<InnodbDeadlock>> {
        if session.dialect == Dialect::Postgres {
            return Ok(None);
        }
        let status = session.cells(innodb_status::QUERY).await?;
        let deadlock = InnodbDeadlock::parse_last(innodb_status::text(&status));
        let Some(deadlock) = deadlock else { return Ok(None) };
        for index in deadlock.indexes() {
            self.dictionary.load(session, index).await?;
        }
        Ok(Some(deadlock))
    }

    /// Returns the number of deadlocks since the server was started or the counter was reset; None if the account may
    /// not see it or the server does not count. PostgreSQL counts about a second late.
    pub async fn deadlock_count(&self, session: &mut SessionRef<'_>) -> Result<Option<u64>> {
        let query = match session.dialect {
            // Needs PROCESS.
            Dialect::Mysql => {
                "SELECT `COUNT` FROM information_schema.INNODB_METRICS \
                 WHERE NAME = 'lock_deadlocks' AND STATUS = 'enabled'"
            }
            Dialect::Mariadb => "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'",
            Dialect::Postgres => "SELECT sum(deadlocks)::bigint FROM pg_stat_database",
        };
        let rows = rows_if_allowed(session, query).await?;
        // The name of a status variable comes before its value.
        Ok(rows.first().and_then(|row| row.last()?.as_ref()?.parse().ok()))
    }

    /// Returns the age of the youngest wait in the last result of [`lock_waits`](Self::lock_waits). Known only on
    /// PostgreSQL, whose sessions search for a deadlock some time after a wait has begun.
    pub fn youngest_wait(&self) -> Option<Duration> {
        self.postgres.youngest_wait
    }
}

/// Names the tables that contain session labels and connection attributes, and reads no rows.
const LABEL_ACCESS_CHECK: &str = "SELECT 1 FROM performance_schema.threads, \
     performance_schema.session_connect_attrs, performance_schema.user_variables_by_thread WHERE 1 = 0";

/// Fails with the error of the server if the account may not query locks, waits, the last deadlock and session labels.
pub(crate) async fn check_access(
    session: &mut SessionRef<'_>,
    has_performance_schema: bool,
) -> Result<()> {
    let queries: &[&str] = match session.dialect {
        Dialect::Mysql => &[mysql::ACCESS_CHECK, LABEL_ACCESS_CHECK, innodb_status::QUERY],
        Dialect::Mariadb if has_performance_schema => &[LABEL_ACCESS_CHECK, innodb_status::QUERY],
        Dialect::Mariadb => &[innodb_status::QUERY],
        Dialect::Postgres => &[],
    };
    for query in queries {
        session.cells(query).await?;
    }
    Ok(())
}

/// Returns None if the server refused a query, for example for a missing privilege. Fails if the connection is lost.
pub(crate) fn if_allowed<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if ErrorClass::of(&error).is_connection_lost() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Runs a query. Returns no rows if the server refuses it.
pub(crate) async fn rows_if_allowed(
    session: &mut SessionRef<'_>,
    query: &str,
) -> Result<Vec<CellRow>> {
    Ok(if_allowed(session.cells(query).await)?.unwrap_or_default())
}

/// Runs several queries in one round trip.
async fn ask_all<const N: usize>(
    session: &mut SessionRef<'_>,
    queries: [&str; N],
) -> Result<[Vec<CellRow>; N]> {
    let mut results = session.results(&queries.join("; ")).await?.into_iter();
    Ok(std::array::from_fn(|_| results.next().unwrap_or_default().rows))
}

/// Like [`ask_all`], with None for each query that the server refuses.
async fn ask_each<const N: usize>(
    session: &mut SessionRef<'_>,
    queries: [&str; N],
) -> Result<[Option<Vec<CellRow>>; N]> {
    if let Some(answers) = if_allowed(ask_all(session, queries).await)? {
        return Ok(answers.map(Some));
    }
    let mut answers = std::array::from_fn(|_| None);
    for (answer, query) in answers.iter_mut().zip(queries) {
        *answer = if_allowed(session.cells(query).await)?;
    }
    Ok(answers)
}

/// Quotes a literal (`'`) or an identifier (`"`) of PostgreSQL.
fn quote(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}
