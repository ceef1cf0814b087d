//! What a failed statement means to whoever takes locks with it.

use hierlock_engine::ErrorClass;

/// What a failed statement means to whoever takes locks with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockFailure {
    /// The connection is of no more use.
    ConnectionLost,
    /// Chosen by the server to end a deadlock; its transaction has failed.
    Deadlock,
    /// Not free, and it was not to wait, or not that long.
    NotGranted,
    /// Ended by a cancel, or by a limit for the whole statement.
    Interrupted,
    /// The table is not there, or not as it was.
    TableChanged,
    /// An earlier statement failed, so nothing runs any more; on PostgreSQL.
    InFailedTransaction,
    Other,
}

/// The SQLSTATE of a division by zero, by which [`updaters`](super::updaters) refuse a key that is not free.
const DIVISION_BY_ZERO: &str = "22012";

impl LockFailure {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        match ErrorClass::of(error) {
            class if class.is_connection_lost() => LockFailure::ConnectionLost,
            class if class.is_not_granted() => LockFailure::NotGranted,
            class if class.is_interrupted() => LockFailure::Interrupted,
            class if class.is_undefined() => LockFailure::TableChanged,
            ErrorClass::Deadlock => LockFailure::Deadlock,
            ErrorClass::InFailedTransaction => LockFailure::InFailedTransaction,
            _ => {
                let code = error.as_database_error().and_then(|error| error.code());
                if code.as_deref() == Some(DIVISION_BY_ZERO) {
                    LockFailure::NotGranted
                } else {
                    LockFailure::Other
                }
            }
        }
    }
}
