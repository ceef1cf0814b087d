//! Rows that are not there: which they are, and how they are made on demand.

use super::acquire_error::Result;
use super::wait::WatchEnd;
use super::{AcquireError, Acquirer, LockSession, LockStatement, ValueForm};
use crate::backend::WaitLimit;
use crate::{Error, Step};
use hierlock_engine::{LockWaitPolicy, Session, SessionRef};
use std::collections::HashSet;
use std::time::Duration;

/// How long an INSERT of a missing row waits for somebody else who makes the same.
const INSERT_WAIT: Duration = Duration::from_millis(200);

impl Acquirer {
    /// Gives back what was taken, and fails with which rows are not there.
    pub(super) async fn fail_for_missing(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<()> {
        session.undo().await?;
        let missing = self.find_missing(&mut session.inner, steps).await;
        let missing = missing.map_err(AcquireError::ConnectionLost)?;
        // On InnoDB the read itself has begun a transaction.
        session.undo().await?;
        Err(AcquireError::MissingRows(missing))
    }

    /// Returns the steps whose rows are not there, by a plain read.
    async fn find_missing(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
    ) -> Result<Vec<Step>, sqlx::Error> {
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

    /// Makes rows that are missing, in a transaction of its own.
    ///
    /// On MySQL and MariaDB the INSERT waits for whoever has just made the same row and locked it. That wait may be out
    /// of order, and who only tries must not wait at all. So it is short: after [`INSERT_WAIT`] it begins again, finds
    /// the row, and does with it as with any other.
    pub(super) async fn insert(&self, session: &mut Session, steps: &[Step]) -> Result<()> {
        let insert = self.scheme.insert(steps.iter().map(|step| &step.target));
        // It commits, whatever it was in before.
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
            WatchEnd::TimedOut(waited) => {
                let place = report.blocked_at.unwrap_or(0);
                let conflict = self.conflict(&steps[place], report.blocker);
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

    /// Makes the rows of these steps that are missing, on another session: whose end is not that of a hold.
    pub(super) async fn make_rows(&self, steps: &[Step]) -> Result<()> {
        let mut idle = self.pool.server.take_idle();
        loop {
            let was_idle = idle.is_some();
            let mut session = self.pool.idle_or_new(&mut idle).await?;
            match self.make_rows_on(&mut session, steps).await {
                // It was lost while it was idle, and the next is new.
                Err(AcquireError::ConnectionLost(_)) if was_idle => {}
                made => {
                    self.pool.server.give_back(session);
                    return made.map_err(|why| self.of_another_session(why));
                }
            }
        }
    }

    async fn make_rows_on(&self, session: &mut Session, steps: &[Step]) -> Result<()> {
        loop {
            let missing = self.find_missing(&mut session.as_ref(), steps).await;
            let missing = missing.map_err(|error| self.failure(error, &steps[0]))?;
            session.roll_back().await.map_err(AcquireError::ConnectionLost)?;
            if missing.is_empty() {
                return Ok(());
            }
            match self.insert(session, &missing).await {
                // Somebody else is making one of them.
                Err(AcquireError::LockWaitTimeout) => {}
                inserted => return inserted,
            }
        }
    }
}
