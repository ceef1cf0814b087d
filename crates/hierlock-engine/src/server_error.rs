//! Errors of connections and statements on a server.

#[cfg(feature = "_server")]
use crate::ErrorClass;
use crate::{duration_text, error_message, timed_out};
use std::time::Duration;

/// The error of a server. The URL may contain a password, so the message names the server by host and port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The connection could not be opened.
    #[error("cannot connect to {server}: {}", error_message(source))]
    Connect {
        /// The server, as `ServerAddress` prints it.
        server: String,
        /// The error of the driver.
        source: sqlx::Error,
    },
    /// A statement failed.
    #[error("{server} failed: {}", error_message(source))]
    Failed {
        /// The server, as `ServerAddress` prints it.
        server: String,
        /// The error of the driver.
        source: sqlx::Error,
    },
    /// The abandoned sessions of this client could not be ended in time.
    #[error(
        "the abandoned sessions of this client on {server} could not be ended within {}; the server keeps their locks \
         until it notices that the client has gone",
        duration_text(*limit)
    )]
    NotClosed {
        /// The server, as `ServerAddress` prints it.
        server: String,
        /// The time limit.
        limit: Duration,
    },
}

impl ServerError {
    /// Returns the error of the driver, if it is one.
    pub fn driver_error(&self) -> Option<&sqlx::Error> {
        match self {
            ServerError::Connect { source, .. } | ServerError::Failed { source, .. } => {
                Some(source)
            }
            ServerError::NotClosed { .. } => None,
        }
    }

    /// Returns the error of the driver, or a timeout.
    pub fn into_driver_error(self) -> sqlx::Error {
        match self {
            ServerError::Connect { source, .. } | ServerError::Failed { source, .. } => source,
            ServerError::NotClosed { limit, .. } => timed_out(limit),
        }
    }

    /// Returns whether the connection was lost, or could not be opened because the server cannot be reached.
    #[cfg(feature = "_server")]
    pub(crate) fn is_connection_lost(&self) -> bool {
        self.driver_error().is_some_and(|source| ErrorClass::of(source).is_connection_lost())
    }

    /// Returns whether the connection could not be opened.
    pub fn is_no_connection(&self) -> bool {
        matches!(self, ServerError::Connect { .. })
    }
}
