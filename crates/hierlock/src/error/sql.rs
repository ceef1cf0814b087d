//! Errors of servers and databases. Mirrors `sql` and `database`.

#![cfg_attr(
    not(all(feature = "toolbox", feature = "_server")),
    allow(dead_code, reason = "some errors are only of servers or of the toolbox")
)]

use super::{Error, ErrorKind, Repr};
use crate::database::Schema;
use hierlock_engine::error_message;

/// Mirrors `sql`. A URL may contain a password, so messages name servers by host and port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    #[error("{server}: {what}, which should not happen; please report it")]
    Unexpected { server: String, what: &'static str },
    #[error("{server} cannot be used: {why}")]
    Unusable { server: String, why: String },
    #[error(
        "{server}: a change to {buckets} buckets was interrupted; finish it with \
         `hierlock provision --rebucket {buckets}`"
    )]
    RebucketUnfinished { server: String, buckets: u32 },
    #[error("the task that talks to {server} has ended, because its runtime is shutting down")]
    NoRuntime { server: String },
    #[error("a lock on {server} has no {asked}; ask for the connection of that server")]
    OtherConnection { server: String, asked: &'static str },
    #[error("the transaction is not one of {server}, where the locks are")]
    OtherTransaction { server: String },
    #[error("a lock with scope=session has no transaction of its own; connect without it")]
    NoOwnTransaction,
    #[error("a statement in the lock's transaction on {server} failed, so nothing was committed")]
    WorkFailed { server: String },
    #[error(
        "the connection to {server} ended during COMMIT: whether it was committed is not known \
         ({})",
        error_message(source)
    )]
    CommitUnknown { server: String, source: sqlx::Error },
}

/// Mirrors `database` and the toolbox on it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("cannot {doing}: {}", error_message(source))]
    Failed { doing: &'static str, source: sqlx::Error },
    #[error("the {} tables are missing in the database; run `{}`", schema.part, schema.command)]
    NotProvisioned { schema: Schema },
    #[error(
        "cannot {doing}: the {} tables are not as this release of hierlock knows them ({}); run `{}`, or \
         update this program if a newer release has upgraded them",
        schema.part,
        error_message(source),
        schema.command
    )]
    OtherForm { schema: Schema, doing: &'static str, source: sqlx::Error },
    #[error(
        "the {} tables are at version {found}, and this release of hierlock needs version {}; run `{}`",
        schema.part,
        schema.newest(),
        schema.command
    )]
    Older { schema: Schema, found: i64 },
    #[error(
        "the {} tables are at version {found}, made by a newer release of hierlock, and this one knows \
         only version {}; update this program",
        schema.part,
        schema.newest()
    )]
    Newer { schema: Schema, found: i64 },
    #[error("the {} tables are being upgraded by someone else; try again later", schema.part)]
    BeingUpgraded { schema: Schema },
}

impl SqlError {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::OtherTransaction { .. }
            | Self::OtherConnection { .. }
            | Self::NoOwnTransaction => ErrorKind::Usage,
            _ => ErrorKind::Other,
        }
    }
}

impl TableError {
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::NotProvisioned { .. } | Self::Older { .. } => ErrorKind::NotProvisioned,
            Self::Newer { .. } => ErrorKind::NewerSchema,
            _ => ErrorKind::Other,
        }
    }
}

impl Error {
    pub(crate) fn table(&self) -> Option<&TableError> {
        match &*self.0 {
            Repr::Table(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the driver's error, if there is one.
    pub(crate) fn sql_source(&self) -> Option<&sqlx::Error> {
        match &*self.0 {
            Repr::Server(error) => error.driver_error(),
            Repr::Column(error) => Some(&error.0),
            Repr::Table(TableError::Failed { source, .. }) => Some(source),
            Repr::Table(TableError::OtherForm { source, .. }) => Some(source),
            _ => None,
        }
    }

    /// Returns whether the server could not be reached.
    pub(crate) fn is_no_connection(&self) -> bool {
        matches!(&*self.0, Repr::Server(error) if error.is_no_connection())
    }

    /// Returns whether the tables cannot be used by this release, so that a retry is useless.
    pub(crate) fn is_unusable_schema(&self) -> bool {
        self.is_not_provisioned() || self.is_newer_schema()
    }
}
