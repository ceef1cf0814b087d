//! Missing lock rows: finds them, and inserts them with the strategy `on-demand`.

use super::acquire_error::Result;
use super::wait::WatchEnd;
use super::{AcquireError, Acquirer, LockSession, LockStatement, ValueForm};
use crate::backend::WaitLimit;
use crate::{Error, Step};
use hierlock_engine::{LockWaitPolicy, Session, SessionRef};
use std::collections::HashSet;
use std::time::Duration;

/// The limit for an INSERT that waits for another client's INSERT of the same row.
const INSERT_WAIT: Duration = Duration::from_millis(200);

impl Acquirer {
    /// Releases the locks of a statement that found too few rows, and fails with the missing rows.
    pub(super) async fn fail_for_missing(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<()> {
        session.undo().await?;
        let missing = self.find_missing(&mut session.inner, steps).await;
        let missing = missing.map_err(AcquireError::ConnectionLost)?;
        // On InnoDB the read has begun a transaction.
        session.undo().await?;
        Err(AcquireError::MissingRows(missing))
    }

    /// Returns the steps whose rows do not exist, by a read without locks.
    async fn find_missing(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
    ) -> sqlx::Result<Vec<Step>> {
        let scheme = &*self.scheme;
        let mut writer = scheme.writer(LockWaitPolicy::Wait, ValueForm::Text);
        let rows: Vec<String> =
            steps.iter().map(|step| format!("({})", writer.row("", step))).collect();
        let name = if scheme.strategy.is_by_id() { scheme.hex_key() } else { "level, bucket" };
        let (table, rows) = (scheme.quoted_table(), rows.join(" OR "));
        let found = session.rows(&format!("SELECT {name} FROM {table} WHERE {rows}")).await?;
        let found: HashSet<String> = found.into_iter().map(|row| row.join(", ")).collect();
        let is_missing = |step: &&Step| !found.contains(&scheme.slot_name(step));
        Ok(steps.iter().filter(is_missing).cloned().collect())
    }

    /// Inserts and commits rows, in a transaction of their own.
    ///
    /// On MySQL and MariaDB the INSERT waits for a client that has inserted the same row and locked it. That wait may be
    /// out of order, and a try must not wait at all. So the INSERT waits at most [`INSERT_WAIT`]. Then the acquire starts
    /// again, and finds the row.
    pub(super) async fn insert(&self, session: &mut Session, steps: &[Step]) -> Result<()> {
        let insert = self.scheme.insert(steps.iter().map(|step| &step.target));
        // The statement commits, so a transaction that has begun ends.
        session.in_transaction = false;
        let (inner, begin, rollback) = (session.as_ref(), "", "ROLLBACK");
        let mut session = LockSession { inner, begin, rollback };
        let short = WaitLimit::within(INSERT_WAIT);
        let limit = if self.wait_limit.ends_before(short) { self.wait_limit } else { short };
        let insert = LockStatement::text(insert);
        let report = self.watch(&mut session.inner, insert, steps, limit).await;
        let why = match report.end {
            WatchEnd::Ran(Ok(_)) => {
                session.inner.mark_clean();
                return Ok(());
            }
            WatchEnd::Ran(Err(error)) => match self.failure(error, &steps[0]) {
                AcquireError::Deadlock(_) => AcquireError::LockWaitTimeout,
                why => why,
            },
            WatchEnd::Abandoned => AcquireError::Abandoned,
            WatchEnd::TimedOut(waited, blockers) => {
                let step = &steps[report.blocked_at.unwrap_or(0)];
                let conflict = self.conflict(step, blockers);
                if !self.wait_limit.waits() {
                    Error::would_block(conflict).into()
                } else if self.wait_limit.is_over() {
                    Error::timeout(conflict, waited).into()
                } else {
                    AcquireError::LockWaitTimeout
                }
            }
        };
        Err(session.undo_after(why).await)
    }

    /// Inserts the missing rows of these steps on another session, whose loss does not lose a hold.
    pub(super) async fn insert_missing(&self, steps: &[Step]) -> Result<()> {
        let mut idle = self.pool.server.take_idle();
        loop {
            let was_idle = idle.is_some();
            let mut session = self.pool.idle_or_new(&mut idle).await?;
            match self.insert_missing_on(&mut session, steps).await {
                // The session was lost while it was idle. The next one is new.
                Err(AcquireError::ConnectionLost(_)) if was_idle => {}
                inserted => {
                    self.pool.server.give_back(session);
                    return inserted.map_err(|why| self.of_another_session(why));
                }
            }
        }
    }

    async fn insert_missing_on(&self, session: &mut Session, steps: &[Step]) -> Result<()> {
        loop {
            let missing = self.find_missing(&mut session.as_ref(), steps).await;
            let missing = missing.map_err(|error| self.failure(error, &steps[0]))?;
            session.roll_back().await.map_err(AcquireError::ConnectionLost)?;
            if missing.is_empty() {
                return Ok(());
            }
            match self.insert(session, &missing).await {
                // Another client is inserting one of the rows.
                Err(AcquireError::LockWaitTimeout) => {}
                inserted => return inserted,
            }
        }
    }
}
