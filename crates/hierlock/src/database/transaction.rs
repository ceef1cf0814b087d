//! A transaction on a connection of a database.

use super::pooled::PooledConnection;
use super::{DatabaseConnection, Row, Value, failed};
use crate::error::Result;

/// A transaction of a [`Database`](super::Database): at READ COMMITTED on a server, the only writer on
/// SQLite. What is not committed is undone.
///
/// Dropped before its end, at any await point, it takes its connection with it, which is ended on the server too.
#[must_use = "what is not committed is undone"]
pub struct Transaction {
    connection: PooledConnection,
    /// Its connection was left in the middle of a statement, so no answer on it means anything.
    is_given_up: bool,
}

impl Transaction {
    /// The statements `first` go along with what begins it; their rows come back.
    pub(super) async fn begin(
        connection: PooledConnection,
        first: &str,
    ) -> Result<(Self, Vec<Row>), sqlx::Error> {
        let mut tx = Self { connection, is_given_up: false };
        let packet = tx.connection().begin_packet(first).await?;
        Ok((tx, packet.rows))
    }

    pub(crate) fn connection(&mut self) -> DatabaseConnection<'_> {
        self.connection.connection()
    }

    /// Its connection is not used any more, and closed.
    #[cfg(feature = "_server")]
    pub(crate) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    fn check(&self, doing: &'static str) -> Result<()> {
        if !self.is_given_up {
            return Ok(());
        }
        let why = "the connection was given up when an acquire got no answer on it";
        let source = std::io::Error::new(std::io::ErrorKind::NotConnected, why);
        Err(failed(doing)(sqlx::Error::Io(source)))
    }

    /// Runs a statement; returns how many rows it changed. Each `?` outside of quotes and comments is a place for a
    /// value, on every engine; an operator of PostgreSQL's with a `?` is written with two (`tags ?? 'a'`).
    ///
    /// # Errors
    /// What the database says. On MySQL and MariaDB a deadlock has undone everything, and on PostgreSQL
    /// nothing runs any more after any error: begin again.
    pub async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<u64> {
        self.check("run a statement")?;
        let done = self.connection().execute(sql, values).await;
        Ok(done.map_err(failed("run a statement"))?.rows)
    }

    /// The same for a statement that returns rows.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        self.check("run a query")?;
        self.connection().fetch(sql, values).await.map_err(failed("run a query"))
    }

    /// Runs statements without values, separated by semicolons.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        self.check("run statements")?;
        self.connection().run(sql).await.map_err(failed("run statements"))
    }

    /// Makes its changes last.
    ///
    /// # Errors
    /// If the connection ended on the way, nobody knows whether they do.
    ///
    /// # Cancel safety
    /// As after that error.
    pub async fn commit(self) -> Result<()> {
        self.end("COMMIT", "commit").await
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// If the connection is gone, and with it everything.
    pub async fn rollback(self) -> Result<()> {
        self.end("ROLLBACK", "roll back").await
    }

    async fn end(mut self, sql: &str, doing: &'static str) -> Result<()> {
        self.check(doing)?;
        self.connection().run(sql).await.map_err(failed(doing))?;
        self.connection.give_back();
        Ok(())
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("is_given_up", &self.is_given_up)
            .finish_non_exhaustive()
    }
}
