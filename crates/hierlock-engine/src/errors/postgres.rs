//! The error codes of PostgreSQL (SQLSTATE).

use super::ErrorClass::{self, *};
use super::class_of;

pub(super) const CLASSES: [(&str, ErrorClass); 22] = [
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

/// Codes with two meanings that the message distinguishes. If the server's messages are translated, `CLASSES` applies.
const BY_MESSAGE: [(&str, &str, ErrorClass); 2] =
    [("55P03", "lock timeout", LockWaitTimeout), ("57014", "timeout", StatementTimeout)];

/// Returns the class of a SQLSTATE and its message.
pub fn class(code: &str, message: &str) -> ErrorClass {
    let by_message =
        BY_MESSAGE.iter().find(|(entry, part, _)| *entry == code && message.contains(part));
    by_message.map_or_else(|| class_of(code, &CLASSES), |(.., class)| *class)
}
