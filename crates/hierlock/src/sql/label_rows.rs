//! Publishes the labels of holds with the pings of the keep-alive task, where the lock statement cannot.
//!
//! Without `performance_schema` MySQL and MariaDB do not show the user variables of other sessions. There the label is a row
//! of [`LABEL_TABLE`], inserted **in the transaction that holds the locks** and never committed:
//!
//! ```text
//!   lock statement … first ping: SAVEPOINT, INSERT … (others read it at READ UNCOMMITTED) … ROLLBACK
//! ```
//!
//! 1. The row ends with the transaction: at the release, when the session ends, and when the server crashes. It is never in
//!    the binary log.
//! 2. The row is the last change of the transaction, after a savepoint. Before another write or a COMMIT the transaction rolls
//!    back to the savepoint, at which InnoDB keeps the row locks.
//! 3. The INSERT does not wait for locks. If it fails, the hold is unchanged. Without the table or the privilege the client does
//!    not try again.
//!
//! On PostgreSQL a label that is longer than `application_name` is sent with each ping, in a comment.
//! `pg_stat_activity` shows the last statement of an idle session.

use super::pool::fail_if_lost;
use super::session_label::{LabelLimit, MAX_POSTGRES_LENGTH};
use super::{Dialect, LabelText, LockPool};
use hierlock_engine::introspection::{LABEL_TABLE, is_performance_schema_off, label_comment};
use hierlock_engine::{ErrorClass, Session, error_message};
use std::collections::BTreeMap;

const SAVEPOINT: &str = "SAVEPOINT hierlock_label; ";
/// Removes the label row from the transaction, and nothing else.
const REMOVE_ROW: &str = "ROLLBACK TO SAVEPOINT hierlock_label; ";

/// The label rows in the transactions of one hold, by process id.
#[derive(Debug, Default)]
pub(super) struct LabelRows(BTreeMap<i64, LabelText>);

impl LabelRows {
    /// Returns the statement to send before other statements in the transaction of a session, and forgets the row. Empty if
    /// the transaction has no row.
    pub(super) fn removal(&mut self, session: &Session) -> &'static str {
        if self.0.remove(&session.id.pid).is_some() { REMOVE_ROW } else { "" }
    }

    /// Checks that a session is alive and that its server accepts writes, and shows its label. Fails if the session or its
    /// transaction has ended.
    pub(super) async fn ping(
        &mut self,
        pool: &LockPool,
        session: &mut Session,
        label: &LabelText,
    ) -> sqlx::Result<()> {
        if session.dialect == Dialect::Postgres {
            return match label.as_str() {
                short if short.len() <= MAX_POSTGRES_LENGTH => session.ping().await,
                long => session.run(&format!("{} SELECT 1", label_comment(long))).await,
            };
        }
        if self.0.get(&session.id.pid) == Some(label) || !pool.writes_label_rows(session).await? {
            return session.ping_primary().await;
        }
        let before = if self.0.contains_key(&session.id.pid) { REMOVE_ROW } else { SAVEPOINT };
        let Err(error) = write_row(pool, session, before, label).await else {
            self.0.insert(session.id.pid, label.clone());
            return Ok(());
        };
        let class = ErrorClass::of(&error);
        if class.is_connection_lost() || class == ErrorClass::Deadlock {
            return Err(error);
        }
        // The row of an earlier label may remain. It stays in the list, so it is removed before a COMMIT. If the table is
        // locked, or a late cancel has hit the statement, the next ping tries again.
        if !class.is_not_granted() && !class.is_interrupted() {
            let error = error_message(&error);
            tracing::debug!(error, "{LABEL_TABLE} cannot be written, so holders have no label");
            *pool.writes_label_rows.lock() = Some(false);
        }
        Ok(())
    }
}

/// Inserts the row of a session, after the statements in `before`. The INSERT does not wait for locks; on MySQL for at most a
/// second, the minimum there.
async fn write_row(
    pool: &LockPool,
    session: &mut Session,
    before: &str,
    label: &LabelText,
) -> sqlx::Result<()> {
    let label = label.as_str();
    let row = format!("INTO {LABEL_TABLE} (session, label) VALUES (CONNECTION_ID(), '{label}')");
    if session.dialect == Dialect::Mariadb {
        const NO_LOCK_WAIT: &str =
            "SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0";
        return session.run(&format!("{before}{NO_LOCK_WAIT} FOR INSERT {row}")).await;
    }
    // MySQL has no hint that sets this variable for one statement.
    let set = |seconds: u32| format!("SET SESSION innodb_lock_wait_timeout = {seconds}");
    let insert = format!("INSERT /*+ SET_VAR(lock_wait_timeout = 1) */ {row}");
    let written = fail_if_lost(session.run(&format!("{before}{}; {insert}", set(1))).await)?;
    let set_back = session.run(&set(pool.settings.pool.session.lock_wait_timeout)).await;
    // If a cancel has hit the second statement, later waits of this session start again every second, which is harmless.
    let _ = fail_if_lost(set_back)?;
    written
}

impl LockPool {
    /// Returns whether label rows are needed on this server, and possible. The first ping queries the server.
    async fn writes_label_rows(&self, session: &mut Session) -> sqlx::Result<bool> {
        let known = *self.writes_label_rows.lock();
        if let Some(known) = known {
            return Ok(known);
        }
        let is_off = is_performance_schema_off(&mut session.as_ref()).await?;
        Ok(*self.writes_label_rows.lock().get_or_insert(is_off))
    }
}

/// Returns whether the account of a session may insert and read label rows, with the error of the server if not. The session
/// is in no transaction before and after.
pub(super) async fn check(
    pool: &LockPool,
    session: &mut Session,
) -> sqlx::Result<Result<(), String>> {
    let (client, now) = (&pool.settings.client, pool.server.server_time());
    let label = LabelText::new(LabelLimit::NO_SERVER_LIMIT, client, now, []);
    let mut checked = write_row(pool, session, "", &label).await;
    if checked.is_ok() {
        checked = session.run(&format!("SELECT session FROM {LABEL_TABLE} LIMIT 0")).await;
    }
    // A Galera node without a majority rejects the ROLLBACK too.
    checked = checked.and(session.leave_transaction().await);
    Ok(fail_if_lost(checked)?.map_err(|error| error_message(&error)))
}
