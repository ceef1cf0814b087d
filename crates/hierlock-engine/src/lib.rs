//! The database engines MySQL, MariaDB, PostgreSQL and SQLite. This crate knows nothing about trees of locks.
//!
//! ```text
//!   ServerUrl ──► ServerAddress ──connect──► Session: a connection with its id on the server
//!                                              │ ended on the server if it is dropped before it is clean
//!                       Pool: idle sessions, ──┘
//!                       the control session for queries and cancels, the abandoned sessions
//!
//!   ConnectionRef ──► Row, Value          errors: ErrorClass        lexer: strings, identifiers, comments
//!     a borrowed connection               one table per engine      one for all engines
//!
//!   Connection, ListeningConnection       introspection: sessions, lock waits, locks and deadlocks, by pid
//!     without session settings            runs on any SessionRef
//! ```
//!
//! `checks` applies rules to the facts of a server: whether hierlock can lock on it, and which settings are wrong.
//!
//! Differences between engines are side by side: one file, function or branch per engine.
//!
//! Without the features `mysql`, `postgres` and `sqlite` only the code that needs no driver is compiled.

pub mod checks;
mod dialect;
mod driver;
mod duration;
pub mod errors;
pub mod lexer;
mod server_url;
mod statement;
mod statement_redaction;
mod text;

#[cfg(feature = "_driver")]
mod connection;
#[cfg(feature = "_driver")]
mod message;
#[cfg(feature = "_driver")]
mod row;
#[cfg(feature = "_driver")]
mod server_error;
#[cfg(feature = "_driver")]
mod tasks;
#[cfg(feature = "_driver")]
mod value;

#[cfg(feature = "_server")]
mod abandoned;
#[cfg(feature = "_server")]
mod address;
#[cfg(feature = "_server")]
pub mod introspection;
#[cfg(feature = "_server")]
mod pool;
#[cfg(feature = "_server")]
mod session;
#[cfg(feature = "_server")]
pub mod sessions;
#[cfg(feature = "_server")]
mod suitability;

pub use dialect::Dialect;
pub use driver::{Driver, InvalidName, LockWaitPolicy, RowLock, check_name, check_table_name};
pub use duration::{DurationError, duration_text, parse_duration};
pub use errors::ErrorClass;
pub use server_url::{LOCK_PARAMETERS, ServerUrl, UrlParameterError, UrlUse, check_parameters};
pub use statement::{CopyDirection, StatementWords, TransactionEffect};
pub use statement_redaction::redact_statement;
pub use text::{nearest, printable};

#[cfg(feature = "_driver")]
pub use {
    connection::{ConnectionRef, ExecuteResult, PacketResult, StatementResult},
    message::{UnreadableAnswer, error_message, timed_out},
    row::{CellRow, ColumnError, Row, TextRow, cell, number_cell},
    server_error::ServerError,
    tasks::task_tracker,
    value::Value,
};

#[cfg(feature = "_server")]
pub use {
    abandoned::AbandonedSessions,
    address::{AddressError, ServerAddress},
    connection::Connection,
    pool::{Permit, Pool, PoolSettings},
    session::settings::{self as session_settings, Purpose, SessionSettings},
    session::{Session, SessionId, SessionRef},
    suitability::Suitability,
};

#[cfg(feature = "postgres")]
pub use connection::ListeningConnection;

/// The driver, in the version of the connections that this crate accepts and returns.
#[cfg(feature = "_driver")]
pub use sqlx;
