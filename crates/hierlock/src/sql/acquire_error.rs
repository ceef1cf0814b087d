//! The failures of an acquire or an extension.

use super::{LockPool, Scheme};
use crate::error::{Error, LockConflict, LockError};
use crate::plan::Step;

pub(super) type Result<T, E = AcquireError> = std::result::Result<T, E>;

/// The failure of an acquire or an extension. Locks that it had taken are already released.
pub(super) enum AcquireError {
    /// The error for the caller.
    Failed(Error),
    /// The caller has dropped its future.
    Abandoned,
    /// The server chose this transaction as the victim of a deadlock.
    Deadlock(LockConflict),
    /// The server's own lock wait timeout ended the wait. The caller's deadline is not over, so the acquire starts again.
    LockWaitTimeout,
    /// The rows of these steps do not exist. Empty if they were inserted in the meantime.
    MissingRows(Vec<Step>),
    /// The lock table does not exist, or its bucket count has changed.
    TableChanged(sqlx::Error),
    /// The connection is lost, and with it all its locks.
    ConnectionLost(sqlx::Error),
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> Self {
        AcquireError::Failed(error)
    }
}

impl AcquireError {
    /// Returns the error for the caller.
    pub(super) fn into_error(self, pool: &LockPool, scheme: &Scheme) -> Error {
        match self {
            AcquireError::Failed(error) => error,
            AcquireError::ConnectionLost(error) | AcquireError::TableChanged(error) => {
                pool.failed(error)
            }
            AcquireError::Deadlock(conflict) => Error::deadlock(conflict),
            AcquireError::MissingRows(steps) => match steps.into_iter().next() {
                Some(Step { level, slot, target, .. }) => {
                    let bucket = (!scheme.strategy.is_by_id()).then_some(slot);
                    LockError::NotProvisioned { level, bucket, target }.into()
                }
                None => pool.unexpected("a lock row was missing and then existed, again and again"),
            },
            // The caller of the first has gone, and the second is always retried.
            AcquireError::Abandoned | AcquireError::LockWaitTimeout => {
                pool.unexpected("the acquire was cancelled")
            }
        }
    }
}
