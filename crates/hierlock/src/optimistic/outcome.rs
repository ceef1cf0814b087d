//! What has become of a row: a type, so that nobody forgets to look.

use super::error::OptimisticError;
use crate::error::Result;

/// Whether a row was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the row may not have been changed"]
pub enum UpdateOutcome {
    /// It was, and is at this version now.
    Updated(i64),
    /// It was not, for somebody else has changed it since it was read.
    Stale {
        /// The version that it should have.
        expected: i64,
        /// The version that it has.
        current: i64,
    },
    /// There is no such row.
    Missing,
}

/// Whether a row that was to be [locked](super::VersionedRow::lock) or
/// [deleted](super::VersionedRow::delete) was at the version that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the row may be at another version"]
pub enum VersionCheck {
    /// It was: now it is locked, or deleted.
    Current,
    /// It was not, for somebody else has changed it since it was read.
    Stale {
        /// The version that it should have.
        expected: i64,
        /// The version that it has.
        current: i64,
    },
    /// There is no such row.
    Missing,
}

impl UpdateOutcome {
    /// Returns the new version; fails if the row was not changed, so that `?` leaves (and drops) the
    /// transaction.
    ///
    /// # Errors
    /// [`is_stale`](crate::Error::is_stale), [`is_missing`](crate::Error::is_missing).
    pub fn updated(self) -> Result<i64> {
        match self {
            UpdateOutcome::Updated(version) => Ok(version),
            UpdateOutcome::Stale { expected, current } => {
                Err(OptimisticError::Stale { expected, current }.into())
            }
            UpdateOutcome::Missing => Err(OptimisticError::Missing.into()),
        }
    }
}

impl VersionCheck {
    /// Fails if the row was not at the version that was expected, so that `?` leaves (and drops) the
    /// transaction.
    ///
    /// # Errors
    /// [`is_stale`](crate::Error::is_stale), [`is_missing`](crate::Error::is_missing).
    pub fn current(self) -> Result<()> {
        self.then_updated_to(0).updated().map(drop)
    }

    /// For a row that is read at a version, or is not there.
    pub(super) fn new(expected: i64, found: Option<i64>) -> Self {
        match found {
            None => VersionCheck::Missing,
            Some(current) if current == expected => VersionCheck::Current,
            Some(current) => VersionCheck::Stale { expected, current },
        }
    }

    /// For a row that was changed, if it was current.
    pub(super) fn then_updated_to(self, version: i64) -> UpdateOutcome {
        match self {
            VersionCheck::Current => UpdateOutcome::Updated(version),
            VersionCheck::Stale { expected, current } => UpdateOutcome::Stale { expected, current },
            VersionCheck::Missing => UpdateOutcome::Missing,
        }
    }
}
