//! Why an acquire or an extension has not taken its locks.

use super::{LockPool, Scheme};
use crate::error::{Error, LockConflict, LockError};
use crate::plan::Step;

pub(super) type Result<T, E = AcquireError> = std::result::Result<T, E>;

/// Why locks were not taken. What was taken on the way is given back by then.
pub(super) enum AcquireError {
    /// The caller is told this.
    Failed(Error),
    /// The caller has gone.
    Abandoned,
    /// The server chose this transaction to end a deadlock.
    Deadlock(LockConflict),
    /// A lock was not granted in the time that the server allows, which is not the caller's: it begins again.
    LockWaitTimeout,
    /// The rows of these steps are not there. None are named if they have come meanwhile.
    MissingRows(Vec<Step>),
    /// The table is not there, or no longer striped as it was.
    TableChanged(sqlx::Error),
    /// The connection is gone, and with it everything that it held.
    ConnectionLost(sqlx::Error),
    /// The hold that was to be extended is gone, for this reason.
    HoldLost(&'static str),
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> Self {
        AcquireError::Failed(error)
    }
}

impl AcquireError {
    /// Returns what the caller is told.
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
                None => pool.unexpected("a lock row is missing one moment and there the next"),
            },
            // Nobody reads the first, and the second begins again.
            AcquireError::Abandoned | AcquireError::LockWaitTimeout => {
                pool.unexpected("the acquire has ended")
            }
            AcquireError::HoldLost(what) => pool.unexpected(what),
        }
    }
}
