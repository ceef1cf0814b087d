//! How the locks of a statement are given back after a failure.

use super::Dialect;
use super::acquire_error::AcquireError;
use super::statement::{LockStatement, ValueForm};
use hierlock_engine::{ErrorClass, Session, SessionRef};

/// What is sent before the first lock, and what gives back all that was taken since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RollbackPoint {
    pub(super) begin: &'static str,
    rollback: &'static str,
}

impl RollbackPoint {
    /// A whole transaction, which begins by itself on InnoDB.
    pub(super) const TRANSACTION: Self = Self { begin: "", rollback: "ROLLBACK" };

    /// A savepoint in a transaction: only PostgreSQL gives locks back at one.
    pub(super) const SAVEPOINT: Self =
        Self { begin: "SAVEPOINT hierlock;\n", rollback: "ROLLBACK TO SAVEPOINT hierlock" };

    /// None, in a transaction of InnoDB, which gives nothing back: a refused row leaves the others as they
    /// are. A cancel that comes late ends this statement, and not the next.
    pub(super) const NONE: Self = Self { begin: "", rollback: "DO 0" };

    /// Returns that of a transaction of a session's own. On PostgreSQL it may have begun when the one
    /// before ended.
    pub(super) fn transaction(session: &mut Session) -> Self {
        if session.dialect.is_innodb() {
            return Self::TRANSACTION;
        }
        let has_begun = std::mem::replace(&mut session.in_transaction, true);
        let begin = if has_begun { "" } else { "BEGIN;\n" };
        Self { begin, rollback: "ROLLBACK AND CHAIN" }
    }

    /// Returns that of a part of a transaction.
    pub(super) fn within_transaction(dialect: Dialect) -> Self {
        if dialect.is_innodb() { Self::NONE } else { Self::SAVEPOINT }
    }

    /// Returns the whole of what is sent. Behind something else there are no bound values.
    pub(super) fn put_before(
        self,
        statement: impl Fn(ValueForm) -> LockStatement,
    ) -> LockStatement {
        match self.begin {
            "" => statement(ValueForm::Bound),
            begin => {
                let statement = statement(ValueForm::Text);
                LockStatement { sql: format!("{begin}{}", statement.sql), ..statement }
            }
        }
    }

    /// Gives back what was taken, also where a late cancel hits the rollback itself.
    pub(super) async fn undo(self, session: &mut SessionRef<'_>) -> Result<(), AcquireError> {
        let mut undone = session.run(self.rollback).await;
        if let Err(error) = &undone
            && ErrorClass::of(error).is_interrupted()
        {
            undone = session.run(self.rollback).await;
        }
        undone.map_err(AcquireError::ConnectionLost)?;
        // Back at a savepoint, something is still held.
        if self != Self::SAVEPOINT && self != Self::NONE {
            session.mark_clean();
        }
        Ok(())
    }

    /// The same after a failure, which it returns; nothing can be sent on a connection that is lost.
    pub(super) async fn undo_after(
        self,
        why: AcquireError,
        session: &mut SessionRef<'_>,
    ) -> AcquireError {
        if matches!(why, AcquireError::ConnectionLost(_)) {
            return why;
        }
        self.undo(session).await.err().unwrap_or(why)
    }
}
