//! A session that takes locks, and undoes them after a failure.

use super::acquire_error::{AcquireError, Result};
use super::statement::{LockStatement, ValueForm};
use hierlock_engine::{ErrorClass, Session, SessionRef};

/// Releases the locks since the savepoint, on PostgreSQL.
const TO_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT hierlock";
/// InnoDB releases no row lock before its transaction ends, so nothing is undone. A late cancel interrupts this statement
/// instead of the next one.
const NO_OP: &str = "DO 0";

/// A session that takes locks.
pub(super) struct LockSession<'a> {
    pub(super) inner: SessionRef<'a>,
    /// The statement before the first lock statement, or nothing.
    pub(super) begin: &'static str,
    /// The statement that releases all locks since `begin`.
    pub(super) rollback: &'static str,
}

impl<'a> LockSession<'a> {
    /// Locks in a new transaction. InnoDB begins it implicitly. On PostgreSQL, ROLLBACK AND CHAIN may have begun it already.
    pub(super) fn in_new_transaction(session: &'a mut Session) -> Self {
        if session.dialect.is_innodb() {
            return Self { inner: session.as_ref(), begin: "", rollback: "ROLLBACK" };
        }
        let has_begun = std::mem::replace(&mut session.in_transaction, true);
        let begin = if has_begun { "" } else { "BEGIN;\n" };
        Self { inner: session.as_ref(), begin, rollback: "ROLLBACK AND CHAIN" }
    }

    /// Locks in a transaction that has done other work before.
    pub(super) fn in_transaction(inner: SessionRef<'a>) -> Self {
        if inner.dialect.is_innodb() {
            Self { inner, begin: "", rollback: NO_OP }
        } else {
            Self { inner, begin: "SAVEPOINT hierlock;\n", rollback: TO_SAVEPOINT }
        }
    }

    /// Returns whether `undo` releases the locks.
    pub(super) fn can_undo(&self) -> bool {
        self.rollback != NO_OP
    }

    /// Returns the lock statement, after `begin`. Several statements in one text cannot have bound values.
    pub(super) fn statement(&self, lock: impl Fn(ValueForm) -> LockStatement) -> LockStatement {
        if self.begin.is_empty() {
            return lock(ValueForm::Bound);
        }
        let statement = lock(ValueForm::Text);
        LockStatement { sql: format!("{}{}", self.begin, statement.sql), ..statement }
    }

    /// Releases the locks since `begin`. Sends the rollback again if a late cancel interrupts it.
    pub(super) async fn undo(&mut self) -> Result<()> {
        let mut undone = self.inner.run(self.rollback).await;
        if let Err(error) = &undone
            && ErrorClass::of(error).is_interrupted()
        {
            undone = self.inner.run(self.rollback).await;
        }
        undone.map_err(AcquireError::ConnectionLost)?;
        // At a savepoint, the locks from before it are still held.
        if ![NO_OP, TO_SAVEPOINT].contains(&self.rollback) {
            self.inner.mark_clean();
        }
        Ok(())
    }

    /// Releases the locks after the failure `why`, unless the connection is lost. Returns `why`, or the error of the undo.
    pub(super) async fn undo_after(&mut self, why: AcquireError) -> AcquireError {
        if matches!(why, AcquireError::ConnectionLost(_)) {
            return why;
        }
        self.undo().await.err().unwrap_or(why)
    }
}
