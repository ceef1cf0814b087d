//! A session on which locks are taken, and how they are given back after a failure.

use super::acquire_error::{AcquireError, Result};
use super::statement::{LockStatement, ValueForm};
use hierlock_engine::{ErrorClass, Session, SessionRef};

/// Only PostgreSQL gives locks back at a savepoint.
const TO_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT hierlock";
/// InnoDB gives nothing back in the middle of a transaction: a refused row leaves the others as they are. A cancel that
/// comes late ends this statement, and not the next.
const NOTHING: &str = "DO 0";

/// A session on which locks are taken: what is sent before the first, and what gives back all that was taken since.
pub(super) struct LockSession<'a> {
    pub(super) inner: SessionRef<'a>,
    pub(super) begin: &'static str,
    pub(super) rollback: &'static str,
}

impl<'a> LockSession<'a> {
    /// Returns one in a transaction of its own, which begins by itself on InnoDB. On PostgreSQL it may have begun when the
    /// one before ended.
    pub(super) fn in_new_transaction(session: &'a mut Session) -> Self {
        if session.dialect.is_innodb() {
            return Self { inner: session.as_ref(), begin: "", rollback: "ROLLBACK" };
        }
        let has_begun = std::mem::replace(&mut session.in_transaction, true);
        let begin = if has_begun { "" } else { "BEGIN;\n" };
        Self { inner: session.as_ref(), begin, rollback: "ROLLBACK AND CHAIN" }
    }

    /// Returns one in the middle of a transaction.
    pub(super) fn in_transaction(inner: SessionRef<'a>) -> Self {
        if inner.dialect.is_innodb() {
            Self { inner, begin: "", rollback: NOTHING }
        } else {
            Self { inner, begin: "SAVEPOINT hierlock;\n", rollback: TO_SAVEPOINT }
        }
    }

    /// Can it give back what was taken?
    pub(super) fn can_undo(&self) -> bool {
        self.rollback != NOTHING
    }

    /// Returns the whole of what is sent. Behind something else there are no bound values.
    pub(super) fn statement(&self, lock: impl Fn(ValueForm) -> LockStatement) -> LockStatement {
        if self.begin.is_empty() {
            return lock(ValueForm::Bound);
        }
        let statement = lock(ValueForm::Text);
        LockStatement { sql: format!("{}{}", self.begin, statement.sql), ..statement }
    }

    /// Gives back what was taken, also where a late cancel hits the rollback itself.
    pub(super) async fn undo(&mut self) -> Result<()> {
        let mut undone = self.inner.run(self.rollback).await;
        if let Err(error) = &undone
            && ErrorClass::of(error).is_interrupted()
        {
            undone = self.inner.run(self.rollback).await;
        }
        undone.map_err(AcquireError::ConnectionLost)?;
        // Back at a savepoint, something is still held.
        if ![NOTHING, TO_SAVEPOINT].contains(&self.rollback) {
            self.inner.mark_clean();
        }
        Ok(())
    }

    /// The same after a failure, which it returns; nothing can be sent on a connection that is lost.
    pub(super) async fn undo_after(&mut self, why: AcquireError) -> AcquireError {
        if matches!(why, AcquireError::ConnectionLost(_)) {
            return why;
        }
        self.undo().await.err().unwrap_or(why)
    }
}
