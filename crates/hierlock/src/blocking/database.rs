//! Blocking twins of a database and its transactions: what leases and queues stand on.

use super::{enter, wait_for};
use crate::database::{self, Row, Value};
use crate::error::Result;
use std::time::SystemTime;

/// Blocking twin of [`crate::database::Database`]. Clones share its connections.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}", directory.path().join("app.db").display());
/// use hierlock::blocking::Database;
///
/// let database = Database::connect(&url)?;
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
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Self> {
        wait_for(database::Database::connect(url)).map(Self)
    }

    /// See [`crate::database::Database::begin`].
    ///
    /// # Errors
    /// As there.
    pub fn begin(&self) -> Result<Transaction> {
        wait_for(self.0.begin()).map(|transaction| Transaction(Some(transaction)))
    }

    /// See [`crate::database::Database::now`].
    ///
    /// # Errors
    /// As there.
    pub fn now(&self) -> Result<SystemTime> {
        wait_for(self.0.now())
    }

    /// See [`crate::database::Database::query`].
    ///
    /// # Errors
    /// As there.
    pub fn query(&self, sql: &str, values: impl IntoIterator<Item = Value>) -> Result<Vec<Row>> {
        wait_for(self.0.query(sql, values))
    }

    /// See [`crate::database::Database::for_update`].
    pub fn for_update(&self) -> &'static str {
        self.0.for_update()
    }

    /// See [`crate::database::Database::close`].
    pub fn close(&self) {
        wait_for(self.0.close());
    }
}

/// Blocking twin of [`crate::database::Transaction`]. What is not committed is undone.
#[derive(Debug)]
#[must_use = "what is not committed is undone"]
pub struct Transaction(Option<database::Transaction>);

impl Transaction {
    pub(super) fn inner(&mut self) -> &mut database::Transaction {
        self.0.as_mut().expect("it is there until it is ended or dropped")
    }

    fn into_inner(mut self) -> database::Transaction {
        self.0.take().expect("it is there until it is ended or dropped")
    }

    /// See [`crate::database::Transaction::execute`].
    ///
    /// # Errors
    /// As there.
    pub fn execute(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) -> Result<u64> {
        wait_for(self.inner().execute(sql, values))
    }

    /// See [`crate::database::Transaction::fetch`].
    ///
    /// # Errors
    /// As there.
    pub fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        wait_for(self.inner().fetch(sql, values))
    }

    /// See [`crate::database::Transaction::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(&mut self, sql: &str) -> Result<()> {
        wait_for(self.inner().run(sql))
    }

    /// See [`crate::database::Transaction::commit`].
    ///
    /// # Errors
    /// As there.
    pub fn commit(self) -> Result<()> {
        wait_for(self.into_inner().commit())
    }

    /// See [`crate::database::Transaction::rollback`].
    ///
    /// # Errors
    /// As there.
    pub fn rollback(self) -> Result<()> {
        wait_for(self.into_inner().rollback())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Its connection is closed by a task, which needs a runtime.
        let _entered = enter();
        self.0 = None;
    }
}
