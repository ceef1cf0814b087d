//! What has become of a row: a type, so that nobody forgets to look.

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

/// Whether a row that was to be locked or deleted was at the version that was expected.
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
    /// Returns the new version. Fails with [`is_stale`](crate::Error::is_stale) or
    /// [`is_missing`](crate::Error::is_missing), so that `?` leaves (and drops) the transaction.
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
    /// Fails if the row was not at the version that was expected, as [`updated`](UpdateOutcome::updated).
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

/// Why a row was not read or changed. Mirrors `optimistic`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptimisticError {
    #[error(
        "the row is at version {current}, not at {expected} as expected: somebody else has changed it"
    )]
    Stale { expected: i64, current: i64 },
    #[error("there is no such row; somebody else may have deleted it")]
    Missing,
    #[error("the row of `{table}` is locked by someone else")]
    WouldBlock { table: String, source: sqlx::Error },
    #[error(
        "the version `{column}` of the row of `{table}` is NULL; it needs a number to begin with (BIGINT NOT \
         NULL DEFAULT 1)"
    )]
    NoVersion { table: String, column: String },
    #[error(
        "the version `{column}` of the row of `{table}` is {found}; a version is an integer (BIGINT NOT NULL), \
         at most {}",
        i64::MAX
    )]
    NotAVersion { table: String, column: String, found: String },
    #[error("{expected} is the greatest version; there is none after it")]
    Greatest { expected: i64 },
    #[error(
        "the key names {rows} rows of `{table}`, and a version is that of one; roll back, and give the columns \
         of its primary key"
    )]
    Ambiguous { table: String, rows: u64 },
    #[error(
        "the row of `{table}` is at version {expected} as expected, but does not change; look for a trigger, a \
         rule or a policy that prevents it"
    )]
    Unmoved { table: String, expected: i64 },
    #[error("`{column}` is the version of `{table}`, {why}")]
    VersionGiven { table: String, column: String, why: &'static str },
    #[error("`{column}` is a part of the key of the row, which no change sets; leave it out")]
    KeySet { column: String },
    #[error("`{column}` is given twice; once is enough")]
    Twice { column: String },
    #[error("the key has NULL for `{column}`, which equals nothing; give the value of a row")]
    NullKey { column: String },
    #[error(
        "`{expression}` has {places} places for values (`?` outside of quotes and comments), but {given} values are given"
    )]
    Places { expression: String, places: usize, given: usize },
    #[error(
        "`{expression}` has a place with a number; write a bare `?` for each value, on every engine"
    )]
    Numbered { expression: String },
}

impl OptimisticError {
    /// Returns whether the request itself was wrong: not whether the row is another than expected.
    pub(crate) fn is_usage(&self) -> bool {
        use OptimisticError::{Missing, NoVersion, NotAVersion, Stale, Unmoved, WouldBlock};
        !matches!(
            self,
            Stale { .. }
                | Missing
                | WouldBlock { .. }
                | NoVersion { .. }
                | NotAVersion { .. }
                | Unmoved { .. }
        )
    }
}
