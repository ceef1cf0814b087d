//! What an error of an engine means, as one table per engine. Whoever decides by an error asks for its class.

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
    /// The statement was cancelled, by `KILL QUERY` or `pg_cancel_backend`; on PostgreSQL also a statement timeout.
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
    /// Returns the class of an error of the driver; [`ConnectionLost`](Self::ConnectionLost) if it is no engine's.
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

fn class_of<C: PartialEq>(code: C, classes: &[(C, ErrorClass)]) -> ErrorClass {
    let known = classes.iter().find(|(known, _)| *known == code);
    known.map_or(ErrorClass::Other, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::ErrorClass::*;
    use super::*;

    /// Each code of a table is there once, and has the class that is written behind it.
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
            // Recovering, an old snapshot, a time limit: the lowest byte decides.
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
    fn what_the_driver_says_of_itself_is_a_lost_connection() {
        assert_eq!(ErrorClass::of(&sqlx::Error::PoolTimedOut), ConnectionLost);
        let reset = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(ErrorClass::of(&reset).is_connection_lost());
    }
}
