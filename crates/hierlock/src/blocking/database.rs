//! Blocking versions of a database and its transactions, on which leases and queues are built.

use super::{forward, wait_for};
use crate::database::{self, Row, Value};
use crate::error::Result;
use std::time::SystemTime;

/// Blocking version of [`crate::database::Database`]. Clones share its connections.
///
/// ```
/// use hierlock::blocking::Database;
///
/// let database = Database::connect("sqlite::memory:")?;
/// let mut tx = database.begin()?;
/// tx.run("CREATE TABLE users (id BIGINT PRIMARY KEY)")?;
/// assert_eq!(tx.execute("INSERT INTO users VALUES (?)", [7.into()])?, 1);
/// tx.commit()?;
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Database(pub(super) database::Database);

impl Database {
    /// See [`crate::database::Database::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        wait_for(database::Database::connect(url)).map(Self)
    }

    forward! { "crate::database::Database"
        async fn begin(&self) -> Result<Transaction> => Transaction;
        async fn now(&self) -> Result<SystemTime>;
        async fn query(&self, sql: &str, values: impl IntoIterator<Item = Value>)
            -> Result<Vec<Row>>;
        fn for_update(&self) -> &'static str;
        async fn close(&self);
    }
}

/// Blocking version of [`crate::database::Transaction`]. Dropping it without a commit rolls back.
#[derive(Debug)]
#[must_use = "dropping it without a commit rolls back"]
pub struct Transaction(pub(super) database::Transaction);

impl Transaction {
    forward! { "crate::database::Transaction"
        async fn execute(&mut self, sql: &str, values: impl IntoIterator<Item = Value>)
            -> Result<u64>;
        async fn fetch(&mut self, sql: &str, values: impl IntoIterator<Item = Value>)
            -> Result<Vec<Row>>;
        async fn run(&mut self, sql: &str) -> Result<()>;
        async fn commit(self) -> Result<()>;
        async fn rollback(self) -> Result<()>;
    }
}
