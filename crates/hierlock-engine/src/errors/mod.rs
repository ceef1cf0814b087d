//! What an error of an engine means, as one table per engine. Whoever decides by an error (a lock session, `retry`, the
//! lab) asks for its class, never for its number.

mod innodb;
mod postgres;
mod sqlite;

pub use innodb::class as innodb_class;
pub use postgres::class as postgres_class;
pub use sqlite::class as sqlite_class;

/// What an error of an engine means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The transaction was chosen to end a deadlock.
    Deadlock,
    /// Somebody else's change came first, at REPEATABLE READ or SERIALIZABLE.
    SerializationFailure,
    /// The lock is taken, and the statement was not to wait (NOWAIT). PostgreSQL reports a lock timeout the same way.
    LockNotAvailable,
    /// The lock was not granted in the time that the server allows for a wait. MariaDB reports NOWAIT the same way.
    LockWaitTimeout,
    /// The whole statement took longer than the server allows.
    StatementTimeout,
    /// The statement was cancelled: `KILL QUERY`, `pg_cancel_backend`. PostgreSQL reports a statement timeout the same
    /// way.
    Cancelled,
    /// Somebody else writes to the database file (SQLite).
    Busy,
    /// There is no such table or function.
    UndefinedTable,
    /// There is no such column.
    UndefinedColumn,
    /// There is no such object of another kind: a prepared transaction, a role.
    UndefinedObject,
    /// Something of that name or key is there already.
    Duplicate,
    /// The account may not do that.
    AccessDenied,
    /// Somebody uses what was to be removed: a database with sessions or prepared transactions (PostgreSQL).
    ObjectInUse,
    /// The prepared transaction was rolled back instead: it had changed nothing (MariaDB).
    PreparedTransactionRolledBack,
    /// An earlier statement of the transaction failed, so nothing runs any more (PostgreSQL).
    InFailedTransaction,
    /// The session was ended by the server: killed, idle for too long, or the server shuts down or starts.
    SessionEnded,
    /// The connection is of no more use, and the server has not said why.
    ConnectionLost,
    /// Anything else that the engine refuses.
    Other,
}

impl ErrorClass {
    /// Returns the class of an error of the driver. What the engine has not said itself counts as
    /// [`ConnectionLost`](Self::ConnectionLost).
    #[cfg(feature = "_driver")]
    pub fn of(error: &sqlx::Error) -> Self {
        let sqlx::Error::Database(error) = error else { return ErrorClass::ConnectionLost };
        #[cfg(feature = "mysql")]
        if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
            return innodb::class(error.number());
        }
        let code = error.code().unwrap_or_default();
        // SQLSTATEs have five characters, numbers of SQLite fewer.
        match code.parse() {
            Ok(number) if code.len() < 5 => sqlite::class(number, error.message()),
            _ => postgres::class(&code, error.message()),
        }
    }

    /// Returns whether the session is gone, with everything that it held.
    pub fn is_connection_lost(self) -> bool {
        matches!(self, ErrorClass::ConnectionLost | ErrorClass::SessionEnded)
    }

    /// Returns whether a lock was not granted: at once, or in time.
    pub fn is_not_granted(self) -> bool {
        matches!(self, ErrorClass::LockNotAvailable | ErrorClass::LockWaitTimeout)
    }

    /// Returns whether the statement was ended from outside, or by a limit for the whole of it.
    pub fn is_interrupted(self) -> bool {
        matches!(self, ErrorClass::Cancelled | ErrorClass::StatementTimeout)
    }

    /// Returns whether a table is not there, or not as it was expected.
    pub fn is_undefined(self) -> bool {
        matches!(self, ErrorClass::UndefinedTable | ErrorClass::UndefinedColumn)
    }
}

/// Finds the class of a code in the table of an engine.
fn class_of<C: PartialEq>(code: C, classes: &[(C, ErrorClass)]) -> ErrorClass {
    let known = classes.iter().find(|(known, _)| *known == code);
    known.map_or(ErrorClass::Other, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code of a table is there once, and has the class that is written behind it.
    pub(super) fn assert_table<C: Copy + PartialEq + std::fmt::Debug>(
        classes: &[(C, ErrorClass)],
        class: impl Fn(C) -> ErrorClass,
    ) {
        for (at, (code, expected)) in classes.iter().enumerate() {
            assert!(classes[..at].iter().all(|(other, _)| other != code), "{code:?} twice");
            assert_eq!(class(*code), *expected, "{code:?}");
        }
    }

    #[cfg(feature = "_driver")]
    #[test]
    fn what_the_driver_says_of_itself_is_a_lost_connection() {
        assert_eq!(ErrorClass::of(&sqlx::Error::PoolTimedOut), ErrorClass::ConnectionLost);
        let reset = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(ErrorClass::of(&reset).is_connection_lost());
    }
}
