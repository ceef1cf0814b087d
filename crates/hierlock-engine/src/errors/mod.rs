//! The classes of engine errors, with one table of codes per engine.

mod innodb;
mod postgres;
mod sqlite;

pub use innodb::class as innodb_class;
pub use postgres::class as postgres_class;
pub use sqlite::class as sqlite_class;

/// The meaning of an engine error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The transaction is the victim of a deadlock.
    Deadlock,
    /// A concurrent change came first, at REPEATABLE READ or SERIALIZABLE.
    SerializationFailure,
    /// The lock is held, and the statement does not wait (NOWAIT). PostgreSQL reports a lock timeout with the same
    /// code.
    LockNotAvailable,
    /// The lock was not granted before the lock timeout. MariaDB reports NOWAIT with the same code.
    LockWaitTimeout,
    /// The statement exceeded the statement timeout.
    StatementTimeout,
    /// The statement was cancelled, by `KILL QUERY` or `pg_cancel_backend`; on PostgreSQL also a statement timeout.
    Cancelled,
    /// Another connection writes to the database file (SQLite).
    Busy,
    /// There is no such table or function.
    UndefinedTable,
    /// There is no such column.
    UndefinedColumn,
    /// There is no such object of another kind: a prepared transaction, a role.
    UndefinedObject,
    /// The table, column, object or key exists already.
    Duplicate,
    /// The account lacks the privilege.
    AccessDenied,
    /// The object is in use and cannot be dropped: a database with sessions or prepared transactions (PostgreSQL).
    ObjectInUse,
    /// The prepared transaction was rolled back because it had changed nothing (MariaDB).
    PreparedTransactionRolledBack,
    /// An earlier statement of the transaction failed, so only ROLLBACK is accepted (PostgreSQL).
    InFailedTransaction,
    /// The server ended the session: killed, idle for too long, or the server shuts down or starts.
    SessionEnded,
    /// The connection is broken, without a message of the server.
    ConnectionLost,
    /// Any other error of the engine.
    Other,
}

impl ErrorClass {
    /// Returns the class of an error of the driver: [`ConnectionLost`](Self::ConnectionLost) unless an engine reported
    /// it.
    #[cfg(feature = "_driver")]
    pub fn of(error: &sqlx::Error) -> Self {
        let sqlx::Error::Database(error) = error else { return ErrorClass::ConnectionLost };
        #[cfg(feature = "mysql")]
        if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
            return innodb::class(error.number());
        }
        let code = error.code().unwrap_or_default();
        // A SQLSTATE has five characters, a code of SQLite fewer.
        match code.parse() {
            Ok(number) if code.len() < 5 => sqlite::class(number, error.message()),
            _ => postgres::class(&code, error.message()),
        }
    }

    /// Returns whether the session has ended, and its locks with it.
    pub fn is_connection_lost(self) -> bool {
        matches!(self, ErrorClass::ConnectionLost | ErrorClass::SessionEnded)
    }

    /// Returns whether a lock was not granted, at once or before the timeout.
    pub fn is_not_granted(self) -> bool {
        matches!(self, ErrorClass::LockNotAvailable | ErrorClass::LockWaitTimeout)
    }

    /// Returns whether the statement was cancelled, by a request or by a statement timeout.
    pub fn is_interrupted(self) -> bool {
        matches!(self, ErrorClass::Cancelled | ErrorClass::StatementTimeout)
    }

    /// Returns whether a table or column does not exist.
    pub fn is_undefined(self) -> bool {
        matches!(self, ErrorClass::UndefinedTable | ErrorClass::UndefinedColumn)
    }
}

fn class_of<C: PartialEq>(code: C, classes: &[(C, ErrorClass)]) -> ErrorClass {
    let entry = classes.iter().find(|(other, _)| *other == code);
    entry.map_or(ErrorClass::Other, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::ErrorClass::*;
    use super::*;

    /// Every code is in the table once, and `class` returns its class.
    fn assert_table<C: Copy + PartialEq + std::fmt::Debug>(
        classes: &[(C, ErrorClass)],
        class: impl Fn(C) -> ErrorClass,
    ) {
        for (at, (code, expected)) in classes.iter().enumerate() {
            assert!(classes[..at].iter().all(|(other, _)| other != code), "{code:?} twice");
            assert_eq!(class(*code), *expected, "{code:?}");
        }
    }

    #[test]
    fn each_code_has_one_class() {
        assert_table(&innodb::CLASSES, innodb::class);
        assert_table(&postgres::CLASSES, |code| postgres::class(code, ""));
        assert_table(&sqlite::CLASSES, |number| sqlite::class(number, ""));
        assert_eq!((innodb::class(1064), innodb::class(0)), (Other, Other));
        assert!(postgres::CLASSES.iter().all(|(code, _)| code.len() == 5));
        for (code, message, expected) in [
            ("", "", Other),
            ("55P03", "canceling statement due to lock timeout", LockWaitTimeout),
            ("55P03", "could not obtain lock on row in relation \"t\"", LockNotAvailable),
            ("57014", "canceling statement due to statement timeout", StatementTimeout),
            ("57014", "canceling statement due to user request", Cancelled),
        ] {
            assert_eq!(postgres::class(code, message), expected, "{code}: {message}");
        }
        for (number, message, expected) in [
            // SQLITE_BUSY_RECOVERY, _SNAPSHOT and _TIMEOUT: the primary code decides.
            (261, "", Busy),
            (517, "", Busy),
            (773, "", Busy),
            (6, "", Other),
            (19, "", Other),
            (2067, "", Duplicate),
            (1, "no such table: t", UndefinedTable),
            (1, "near \"x\": syntax error", Other),
        ] {
            assert_eq!(sqlite::class(number, message), expected, "{number}: {message}");
        }
    }

    #[cfg(feature = "_driver")]
    #[test]
    fn an_error_of_the_driver_itself_is_a_lost_connection() {
        assert_eq!(ErrorClass::of(&sqlx::Error::PoolTimedOut), ConnectionLost);
        let reset = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(ErrorClass::of(&reset).is_connection_lost());
    }
}
