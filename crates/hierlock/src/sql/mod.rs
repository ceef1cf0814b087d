//! Locks on MySQL, MariaDB and PostgreSQL.
//!
//! ```text
//!   URL ─► options ─► scheme (dialect × strategy): the settings that all clients must share
//!                     │  plan ─► statement: pure text, rows or keys in the order of the plan
//!                     ▼
//!   backend ─► acquirer ─► hold: the sessions of a hold ─► hierlock-engine ─► server
//!                 ├─ wait: watches a waiting statement    lock_waits: its slot     slot_blockers: its blockers
//!                 ├─ outage: an acquire that holds nothing waits for the server to come back
//!                 └─ extend: more locks for a guard       in_transaction: locks in a caller's transaction
//!              keep_alive: checks the sessions of holds   label_rows: shows the labels of holds
//!              lock_report: lists holders and waiters
//!              exclusion: tests that locks exclude        diagnosis: all checks of `hierlock doctor`
//! ```
//!
//! Each hold is a transaction on a session of its own. Requests to the server run in the caller's task. If the caller
//! drops its future, another task finishes them (`handover`).

mod acquire_error;
mod acquirer;
mod agreement;
mod backend;
mod client;
mod client_identity;
mod connection;
mod contention;
mod diagnosis;
mod exclusion;
mod extend;
mod guard_transaction;
mod hold;
mod in_transaction;
mod innodb;
mod keep_alive;
mod label_rows;
pub mod lock_report;
mod lock_session;
mod lock_table;
mod lock_waits;
mod missing_rows;
mod options;
mod outage;
mod pool;
mod postgres;
mod provision;
mod scheme;
mod session_label;
mod shared_session;
mod slot_blockers;
mod spare_slot;
mod statement;
mod strategy;
mod table_checks;
mod update_keys;
mod wait;

#[cfg(test)]
pub(crate) use agreement::SCHEMA as LOCK_SCHEMA;
pub use backend::SqlBackend;
pub use client_identity::{ClientIdentity, InvalidIdentity};
pub use connection::{DriverConnection, InTransaction, ProgramPool};
pub use contention::Contention;
pub(crate) use diagnosis::diagnose;
pub use exclusion::Exclusion;
pub use guard_transaction::GuardTransaction;
pub use hierlock_engine::Dialect;
pub use hold::SqlHold;
pub(crate) use options::Options;
pub use options::Scope;
pub use provision::{
    Prediction, Provision, ProvisionPhase, ProvisionProgress, ProvisionReport, RowRange, TableCheck,
};
pub use scheme::{BUCKET_TABLE, ID_TABLE, META_TABLE, Scheme};
pub use session_label::SessionLabel;
/// The driver, in the version whose transactions and pools this crate accepts.
pub use sqlx;
pub use strategy::Strategy;

use acquire_error::AcquireError;
use acquirer::Acquirer;
use agreement::Agreement;
use hold::{HoldInner, HoldSession, HoldSessions};
use label_rows::LabelRows;
use lock_session::LockSession;
use options::LockServer;
use pool::LockPool;
use session_label::LabelText;
use shared_session::SharedKeys;
use slot_blockers::SlotBlockers;
use statement::{LockStatement, ValueForm};
