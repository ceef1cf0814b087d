//! The outcomes of updates and version checks, and the errors.

use crate::error::{ErrorKind, Result};

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the row may not have been changed"]
pub enum UpdateOutcome {
    /// The row was updated, and has this version now.
    Updated(i64),
    /// The row was not updated, because another writer has changed it since it was read.
    Stale {
        /// The expected version.
        expected: i64,
        /// The current version.
        current: i64,
    },
    /// The row does not exist.
    Missing,
}

/// The outcome of a lock or a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the row may have another version"]
pub enum VersionCheck {
    /// The row had the expected version, and is now locked or deleted.
    Current,
    /// The row has another version, because another writer has changed it since it was read.
    Stale {
        /// The expected version.
        expected: i64,
        /// The current version.
        current: i64,
    },
    /// The row does not exist.
    Missing,
}

impl UpdateOutcome {
    /// Returns the new version. Fails with [`is_stale`](crate::Error::is_stale) or
    /// [`is_missing`](crate::Error::is_missing), so that `?` returns and drops the transaction.
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
    /// Fails if the row did not have the expected version, as [`updated`](UpdateOutcome::updated) does.
    pub fn current(self) -> Result<()> {
        self.then_updated_to(0).updated().map(drop)
    }

    /// Compares the expected version with the version of the row, which is `None` if the row does not exist.
    pub(super) fn new(expected: i64, found: Option<i64>) -> Self {
        match found {
            None => VersionCheck::Missing,
            Some(current) if current == expected => VersionCheck::Current,
            Some(current) => VersionCheck::Stale { expected, current },
        }
    }

    /// Converts into the outcome of an update to `version`.
    pub(super) fn then_updated_to(self, version: i64) -> UpdateOutcome {
        match self {
            VersionCheck::Current => UpdateOutcome::Updated(version),
            VersionCheck::Stale { expected, current } => UpdateOutcome::Stale { expected, current },
            VersionCheck::Missing => UpdateOutcome::Missing,
        }
    }
}

/// Mirrors `optimistic`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptimisticError {
    #[error(
        "the row is at version {current}, not at {expected} as expected: another client has changed it"
    )]
    Stale { expected: i64, current: i64 },
    #[error("there is no such row; another client may have deleted it")]
    Missing,
    #[error("the row of `{table}` is locked by another transaction")]
    WouldBlock { table: String, source: sqlx::Error },
    #[error(
        "the version `{column}` of the row of `{table}` is {found}; a version is an integer (BIGINT NOT NULL DEFAULT 1), \
         at most {}",
        i64::MAX
    )]
    NotAVersion { table: String, column: String, found: String },
    #[error("version {expected} is the greatest that there is; it cannot be incremented")]
    MaxVersion { expected: i64 },
    #[error(
        "the key matches {rows} rows of `{table}` instead of one; roll back, and use the columns of the primary key"
    )]
    Ambiguous { table: String, rows: u64 },
    #[error(
        "the row of `{table}` is at version {expected} as expected, but does not change; look for a trigger, a \
         rule or a policy that prevents it"
    )]
    NotUpdated { table: String, expected: i64 },
    #[error("`{column}` is the version of `{table}`, {why}")]
    VersionColumn { table: String, column: String, why: &'static str },
    #[error(
        "`{column}` is a part of the key, which cannot be changed; leave it out of the changes"
    )]
    KeyColumn { column: String },
    #[error("`{column}` is given twice; give it once")]
    DuplicateColumn { column: String },
    #[error("the key has NULL for `{column}`, which equals nothing; give the value of a row")]
    NullKey { column: String },
    #[error(
        "`{expression}` has {placeholders} placeholders (`?` outside of quotes and comments), but {given} values are given"
    )]
    ParameterCount { expression: String, placeholders: usize, given: usize },
    #[error(
        "`{expression}` has a numbered placeholder; write a bare `?` for each value, on every engine"
    )]
    NumberedParameter { expression: String },
}

impl OptimisticError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Stale { .. } => ErrorKind::Stale,
            Self::Missing => ErrorKind::Missing,
            Self::WouldBlock { .. } => ErrorKind::WouldBlock,
            Self::NotAVersion { .. } | Self::NotUpdated { .. } => ErrorKind::Other,
            // All others are invalid arguments.
            _ => ErrorKind::Usage,
        }
    }
}
