//! Databases for the toolbox: optimistic versions, leases and
//! queues keep their rows in MySQL, MariaDB, PostgreSQL, or in a file of SQLite, where
//! nothing needs to be installed.
//!
//! ```text
//!   caller's transaction ──┐
//!   Database ──Transaction─┴─► Wire: one of the drivers ──► Row
//!      a pool of one of them     ▲ Kind: its words, pure   Value: bound, never text
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::database::Database;
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let file = directory.path().join("app.db");
//! let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
//! let mut tx = database.begin().await?;
//! tx.run("CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)").await?;
//! tx.execute("INSERT INTO accounts VALUES (?, ?)", [1.into(), 100.into()]).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```

mod caller;
mod kind;
mod row;
mod schema;
mod transaction;
mod value;
mod wire;

pub use caller::AnyTransaction;
pub(crate) use caller::sealed::Wired;
pub(crate) use kind::{Busy, Kind, RowLock, checked_name, checked_table, quoted};
pub use row::Row;
pub(crate) use schema::{Schema, failed};
pub use transaction::Transaction;
pub use value::Value;
pub(crate) use wire::{Wire, on_wire};

use crate::error::{Result, TableError, UrlError};
use crate::retry::{RetryPolicy, retry};
use futures_util::future::BoxFuture;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySqlPool, PgPool};
use std::fmt;
#[cfg(feature = "sqlite")]
use std::time::Duration;
use transaction::Pooled;

/// How long a writer waits for another on SQLite before it is told that the file is busy; then it is
/// tried again.
#[cfg(feature = "sqlite")]
const BUSY: Duration = Duration::from_secs(5);

/// A database, with connections to share. Clones share them too.
#[derive(Clone)]
pub struct Database(Pool);

#[derive(Clone)]
enum Pool {
    Innodb(MySqlPool),
    Postgres(PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

impl Database {
    /// Connects to `mysql:`, `mariadb:` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or opens
    /// `sqlite:PATH`, which is made if it is not there.
    ///
    /// A program that has a pool already makes a database from it: `Database::from(pool)`.
    ///
    /// # Errors
    /// If the URL is none of these ([`is_usage`](crate::Error::is_usage)), or nobody answers.
    pub async fn connect(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        let connected = match scheme {
            "mysql" | "mariadb" => {
                let url = format!("mysql:{rest}");
                MySqlPoolOptions::new().connect(&url).await.map(Self::from)
            }
            "postgres" | "postgresql" => PgPoolOptions::new().connect(url).await.map(Self::from),
            #[cfg(feature = "sqlite")]
            "sqlite" => open(url).await.map(Self::from),
            _ => return Err(UrlError::Database { scheme: scheme.to_owned() }.into()),
        };
        connected.map_err(|source| match source {
            sqlx::Error::Configuration(why) => UrlError::Server { why: why.to_string() }.into(),
            source => TableError::Failed { doing: "connect to the database", source }.into(),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.0 {
            Pool::Innodb(_) => Kind::Innodb,
            Pool::Postgres(_) => Kind::Postgres,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(_) => Kind::Sqlite,
        }
    }

    /// Begins a transaction: at READ COMMITTED on a server, the only writer on SQLite.
    ///
    /// # Errors
    /// If there is no connection to be had, or on SQLite another writer does not end.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn begin(&self) -> Result<Transaction> {
        let connection = match &self.0 {
            Pool::Innodb(pool) => pool.acquire().await.map(Pooled::Innodb),
            Pool::Postgres(pool) => pool.acquire().await.map(Pooled::Postgres),
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(pool) => pool.acquire().await.map(Pooled::Sqlite),
        };
        let connection = connection.map_err(failed("connect to the database"))?;
        Transaction::begin(connection, self.kind()).await
    }

    /// Runs a whole transaction of ours, and again if it loses a race. `work` must be happy to begin
    /// from the start.
    ///
    /// # Cancel safety
    /// Dropped during COMMIT it may have happened; before, nothing has.
    pub(crate) async fn run<T>(
        &self,
        work: impl for<'tx> Fn(&'tx mut Transaction) -> BoxFuture<'tx, Result<T>>,
    ) -> Result<T> {
        let policy = RetryPolicy::default().attempts(20);
        let done = retry(policy, |_| {
            let work = &work;
            async move {
                let mut tx = self.begin().await?;
                match work(&mut tx).await {
                    Ok(done) => tx.commit().await.map(|()| done),
                    Err(error) => {
                        // If it cannot be rolled back its connection is closed, which does the same.
                        let _ = tx.rollback().await;
                        Err(error)
                    }
                }
            }
        });
        done.await.map_err(|given_up| given_up.last)
    }

    /// What stands behind a SELECT that locks its rows: ` FOR UPDATE`, or nothing on SQLite, where a
    /// transaction of [`begin`](Self::begin) is the only writer.
    pub fn for_update(&self) -> &'static str {
        match self.kind() {
            Kind::Sqlite => "",
            Kind::Innodb | Kind::Postgres => " FOR UPDATE",
        }
    }

    /// Ends all connections, after what is under way on them.
    pub async fn close(&self) {
        match &self.0 {
            Pool::Innodb(pool) => pool.close().await,
            Pool::Postgres(pool) => pool.close().await,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(pool) => pool.close().await,
        }
    }
}

/// A file of SQLite, in which readers do not wait for the writer.
#[cfg(feature = "sqlite")]
async fn open(url: &str) -> Result<sqlx::SqlitePool, sqlx::Error> {
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
    let options: SqliteConnectOptions = url.parse()?;
    let options = options
        .create_if_missing(true)
        .busy_timeout(BUSY)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(sqlx::sqlite::SqliteSynchronous::Normal);
    SqlitePoolOptions::new().connect_with(options).await
}

impl From<MySqlPool> for Database {
    fn from(pool: MySqlPool) -> Self {
        Database(Pool::Innodb(pool))
    }
}

impl From<PgPool> for Database {
    fn from(pool: PgPool) -> Self {
        Database(Pool::Postgres(pool))
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::SqlitePool> for Database {
    fn from(pool: sqlx::SqlitePool) -> Self {
        Database(Pool::Sqlite(pool))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.kind()).finish()
    }
}
