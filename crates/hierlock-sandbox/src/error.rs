//! The errors of the sandbox.

use crate::Engine;
use std::io;

/// The result type of the sandbox.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine, or a part of it, is not installed.
    #[error(
        "{engine} is not installed, or not all of it: {missing} was not found. Install it with: \
         ./scripts/install-servers {engine}"
    )]
    Missing {
        /// The engine.
        engine: Engine,
        /// The program or library that was not found.
        missing: &'static str,
    },
    /// The server ended before it accepted connections.
    #[error("the {engine} server ended at once; its log:\n{log}")]
    Ended {
        /// The engine.
        engine: Engine,
        /// The last lines of its log.
        log: String,
    },
    /// The server runs, but does not accept connections.
    #[error("the {engine} server does not answer; its log:\n{log}")]
    Silent {
        /// The engine.
        engine: Engine,
        /// The last lines of its log.
        log: String,
    },
    /// A command that prepares a server or its cluster failed.
    #[error("`{command}` failed; its output:\n{output}")]
    CommandFailed {
        /// The command.
        command: String,
        /// Its output.
        output: String,
    },
    /// An error of the operating system.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// A variable of the environment does not contain a valid address.
    #[error("{variable} does not name a server: {why}")]
    Environment {
        /// The name of the variable.
        variable: &'static str,
        /// The reason, and the expected format.
        why: String,
    },
}

impl Error {
    /// Returns a function that adds the attempted operation to an error of the operating system.
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Error::Io { doing, source }
    }

    /// Returns whether the engine, or a part of it, is not installed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Missing { .. })
    }
}
