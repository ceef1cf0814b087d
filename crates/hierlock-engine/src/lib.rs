//! What MySQL, MariaDB, PostgreSQL and SQLite are, and nothing about trees of locks.
//!
//! ```text
//!   ServerUrl ──► ServerAddress ──connect──► Session: a connection with its id on the server
//!                                              │ dropped before it is known to be clean, it is ended on the server
//!                       Pool: idle sessions, ──┘
//!                       the control session to ask and to cancel, the sessions that are to be ended
//!
//!   ConnectionRef ──► Row, Value          errors/: ErrorClass       lexer: strings, identifiers, comments
//!     whoever owns the connection         one table per engine      one for all engines
//!
//!   Connection, ListeningConnection       introspection: sessions, lock waits, locks and deadlocks, by pid
//!     bare, for whoever sets them up        asked on any SessionRef
//! ```
//!
//! What differs between engines stands side by side: a file, a function or a branch for each.
//!
//! Without the features `mysql`, `postgres` and `sqlite` only what needs no driver is compiled.

mod dialect;
mod driver;
mod duration;
pub mod errors;
pub mod lexer;
mod server_url;
mod statement;
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
pub use duration::{DurationError, parse_duration};
pub use errors::ErrorClass;
pub use server_url::{LOCK_PARAMETERS, ServerUrl, UrlParameterError, UrlUse, check_parameters};
pub use statement::{CopyDirection, StatementWords, TransactionEffect};
pub use text::{nearest, printable};

#[cfg(feature = "_driver")]
pub use {
    connection::{ConnectionRef, ExecuteResult, PacketResult, StatementResult},
    message::{UnreadableAnswer, error_message, timed_out},
    row::{CellRow, ColumnError, Row, TextRow, cell, number_cell},
    server_error::ServerError,
    tasks::{TaskToken, TaskTracker},
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

/// The driver, in the version whose connections are taken and lent here.
#[cfg(feature = "_driver")]
pub use sqlx;
