//! Locks on a server that is already there.
//!
//! ```text
//!   URL ─► place ─► scheme (dialect × strategy): what all clients must agree about
//!                     │  plan ─► statement: pure text, rows or keys in the order of the plan
//!                     ▼
//!   backend ─► acquire ─► kept: the connections of a hold ─► session ─► server
//!                           ▲ watchman: are they still there?   ▲
//!                           ├── pool: idle sessions, and one on the side to ask and to cancel
//!                           └── abandoned: what was lost is ended on the server as well
//!            └─ outage: whoever holds nothing yet waits for the server to come back
//! ```
//!
//! Each hold is a transaction on a connection of its own. Whatever talks to the server is run by the
//! caller, and to its end by a task if the caller goes away (`handover`). What is special to one server
//! is in the file of its name.

mod abandoned;
mod acquire;
mod agreement;
mod backend;
mod blocker;
mod connection;
mod extend;
mod innodb;
mod kept;
mod lend;
mod line;
mod mariadb;
mod mysql;
mod outage;
mod place;
mod pool;
mod postgres;
mod provision;
mod scheme;
mod session;
mod session_settings;
mod shared;
mod statement;
mod strategy;
mod take;
mod updaters;
mod waiting;
mod watchman;
mod within;

#[cfg(test)]
pub(crate) use agreement::SCHEMA as LOCK_SCHEMA;
pub(crate) use backend::{SqlBackend, SqlHold};
pub use connection::{Connection, InTransaction, ProgramPool};
pub use lend::Work;
pub(crate) use line::timed_out;
pub use provision::{Check, Phase, Prediction, Progress, Provision, Report, RowRange};
pub use scheme::{BUCKET_TABLE, ID_TABLE, META_TABLE, Scheme};
pub(crate) use session_settings::{NEVER_IDLE, innodb_database, postgres_database};
/// The driver, in the version whose transactions and pools are taken and lent here.
pub use sqlx;
pub use strategy::Strategy;

use std::fmt;

/// A server that hierlock can lock on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// MySQL 8.0 and newer.
    Mysql,
    /// MariaDB 10.6 and newer.
    Mariadb,
    /// PostgreSQL 13 and newer.
    Postgres,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Dialect; 3] = [Dialect::Mysql, Dialect::Mariadb, Dialect::Postgres];

    /// Its name, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Mysql => "mysql",
            Dialect::Mariadb => "mariadb",
            Dialect::Postgres => "postgres",
        }
    }

    /// The strategy it is used with, unless told.
    pub fn default_strategy(self) -> Strategy {
        match self {
            Dialect::Mysql | Dialect::Mariadb => Strategy::Striped,
            Dialect::Postgres => Strategy::Advisory,
        }
    }

    /// Of the part of a URL before its colon.
    pub(crate) fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "mysql" => Some(Dialect::Mysql),
            "mariadb" => Some(Dialect::Mariadb),
            "postgres" | "postgresql" => Some(Dialect::Postgres),
            _ => None,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
