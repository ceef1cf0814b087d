//! A transaction on a connection of a pool. Dropped before its end, at any await point, it takes its
//! connection with it: sqlx would give one back on which a BEGIN is still under way.

use super::{Kind, Row, Value, Wire, failed};
use crate::error::Result;
use sqlx::pool::PoolConnection;
use sqlx::{MySql, Postgres};

pub(super) enum Pooled {
    Innodb(PoolConnection<MySql>),
    Postgres(PoolConnection<Postgres>),
    #[cfg(feature = "sqlite")]
    Sqlite(PoolConnection<sqlx::Sqlite>),
}

impl Pooled {
    pub(super) fn wire(&mut self) -> Wire<'_> {
        match self {
            Pooled::Innodb(c) => Wire::Innodb(c),
            Pooled::Postgres(c) => Wire::Postgres(c),
            #[cfg(feature = "sqlite")]
            Pooled::Sqlite(c) => Wire::Sqlite(c),
        }
    }

    /// It is not to be used again.
    fn close_on_drop(&mut self) {
        match self {
            Pooled::Innodb(c) => c.close_on_drop(),
            Pooled::Postgres(c) => c.close_on_drop(),
            #[cfg(feature = "sqlite")]
            Pooled::Sqlite(c) => c.close_on_drop(),
        }
    }
}

/// A transaction of a [`Database`](super::Database): at READ COMMITTED on a server, the only writer on
/// SQLite. What is not committed is undone.
#[must_use = "what is not committed is undone"]
pub struct Transaction {
    connection: Pooled,
    /// Has it not ended yet, as far as we know?
    is_open: bool,
    /// Was its connection left in the middle of a statement? Then no answer on it means anything.
    is_given_up: bool,
}

impl Transaction {
    /// What is to be asked `first` goes along with it; its rows come back.
    pub(super) async fn begin(
        connection: Pooled,
        kind: Kind,
        first: &str,
    ) -> Result<(Self, Vec<Row>)> {
        let mut tx = Self { connection, is_open: true, is_given_up: false };
        let rows = match first {
            "" => tx.wire().run(kind.begin()).await.map(|()| Vec::new()),
            first => tx.wire().ask(&format!("{}; {first}", kind.begin())).await,
        };
        let rows = rows.map_err(failed("begin a transaction"))?;
        Ok((tx, rows))
    }

    /// One that begins with a packet of ours, and ends with one: then it is to be told so.
    pub(super) fn unbegun(connection: Pooled) -> Self {
        Self { connection, is_open: true, is_given_up: false }
    }

    /// For one statement that is a transaction by itself, unless it `commits` only when it is told to.
    pub(super) fn alone(connection: Pooled, commits: bool) -> Self {
        Self { connection, is_open: commits, is_given_up: false }
    }

    /// Ends what [`alone`](Self::alone) began.
    pub(super) async fn end_alone<T>(
        mut self,
        done: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        if !self.is_open {
            return done;
        }
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.wire().run(end).await;
        // If it could not be ended its connection is closed, which undoes it.
        self.is_open = ended.is_err();
        done.and_then(|done| ended.map(|()| done))
    }

    /// What was sent has ended it.
    pub(super) fn ended(mut self) {
        self.is_open = false;
    }

    pub(crate) fn wire(&mut self) -> Wire<'_> {
        self.connection.wire()
    }

    /// Its connection is not used any more, and closed.
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

    /// Runs a statement; how many rows it changed. Each `?` outside of quotes and comments is a place for a
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
        let done = self.wire().execute(sql, values).await.map_err(failed("run a statement"))?;
        Ok(done.rows)
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
        self.wire().fetch(sql, values).await.map_err(failed("run a query"))
    }

    /// Runs statements without values, separated by semicolons.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        self.check("run statements")?;
        self.wire().run(sql).await.map_err(failed("run statements"))
    }

    /// Makes its changes last.
    ///
    /// # Errors
    /// If the connection ended on the way, nobody knows whether they do.
    ///
    /// # Cancel safety
    /// As after that error.
    pub async fn commit(mut self) -> Result<()> {
        self.end("COMMIT", "commit").await
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// If the connection is gone, and with it everything.
    pub async fn rollback(mut self) -> Result<()> {
        self.end("ROLLBACK", "roll back").await
    }

    async fn end(&mut self, sql: &str, doing: &'static str) -> Result<()> {
        self.check(doing)?;
        let ended = self.wire().run(sql).await;
        self.is_open = ended.is_err();
        ended.map_err(failed(doing))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.is_open {
            self.connection.close_on_drop();
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("is_open", &self.is_open).finish_non_exhaustive()
    }
}
