//! The classes of engine errors, with one table of codes per engine.

use ErrorClass::*;

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
        let sqlx::Error::Database(error) = error else { return ConnectionLost };
        #[cfg(feature = "mysql")]
        if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
            return innodb_class(error.number());
        }
        let code = error.code().unwrap_or_default();
        // A SQLSTATE has five characters, a code of SQLite fewer.
        match code.parse() {
            Ok(number) if code.len() < 5 => sqlite_class(number, error.message()),
            _ => postgres_class(&code, error.message()),
        }
    }

    /// Returns whether the session has ended, and its locks with it.
    pub fn is_connection_lost(self) -> bool {
        matches!(self, ConnectionLost | SessionEnded)
    }

    /// Returns whether a lock was not granted, at once or before the timeout.
    pub fn is_not_granted(self) -> bool {
        matches!(self, LockNotAvailable | LockWaitTimeout)
    }

    /// Returns whether the statement was cancelled, by a request or by a statement timeout.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Cancelled | StatementTimeout)
    }

    /// Returns whether a table or column does not exist.
    pub fn is_undefined(self) -> bool {
        matches!(self, UndefinedTable | UndefinedColumn)
    }
}

/// The error numbers of MySQL and MariaDB, which share one range.
const INNODB: [(u16, ErrorClass); 27] = [
    (1213, Deadlock),             // row or table locks
    (3058, Deadlock),             // GET_LOCK, MySQL
    (1020, SerializationFailure), // MariaDB with innodb_snapshot_isolation
    (3572, LockNotAvailable),     // NOWAIT, MySQL
    (1205, LockWaitTimeout),      // innodb_lock_wait_timeout; on MariaDB also NOWAIT
    (3024, StatementTimeout),     // MAX_EXECUTION_TIME, MySQL
    (1969, StatementTimeout),     // max_statement_time, MariaDB
    (1317, Cancelled),            // KILL QUERY
    (1146, UndefinedTable),
    (1305, UndefinedTable), // a function or procedure
    (1054, UndefinedColumn),
    (1091, UndefinedColumn), // DROP of a column or index
    (1397, UndefinedObject), // XA: unknown; on MariaDB also one whose session still exists
    (1402, PreparedTransactionRolledBack),
    (1050, Duplicate),    // a table
    (1060, Duplicate),    // a column
    (1061, Duplicate),    // an index
    (1062, Duplicate),    // a key
    (1044, AccessDenied), // to the database
    (1142, AccessDenied), // to the table
    (1143, AccessDenied), // to the column
    (1227, AccessDenied), // missing privilege
    (1095, AccessDenied), // KILL of a session of another user
    (1927, SessionEnded), // killed, MariaDB
    (3169, SessionEnded), // killed, MySQL
    (4031, SessionEnded), // idle for too long, MySQL
    (1053, SessionEnded), // the server shuts down
];

/// Returns the class of an error number of MySQL or MariaDB.
pub fn innodb_class(number: u16) -> ErrorClass {
    class_of(number, &INNODB)
}

/// The error codes of PostgreSQL (SQLSTATE).
const POSTGRES: [(&str, ErrorClass); 22] = [
    ("40P01", Deadlock),
    ("40001", SerializationFailure),
    ("55P03", LockNotAvailable), // NOWAIT, or lock_timeout
    ("57014", Cancelled),        // pg_cancel_backend, or statement_timeout
    ("25P04", SessionEnded),     // transaction_timeout
    ("42P01", UndefinedTable),
    ("42883", UndefinedTable), // a function
    ("42703", UndefinedColumn),
    ("42704", UndefinedObject), // a prepared transaction, a type, a role
    ("55006", ObjectInUse),
    ("42P07", Duplicate), // a table
    ("42701", Duplicate), // a column
    ("42710", Duplicate), // an object
    ("42723", Duplicate), // a function
    ("23505", Duplicate), // a key
    ("42501", AccessDenied),
    ("25P02", InFailedTransaction),
    ("57P01", SessionEnded), // pg_terminate_backend, or the server shuts down
    ("57P02", SessionEnded), // the server crashed
    ("57P03", SessionEnded), // the server starts or shuts down
    ("25P03", SessionEnded), // idle in a transaction for too long
    ("57P05", SessionEnded), // idle for too long
];

/// Codes with two meanings that the message distinguishes. If the server's messages are translated, `POSTGRES` applies.
const BY_MESSAGE: [(&str, &str, ErrorClass); 2] =
    [("55P03", "lock timeout", LockWaitTimeout), ("57014", "timeout", StatementTimeout)];

/// Returns the class of a SQLSTATE and its message.
pub fn postgres_class(code: &str, message: &str) -> ErrorClass {
    let by_message =
        BY_MESSAGE.iter().find(|(entry, part, _)| *entry == code && message.contains(part));
    by_message.map_or_else(|| class_of(code, &POSTGRES), |(.., class)| *class)
}

/// The primary error codes of SQLite: the lowest byte. The other bytes make it an extended code.
const SQLITE: [(u32, ErrorClass); 2] = [
    (5, Busy),         // SQLITE_BUSY
    (8, AccessDenied), // SQLITE_READONLY
];

/// SQLITE_ERROR has no extended code for a missing table or column. Its message is not translated.
const SQLITE_ERROR: u32 = 1;

/// SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE and SQLITE_CONSTRAINT_ROWID.
const SQLITE_DUPLICATES: [u32; 3] = [1555, 2067, 2579];

/// Returns the class of an error code of SQLite and its message.
pub fn sqlite_class(number: u32, message: &str) -> ErrorClass {
    let contains = |words: &str| message.contains(words);
    match number {
        SQLITE_ERROR if contains("no such table") => UndefinedTable,
        SQLITE_ERROR if contains("no such column") || contains("has no column named") => {
            UndefinedColumn
        }
        SQLITE_ERROR if contains("duplicate column name") => Duplicate,
        SQLITE_ERROR => Other,
        number if SQLITE_DUPLICATES.contains(&number) => Duplicate,
        number => class_of(number & 0xff, &SQLITE),
    }
}

fn class_of<C: PartialEq>(code: C, classes: &[(C, ErrorClass)]) -> ErrorClass {
    let entry = classes.iter().find(|(other, _)| *other == code);
    entry.map_or(Other, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
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
        assert_table(&INNODB, innodb_class);
        assert_table(&POSTGRES, |code| postgres_class(code, ""));
        assert_table(&SQLITE, |number| sqlite_class(number, ""));
        assert_eq!((innodb_class(1064), innodb_class(0)), (Other, Other));
        assert!(POSTGRES.iter().all(|(code, _)| code.len() == 5));
        for (code, message, expected) in [
            ("", "", Other),
            ("55P03", "canceling statement due to lock timeout", LockWaitTimeout),
            ("55P03", "could not obtain lock on row in relation \"t\"", LockNotAvailable),
            ("57014", "canceling statement due to statement timeout", StatementTimeout),
            ("57014", "canceling statement due to user request", Cancelled),
        ] {
            assert_eq!(postgres_class(code, message), expected, "{code}: {message}");
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
            assert_eq!(sqlite_class(number, message), expected, "{number}: {message}");
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
