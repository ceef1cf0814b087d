//! The errors of MySQL and MariaDB, whose numbers are one family.

use super::ErrorClass::{self, *};
use super::class_of;

pub(super) const CLASSES: [(u16, ErrorClass); 26] = [
    (1213, Deadlock),             // of rows or tables
    (3058, Deadlock),             // of locks by name (GET_LOCK), MySQL
    (1020, SerializationFailure), // MariaDB with innodb_snapshot_isolation
    (3572, LockNotAvailable),     // NOWAIT, MySQL
    (1205, LockWaitTimeout),      // the server's limit for a wait; on MariaDB also NOWAIT
    (3024, StatementTimeout),     // MAX_EXECUTION_TIME, MySQL
    (1969, StatementTimeout),     // max_statement_time, MariaDB
    (1317, Cancelled),            // KILL QUERY
    (1146, UndefinedTable),
    (1305, UndefinedTable), // a function or procedure
    (1054, UndefinedColumn),
    (1091, UndefinedColumn), // nothing of that name to drop
    (1397, UndefinedObject), // a prepared transaction; on MariaDB also one whose session is still there
    (1402, PreparedTransactionRolledBack),
    (1050, Duplicate),    // a table
    (1060, Duplicate),    // a column
    (1061, Duplicate),    // an index
    (1062, Duplicate),    // a key
    (1044, AccessDenied), // to the database
    (1142, AccessDenied), // to the table
    (1143, AccessDenied), // to the column
    (1227, AccessDenied), // a privilege is needed
    (1927, SessionEnded), // killed, MariaDB
    (3169, SessionEnded), // killed, MySQL
    (4031, SessionEnded), // idle for too long, MySQL
    (1053, SessionEnded), // the server shuts down
];

/// Returns the class of an error number.
pub fn class(number: u16) -> ErrorClass {
    class_of(number, &CLASSES)
}
