//! A server that could not be asked, or has not done what it was asked for.

#[cfg(feature = "_server")]
use crate::ErrorClass;
use crate::{error_message, timed_out};
use std::time::Duration;

/// What a server could not be asked, or has not done. A URL may hold a password, so servers are named by host and port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// There is no connection to be had.
    #[error("cannot connect to {server}: {}", error_message(source))]
    Connect {
        /// As `ServerAddress` shows it.
        server: String,
        /// What the driver says.
        source: sqlx::Error,
    },
    /// A statement failed.
    #[error("{server} failed: {}", error_message(source))]
    Failed {
        /// As `ServerAddress` shows it.
        server: String,
        /// What the driver says.
        source: sqlx::Error,
    },
    /// The server could not be told in time to end what this client has abandoned.
    #[error(
        "{server} could not be told within {limit:?} to end what this client has given up; it keeps those locks until \
         it notices by itself"
    )]
    NotClosed {
        /// As `ServerAddress` shows it.
        server: String,
        /// How long it was tried.
        limit: Duration,
    },
}

impl ServerError {
    /// Returns what the driver said, if it was the driver.
    pub fn source_of_driver(&self) -> Option<&sqlx::Error> {
        match self {
            ServerError::Connect { source, .. } | ServerError::Failed { source, .. } => {
                Some(source)
            }
            ServerError::NotClosed { .. } => None,
        }
    }

    /// Returns what the driver said, or that the limit has passed.
    pub fn into_driver_error(self) -> sqlx::Error {
        match self {
            ServerError::Connect { source, .. } | ServerError::Failed { source, .. } => source,
            ServerError::NotClosed { limit, .. } => timed_out(limit),
        }
    }

    /// Returns whether the connection was lost, or could not be had because the server cannot be reached.
    #[cfg(feature = "_server")]
    pub(crate) fn is_connection_lost(&self) -> bool {
        self.source_of_driver().is_some_and(|source| ErrorClass::of(source).is_connection_lost())
    }

    /// Returns whether there was no connection to be had.
    pub fn is_no_connection(&self) -> bool {
        matches!(self, ServerError::Connect { .. })
    }
}
