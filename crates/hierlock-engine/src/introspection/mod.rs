//! What a server says about its sessions: who waits for whom, who has which locks, and what the last deadlock was.
//! Everything is keyed by the server's number of a session (its pid).
//!
//! ```text
//!   Introspection ── one per connection that asks; remembers what need not be asked twice
//!     mysql      tables of locks and waits: live and complete      mysql_flush: waits for FLUSH TABLES
//!     mariadb    SHOW ENGINE INNODB STATUS, tables after a pause
//!     postgres   pg_locks, pg_blocking_pids, pgrowlocks            postgres_deadlock: what a victim is told
//!        │
//!        ├─ innodb_status, innodb_deadlock   the reader of that text     metadata   rules of metadata locks
//!        └─ dictionary, key_value, key_time  bytes of a key become what a person would write
//! ```

pub mod conflict;
mod dictionary;
mod innodb;
mod innodb_deadlock;
pub mod innodb_status;
mod key_time;
mod key_value;
mod lock;
mod mariadb;
mod metadata;
mod mysql;
mod mysql_flush;
mod postgres;
mod postgres_deadlock;
mod scope;
mod session_list;
mod wait_list;

pub use lock::{
    DeadlockReport, DeadlockWait, IncompleteLocks, LockKind, LockList, LockTarget, LockWait,
    SessionLock,
};
pub use mariadb::{DISABLE_LOCK_OUTPUT, ENABLE_LOCK_OUTPUT, IS_LOCK_OUTPUT_ENABLED};
pub use scope::IntrospectionScope;
pub use session_list::{SessionInfo, list_sessions};

use crate::row::CellRow;
use crate::{Dialect, ErrorClass, SessionRef};
use dictionary::Dictionary;
use std::time::Duration;
use wait_list::WaitList;

/// Asks a server about its sessions, and remembers between two questions what need not be asked again.
///
/// The session that asks should have a short limit for waits of its own: naming a row of PostgreSQL reads its table,
/// which somebody may have locked as a whole.
#[derive(Debug)]
pub struct Introspection {
    dialect: Dialect,
    mariadb: mariadb::MariadbMemory,
    postgres: postgres::PostgresMemory,
    dictionary: Dictionary,
}

impl Introspection {
    /// Knows nothing yet.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            mariadb: mariadb::MariadbMemory::default(),
            postgres: postgres::PostgresMemory::default(),
            dictionary: Dictionary::default(),
        }
    }

    /// Sets whether the listing of locks may be [switched on](ENABLE_LOCK_OUTPUT), for everybody, if it is found to be
    /// off. Only MariaDB needs it, and only an administrator may. By default it is left alone.
    #[must_use]
    pub fn may_enable_lock_output(mut self, may: bool) -> Self {
        self.mariadb = mariadb::MariadbMemory::new(may);
        self
    }

    /// Fails if the account may not ask for locks.
    ///
    /// # Errors
    /// What the server says.
    pub async fn check_permission(&self, session: &mut SessionRef<'_>) -> Result<(), sqlx::Error> {
        match self.dialect {
            Dialect::Mysql => session.cells(mysql::PERMISSION_CHECK).await.map(|_| ()),
            Dialect::Mariadb => innodb::status(session).await.map(|_| ()),
            Dialect::Postgres => Ok(()),
        }
    }

    /// Returns who waits for whom: live, never from a cache that lags.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub async fn lock_waits(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<Vec<LockWait>, sqlx::Error> {
        let Self { dialect, mariadb, postgres, dictionary } = self;
        match dialect {
            Dialect::Mysql => mysql::waits(session, dictionary, scope).await,
            Dialect::Mariadb => mariadb.waits(session, dictionary, scope).await,
            Dialect::Postgres => postgres.waits(session, scope).await,
        }
    }

    /// Returns the locks of the sessions, held and wanted, as far as the server tells.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub async fn locks(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<LockList, sqlx::Error> {
        let Self { dialect, mariadb, postgres, dictionary } = self;
        match dialect {
            Dialect::Mysql => mysql::locks(session, dictionary, scope).await,
            Dialect::Mariadb => mariadb.locks(session, dictionary, scope).await,
            Dialect::Postgres => postgres.locks(session, scope).await,
        }
    }

    /// Returns the last deadlock of rows or tables that the server remembers. PostgreSQL remembers none: it tells the
    /// victim, see [`deadlock_of_victim`](Self::deadlock_of_victim).
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub async fn last_deadlock(
        &mut self,
        session: &mut SessionRef<'_>,
    ) -> Result<Option<DeadlockReport>, sqlx::Error> {
        match self.dialect {
            Dialect::Postgres => Ok(None),
            dialect => innodb::last_deadlock(session, dialect, &mut self.dictionary).await,
        }
    }

    /// Returns the deadlock in which a session of PostgreSQL was the victim, from the detail and the context of its
    /// error, a line each. None if it cannot be read.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub async fn deadlock_of_victim(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        victim: i64,
        detail: &str,
    ) -> Result<Option<DeadlockReport>, sqlx::Error> {
        postgres_deadlock::report(session, &mut self.postgres, scope, victim, detail).await
    }

    /// Returns how long the youngest wait had lasted when [`lock_waits`](Self::lock_waits) was last asked. Known on
    /// PostgreSQL alone, whose sessions look for a deadlock some time after a wait has begun.
    pub fn youngest_wait(&self) -> Option<Duration> {
        self.postgres.youngest_wait
    }
}

/// The answer to a question that not everybody may ask; None if it was refused.
fn if_allowed<T>(answer: Result<T, sqlx::Error>) -> Result<Option<T>, sqlx::Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if ErrorClass::of(&error).is_connection_lost() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Asks several things at once, in one round trip.
async fn ask_all<const N: usize>(
    session: &mut SessionRef<'_>,
    questions: [&str; N],
) -> Result<[Vec<CellRow>; N], sqlx::Error> {
    let mut results = session.results(&questions.join("; ")).await?.into_iter();
    Ok(std::array::from_fn(|_| results.next().unwrap_or_default().rows))
}

/// A text as a literal (`'`) or an identifier (`"`) of PostgreSQL.
fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}
