//! The error numbers of MySQL and MariaDB, which share one range.

use super::ErrorClass::{self, *};
use super::class_of;

pub(super) const CLASSES: [(u16, ErrorClass); 27] = [
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

/// Returns the class of an error number.
pub fn class(number: u16) -> ErrorClass {
    class_of(number, &CLASSES)
}
