//! Locks on a server that is already there.
//!
//! ```text
//!   URL ─► options ─► scheme (dialect × strategy): what all clients must agree about
//!                     │  plan ─► statement: pure text, rows or keys in the order of the plan
//!                     ▼
//!   backend ─► acquirer ─► hold: the sessions of a hold ─► hierlock-engine ─► server
//!                 ├─ wait: while a statement waits      lock_waits: for what, and who is in the way
//!                 ├─ outage: whoever holds nothing yet waits for the server to come back
//!                 └─ extend: more under the same guard  in_transaction: the same in a caller's transaction
//!              keep_alive: are the sessions still there?
//! ```
//!
//! Each hold is a transaction on a session of its own. Whatever talks to the server is run by the caller, and to its end
//! by a task if the caller goes away (`handover`).

mod acquire_error;
mod acquirer;
mod agreement;
mod backend;
mod client;
mod connection;
mod extend;
mod guard_transaction;
mod hold;
mod in_transaction;
mod innodb;
mod keep_alive;
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
mod shared;
mod statement;
mod strategy;
mod updaters;
mod wait;

#[cfg(test)]
pub(crate) use agreement::SCHEMA as LOCK_SCHEMA;
pub use backend::SqlBackend;
pub use connection::{Connection, InTransaction, ProgramPool};
pub use guard_transaction::GuardTransaction;
pub use hierlock_engine::Dialect;
pub use hold::SqlHold;
pub(crate) use options::Options;
pub use options::Scope;
pub use provision::{
    Prediction, Provision, ProvisionPhase, ProvisionProgress, ProvisionReport, RowRange, TableCheck,
};
pub use scheme::{BUCKET_TABLE, ID_TABLE, META_TABLE, Scheme};
/// The driver, in the version whose transactions and pools are taken and lent here.
pub use sqlx;
pub use strategy::Strategy;

use acquire_error::AcquireError;
use acquirer::Acquirer;
use agreement::{Agreement, ProvisionState};
use hold::{HoldInner, HoldSession, HoldSessions};
use lock_session::LockSession;
use options::LockServer;
use pool::LockPool;
use shared::SharedKeys;
use statement::{LockStatement, ValueForm};
