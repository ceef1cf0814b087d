//! Why there is no server.

use crate::Engine;
use std::io;

/// What the sandbox returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its programs are not on this machine.
    #[error(
        "{engine} is not installed: {missing} was not found. Install it with: ./scripts/install-servers {engine}"
    )]
    Missing {
        /// Which.
        engine: Engine,
        /// What was looked for.
        missing: &'static str,
    },
    /// It ended before it answered.
    #[error("the {engine} server ended at once; it said:\n{said}")]
    Ended {
        /// Which.
        engine: Engine,
        /// The end of its log.
        said: String,
    },
    /// It runs, but does not answer.
    #[error("the {engine} server does not answer; it said:\n{said}")]
    Silent {
        /// Which.
        engine: Engine,
        /// The end of its log.
        said: String,
    },
    /// A step of making its data directory failed.
    #[error("`{command}` failed; it said:\n{said}")]
    Step {
        /// The command.
        command: String,
        /// What it printed.
        said: String,
    },
    /// The system refused something.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The environment names a server in a form that cannot be read.
    #[error("{variable} is not a server: {why}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
}

impl Error {
    /// What the system refuses when we try to do that.
    pub(crate) fn io(doing: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Error::Io { doing, source }
    }

    pub(crate) fn missing(engine: Engine) -> Self {
        let missing = match engine {
            Engine::Mysql => "mysqld",
            Engine::Mariadb => "mariadbd",
            Engine::Postgres => "postgres",
        };
        Error::Missing { engine, missing }
    }

    /// Returns whether nothing is wrong but that the engine is not installed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Missing { .. })
    }
}
