//! Transactions in which the toolbox works: those of a database, and those of sqlx that a caller may bring.

use super::{DatabaseConnection, PooledConnection, Row, Value, failed};
use crate::error::Result;
use hierlock_engine::ConnectionRef;

/// A transaction in which the toolbox works: sqlx's on MySQL, MariaDB, PostgreSQL or SQLite, or the
/// [`Transaction`] of a [`Database`](super::Database).
pub trait AnyTransaction: sealed::HasConnection + Send {}

impl AnyTransaction for Transaction {}

/// What nobody else can implement.
pub(crate) mod sealed {
    pub trait HasConnection {
        fn connection(&mut self) -> super::DatabaseConnection<'_>;

        /// Its connection was left in the middle of a statement, and is not to be used any more.
        #[cfg(feature = "_server")]
        fn give_up(&mut self) {}
    }
}

/// The transactions of a driver of sqlx.
macro_rules! of_driver {
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

of_driver! {
    "mysql": MySql, Mysql;
    "postgres": Postgres, Postgres;
    "sqlite": Sqlite, Sqlite;
}

/// A transaction of a [`Database`](super::Database): at READ COMMITTED on a server, the only writer on SQLite. Dropped
/// before its end, at any await point, it is undone, and its connection is closed, and ended on the server too.
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

    /// Returns its connection; fails if that was given up.
    fn usable(&mut self, doing: &'static str) -> Result<DatabaseConnection<'_>> {
        if self.is_given_up {
            let why = "the connection was given up when an acquire got no answer on it";
            let source = std::io::Error::new(std::io::ErrorKind::NotConnected, why);
            return Err(failed(doing)(sqlx::Error::Io(source)));
        }
        Ok(self.connection())
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
        const DOING: &str = "run a statement";
        let done = self.usable(DOING)?.execute(sql, values).await;
        Ok(done.map_err(failed(DOING))?.rows)
    }

    /// The same for a statement that returns rows.
    pub async fn fetch(
        &mut self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        const DOING: &str = "run a query";
        self.usable(DOING)?.fetch(sql, values).await.map_err(failed(DOING))
    }

    /// The same for statements without values, separated by semicolons.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        const DOING: &str = "run statements";
        self.usable(DOING)?.run(sql).await.map_err(failed(DOING))
    }

    /// Makes its changes last. If this fails or is dropped, nobody knows whether they do.
    pub async fn commit(self) -> Result<()> {
        self.end("COMMIT", "commit").await
    }

    /// Undoes everything. Fails if the connection is gone, and with it everything.
    pub async fn rollback(self) -> Result<()> {
        self.end("ROLLBACK", "roll back").await
    }

    async fn end(mut self, sql: &str, doing: &'static str) -> Result<()> {
        self.usable(doing)?.run(sql).await.map_err(failed(doing))?;
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
