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
use innodb_deadlock::InnodbDeadlock;
use mariadb::MariadbMemory;
use postgres::PostgresMemory;
use std::time::Duration;

type Result<T> = std::result::Result<T, sqlx::Error>;

/// Asks a server about its sessions. Fails with what the server says, or if it does not answer.
///
/// The session that asks should have a short limit for waits: naming a row of PostgreSQL reads its table.
#[derive(Debug, Default)]
pub struct Introspection {
    dictionary: Dictionary,
    mariadb: MariadbMemory,
    postgres: PostgresMemory,
}

/// One question: the session that asks it, the sessions it is about, and what is remembered of those before.
struct Question<'a, 's> {
    session: &'a mut SessionRef<'s>,
    scope: &'a IntrospectionScope,
    memory: &'a mut Introspection,
}

impl Introspection {
    /// Sets whether the listing of locks may be [switched on](ENABLE_LOCK_OUTPUT), for everybody, if it is found to be
    /// off. Only MariaDB needs it, and only an administrator may. By default it is left alone.
    #[must_use]
    pub fn may_enable_lock_output(mut self, may: bool) -> Self {
        self.mariadb.may_enable_lock_output = may;
        self
    }

    /// Fails if the account may not ask for locks.
    pub async fn check_permission(&self, session: &mut SessionRef<'_>) -> Result<()> {
        let question = match session.dialect {
            Dialect::Mysql => mysql::PERMISSION_CHECK,
            Dialect::Mariadb => innodb_status::QUERY,
            Dialect::Postgres => return Ok(()),
        };
        session.cells(question).await.map(|_| ())
    }

    /// Returns who waits for whom: live, never from a cache that lags.
    pub async fn lock_waits(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<Vec<LockWait>> {
        let mut question = Question { session, scope, memory: self };
        let waits = match question.session.dialect {
            Dialect::Mysql => question.mysql_waits().await,
            Dialect::Mariadb => question.mariadb_waits().await,
            Dialect::Postgres => question.postgres_waits().await,
        };
        Ok(waits?.in_scope(scope))
    }

    /// Returns the locks of the sessions, held and wanted, as far as the server tells.
    pub async fn locks(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
    ) -> Result<LockList> {
        let mut question = Question { session, scope, memory: self };
        let mut list = match question.session.dialect {
            Dialect::Mysql => question.mysql_locks().await,
            Dialect::Mariadb => question.mariadb_locks().await,
            Dialect::Postgres => question.postgres_locks().await,
        }?;
        list.locks.sort();
        list.locks.dedup();
        Ok(list)
    }

    /// Returns the last deadlock that the server remembers; PostgreSQL only tells the
    /// [victim](Self::deadlock_of_victim).
    pub async fn last_deadlock(
        &mut self,
        session: &mut SessionRef<'_>,
    ) -> Result<Option<DeadlockReport>> {
        if session.dialect == Dialect::Postgres {
            return Ok(None);
        }
        let status = session.cells(innodb_status::QUERY).await?;
        let deadlock = InnodbDeadlock::read(innodb_status::text(&status));
        let Some(deadlock) = deadlock else { return Ok(None) };
        for index in deadlock.indexes() {
            self.dictionary.learn(session, index).await?;
        }
        Ok(deadlock.report(&self.dictionary))
    }

    /// Returns how long the youngest wait had lasted when [`lock_waits`](Self::lock_waits) was last asked. Known on
    /// PostgreSQL alone, whose sessions look for a deadlock some time after a wait has begun.
    pub fn youngest_wait(&self) -> Option<Duration> {
        self.postgres.youngest_wait
    }
}

/// The answer to a question that not everybody may ask; None if it was refused.
pub(crate) fn if_allowed<T>(answer: Result<T>) -> Result<Option<T>> {
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
) -> Result<[Vec<CellRow>; N]> {
    let mut results = session.results(&questions.join("; ")).await?.into_iter();
    Ok(std::array::from_fn(|_| results.next().unwrap_or_default().rows))
}

/// A text as a literal (`'`) or an identifier (`"`) of PostgreSQL.
fn quoted(text: &str, quote: char) -> String {
    let doubled = text.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{doubled}{quote}")
}
