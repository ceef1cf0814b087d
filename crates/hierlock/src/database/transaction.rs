//! The transactions of the toolbox: those of a [`Database`](super::Database), and sqlx transactions of the caller.

use super::{DatabaseConnection, PooledConnection, Row, Value, failed};
use crate::error::Result;
use hierlock_engine::ConnectionRef;

/// A transaction that the toolbox can use: sqlx's on MySQL, MariaDB, PostgreSQL or SQLite, or the [`Transaction`] of a
/// [`Database`](super::Database).
pub trait AnyTransaction: sealed::HasConnection + Send {}

impl AnyTransaction for Transaction {}

/// Traits that other crates cannot implement.
pub(crate) mod sealed {
    pub trait HasConnection {
        fn connection(&mut self) -> super::DatabaseConnection<'_>;

        /// Marks the connection as unusable, because a statement on it was abandoned.
        #[cfg(feature = "_server")]
        fn give_up(&mut self) {}
    }
}

/// Implements [`AnyTransaction`] for the transactions of sqlx drivers.
macro_rules! sqlx_transactions {
    ($($feature:literal: $driver:ident, $connection:ident;)*) => {
        $(#[cfg(feature = $feature)]
        impl AnyTransaction for sqlx::Transaction<'_, sqlx::$driver> {}

        #[cfg(feature = $feature)]
        impl sealed::HasConnection for sqlx::Transaction<'_, sqlx::$driver> {
            fn connection(&mut self) -> DatabaseConnection<'_> {
                DatabaseConnection::of_caller(ConnectionRef::$connection(self))
            }
        })*
    };
}

sqlx_transactions! {
    "mysql": MySql, Mysql;
    "postgres": Postgres, Postgres;
    "sqlite": Sqlite, Sqlite;
}

/// A transaction of a [`Database`](super::Database): at READ COMMITTED on a server, the only writer on SQLite. Dropping it
/// before its end, at any await point, rolls back, closes the connection, and ends the session on the server.
#[must_use = "dropping it without a commit rolls back"]
pub struct Transaction {
    connection: PooledConnection,
    /// Whether a statement was abandoned on the connection, so that later answers cannot be trusted.
    is_given_up: bool,
}

impl Transaction {
    /// Begins a transaction. The statements `first` are sent in the same round trip, and their rows are returned.
    pub(super) async fn begin(
        connection: PooledConnection,
        first: &str,
    ) -> sqlx::Result<(Self, Vec<Row>)> {
        let mut tx = Self { connection, is_given_up: false };
        let packet = tx.connection().begin_packet(first).await?;
        Ok((tx, packet.rows))
    }

    pub(crate) fn connection(&mut self) -> DatabaseConnection<'_> {
        self.connection.connection()
    }

    /// Returns the connection. Fails if it was given up.
    fn usable_connection(&mut self, doing: &'static str) -> Result<DatabaseConnection<'_>> {
        if self.is_given_up {
            let why = "the connection was given up when an acquire got no answer on it";
            let source = std::io::Error::new(std::io::ErrorKind::NotConnected, why);
            return Err(failed(doing)(sqlx::Error::Io(source)));
        }
        Ok(self.connection())
    }

    /// Runs a statement and returns the number of changed rows. Each `?` outside of quotes and comments is a placeholder,
    /// on every engine. A PostgreSQL operator with a `?` is written with two (`tags ?? 'a'`).
    ///
    /// # Errors
    /// The error of the database. On MySQL and MariaDB a deadlock has rolled back the transaction, and on PostgreSQL no
    /// statement runs after any error: begin again.
    pub async fn execute(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<u64> {
        const OPERATION: &str = "run a statement";
        let done = self.usable_connection(OPERATION)?.execute(sql, values).await;
        Ok(done.map_err(failed(OPERATION))?.rows)
    }

    /// Runs a statement and returns its rows, as [`execute`](Self::execute) does.
    pub async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        const OPERATION: &str = "run a query";
        self.usable_connection(OPERATION)?.fetch(sql, values).await.map_err(failed(OPERATION))
    }

    /// Runs statements without values, separated by semicolons.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        const OPERATION: &str = "run statements";
        self.usable_connection(OPERATION)?.run(sql).await.map_err(failed(OPERATION))
    }

    /// Commits the transaction. If this fails or is dropped, the transaction may or may not be committed.
    pub async fn commit(self) -> Result<()> {
        self.end("COMMIT", "commit").await
    }

    /// Rolls the transaction back. Fails if the connection is lost, which rolls back as well.
    pub async fn rollback(self) -> Result<()> {
        self.end("ROLLBACK", "roll back").await
    }

    async fn end(mut self, sql: &str, doing: &'static str) -> Result<()> {
        self.usable_connection(doing)?.run(sql).await.map_err(failed(doing))?;
        self.connection.give_back();
        Ok(())
    }
}

impl sealed::HasConnection for Transaction {
    fn connection(&mut self) -> DatabaseConnection<'_> {
        self.connection()
    }

    #[cfg(feature = "_server")]
    fn give_up(&mut self) {
        self.is_given_up = true;
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("is_given_up", &self.is_given_up)
            .finish_non_exhaustive()
    }
}
