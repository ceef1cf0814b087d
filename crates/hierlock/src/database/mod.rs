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

mod answer;
mod caller;
mod kind;
mod lexer;
mod message;
mod row;
mod schema;
mod transaction;
mod value;
mod wire;

pub(crate) use answer::{answered, heartbeat_within};
pub use caller::AnyTransaction;
pub(crate) use kind::{Busy, Kind, RowLock, checked_name, checked_table};
pub use message::error_message;
pub use row::Row;
pub(crate) use schema::{Schema, diagnosed, failed, is_missing_column};
pub use transaction::Transaction;
pub use value::Value;
pub(crate) use wire::{Done, Wire, on_wire};

use crate::error::{Error, Result, SqlError, UrlError};
use crate::retry::{RetryPolicy, retry};
use crate::server_url::parameters;
use crate::sql::{NEVER_IDLE, innodb_database, postgres_database};
use crate::tasks::TaskTracker;
use futures_util::future::BoxFuture;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, MySqlPool, PgPool};
use std::fmt;
use std::time::{Duration, SystemTime};
use transaction::Pooled;

/// How long a server may take to answer at all.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a writer waits for another on SQLite before it is told that the file is busy; then it is
/// tried again.
#[cfg(feature = "sqlite")]
const BUSY: Duration = Duration::from_secs(5);

/// How long [`Database::close`] waits for what is finished by tasks.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A connection that was in use a moment ago is lent again without asking whether it is still there.
const FRESH: Duration = Duration::from_secs(1);

/// How often what is ours is tried again.
const OFTEN: RetryPolicy = RetryPolicy::often(20);

/// A database, with connections to share. Clones share them too.
#[derive(Clone)]
pub struct Database {
    pool: Pool,
    owner: Owner,
    tasks: TaskTracker,
}

/// Whose pool it is, and so who has set its sessions up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Ours: its sessions have the settings that we rely on.
    Ours,
    /// The program's: `autocommit` may be off, by the server's default or by the program's choice.
    Program,
}

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
    /// If the URL is none of these or has a parameter that is unknown
    /// ([`is_usage`](crate::Error::is_usage)), or nobody answers.
    pub async fn connect(url: &str) -> Result<Self> {
        parameters::check(url, parameters::Use::Driver)?;
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        match scheme {
            "mysql" | "mariadb" => {
                let url = format!("mysql:{rest}");
                let options: MySqlConnectOptions = url.parse().map_err(unread)?;
                let server = format!("{}:{}", options.get_host(), options.get_port());
                reach(server, options.connect()).await?;
                let pool = pool_options()
                    .after_connect(|connection, _| {
                        Box::pin(async { Wire::Innodb(connection).run(&innodb_database()).await })
                    })
                    .connect_lazy_with(options);
                Ok(Self {
                    pool: Pool::Innodb(pool),
                    owner: Owner::Ours,
                    tasks: TaskTracker::default(),
                })
            }
            "postgres" | "postgresql" => {
                let options: PgConnectOptions = url.parse().map_err(unread)?;
                let server = format!("{}:{}", options.get_host(), options.get_port());
                reach(server, options.connect()).await?;
                let pool = pool_options()
                    .after_connect(|connection, _| {
                        Box::pin(async {
                            Wire::Postgres(connection).run(&postgres_database()).await
                        })
                    })
                    .connect_lazy_with(options);
                Ok(Self {
                    pool: Pool::Postgres(pool),
                    owner: Owner::Ours,
                    tasks: TaskTracker::default(),
                })
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => open(url).await.map(Self::from),
            _ => Err(UrlError::Database { url: url.into() }.into()),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.pool {
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
        Ok(self.begin_with("").await?.0)
    }

    async fn begin_with(&self, first: &str) -> Result<(Transaction, Vec<Row>)> {
        let connection = self.connection().await.map_err(failed("connect to the database"))?;
        Transaction::begin(connection, self.kind(), first).await
    }

    async fn connection(&self) -> Result<Pooled, sqlx::Error> {
        match &self.pool {
            Pool::Innodb(pool) => pool.acquire().await.map(Pooled::Innodb),
            Pool::Postgres(pool) => pool.acquire().await.map(Pooled::Postgres),
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(pool) => pool.acquire().await.map(Pooled::Sqlite),
        }
    }

    /// What time it is by the database's clock, which all times of the toolbox are of.
    ///
    /// # Errors
    /// If there is no connection to be had.
    pub async fn now(&self) -> Result<SystemTime> {
        let sql = format!("SELECT {}", self.kind().now_ms());
        let rows = self.fetch(&sql, &[]).await.map_err(failed("ask for the time"))?;
        let millis = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    /// Runs a query by itself, outside of any transaction: on SQLite it waits for no writer. Each `?`
    /// outside of quotes and comments is a place for a value; an operator of PostgreSQL's with a `?` is
    /// written with two (`tags ?? 'a'`).
    ///
    /// # Errors
    /// What the database says.
    pub async fn query(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        let values: Vec<Value> = values.into_iter().collect();
        self.fetch(sql, &values).await.map_err(failed("run a query"))
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
        self.run_with("", |tx, _| work(tx)).await
    }

    /// The same. Statements without values that come `first` are sent along with BEGIN, in one round trip;
    /// `work` is given their rows.
    pub(crate) async fn run_with<T>(
        &self,
        first: &str,
        work: impl for<'tx> Fn(&'tx mut Transaction, Vec<Row>) -> BoxFuture<'tx, Result<T>>,
    ) -> Result<T> {
        let done = retry(OFTEN, |_| {
            let work = &work;
            async move {
                let (mut tx, rows) = self.begin_with(first).await?;
                match work(&mut tx, rows).await {
                    Ok(done) => tx.commit().await.map(|()| done),
                    Err(error) => {
                        // If it cannot be rolled back its connection is closed, which does the same.
                        let _ = tx.rollback().await;
                        Err(error)
                    }
                }
            }
        });
        diagnosed(self, done.await.map_err(|given_up| given_up.last)).await
    }

    /// The same for work that begins its transaction with [`Kind::begin`] in its first packet and ends it
    /// in its last, which saves two round trips. If it fails, its connection is closed.
    pub(crate) async fn send<T>(
        &self,
        work: impl for<'c> Fn(Wire<'c>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        let done = retry(OFTEN, |_| {
            let work = &work;
            async move {
                let connection =
                    self.connection().await.map_err(failed("connect to the database"))?;
                let mut tx = Transaction::unbegun(connection);
                let done = work(tx.wire()).await?;
                tx.ended();
                Ok(done)
            }
        });
        diagnosed(self, done.await.map_err(|given_up| given_up.last)).await
    }

    /// Runs one statement that is a transaction by itself, and again if it loses a race.
    pub(crate) async fn execute(&self, sql: &str, values: &[Value]) -> Result<Done, sqlx::Error> {
        let done = retry(OFTEN, |_| async {
            let mut tx = self.alone().await?;
            let done = tx.wire().execute(sql, values.iter().cloned()).await;
            tx.end_alone(done).await
        });
        done.await.map_err(|given_up| given_up.last)
    }

    /// The same for one that returns rows.
    pub(crate) async fn fetch(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, sqlx::Error> {
        let rows = retry(OFTEN, |_| async {
            let mut tx = self.alone().await?;
            let rows = tx.wire().fetch(sql, values.iter().cloned()).await;
            tx.end_alone(rows).await
        });
        rows.await.map_err(|given_up| given_up.last)
    }

    /// A connection for one statement that is a transaction by itself. On a pool of the program's on MySQL or MariaDB
    /// it is committed after that, which it would not be where `autocommit` is off.
    async fn alone(&self) -> Result<Transaction, sqlx::Error> {
        let commits = self.owner == Owner::Program && self.kind() == Kind::Innodb;
        Ok(Transaction::alone(self.connection().await?, commits))
    }

    /// A pool of one connection to the same database, beside those that are shared; None unless it is
    /// PostgreSQL.
    pub(crate) fn listener(&self) -> Option<PgPool> {
        let Pool::Postgres(pool) = &self.pool else { return None };
        let options = pool.connect_options().as_ref().clone();
        let pool = PgPoolOptions::new().max_connections(1).after_connect(|connection, _| {
            // It is idle most of the time, by its nature.
            let settings = format!("{}; {NEVER_IDLE}", postgres_database());
            Box::pin(async move { Wire::Postgres(connection).run(&settings).await })
        });
        Some(pool.connect_lazy_with(options))
    }

    /// What stands behind a SELECT that locks its rows: ` FOR UPDATE`, or nothing on SQLite, where a
    /// transaction of [`begin`](Self::begin) is the only writer.
    pub fn for_update(&self) -> &'static str {
        match self.kind() {
            Kind::Sqlite => "",
            Kind::Innodb | Kind::Postgres => " FOR UPDATE",
        }
    }

    /// The tasks that finish what callers have dropped.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Waits until tasks have finished what callers have dropped halfway, such as an acquire of a lease, which is
    /// given back; then ends all connections, after what is under way on them. Call it before a program ends.
    ///
    /// A database that is away can keep such a task busy. After 10 seconds it is no longer waited for.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.tasks().wait_until_idle()).await;
        match &self.pool {
            Pool::Innodb(pool) => pool.close().await,
            Pool::Postgres(pool) => pool.close().await,
            #[cfg(feature = "sqlite")]
            Pool::Sqlite(pool) => pool.close().await,
        }
    }
}

/// A pool that asks a connection whether it is still there only if it has not been in use for a while: that
/// is a round trip less before every transaction of somebody who is busy.
fn pool_options<DB: sqlx::Database>() -> PoolOptions<DB> {
    let options = PoolOptions::new().test_before_acquire(false);
    options.before_acquire(|connection: &mut DB::Connection, meta| {
        Box::pin(async move { Ok(meta.idle_for < FRESH || connection.ping().await.is_ok()) })
    })
}

/// Is somebody there? A pool would ask one that refuses again and again, and then not say what was wrong.
async fn reach<C: Connection>(
    server: String,
    connect: impl Future<Output = Result<C, sqlx::Error>>,
) -> Result<()> {
    let silent = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    let connected = tokio::time::timeout(SILENCE, connect).await;
    match connected.unwrap_or_else(|_| Err(silent())) {
        Ok(connection) => {
            // It has answered; how it says goodbye does not matter.
            let _ = connection.close().await;
            Ok(())
        }
        Err(source) => Err(SqlError::Connect { server, source }.into()),
    }
}

/// It may hold a password: why it cannot be read is all that is said of it.
fn unread(error: sqlx::Error) -> Error {
    UrlError::Server { why: error_message(&error) }.into()
}

/// A file of SQLite, in which readers do not wait for the writer.
#[cfg(feature = "sqlite")]
async fn open(url: &str) -> Result<sqlx::SqlitePool> {
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
    let options: SqliteConnectOptions = url.parse().map_err(unread)?;
    let server = options.get_filename().display().to_string();
    let options =
        options.create_if_missing(true).busy_timeout(BUSY).journal_mode(SqliteJournalMode::Wal);
    let opened = pool_options().connect_with(options).await;
    opened.map_err(|source| SqlError::Connect { server, source }.into())
}

impl From<MySqlPool> for Database {
    fn from(pool: MySqlPool) -> Self {
        Database { pool: Pool::Innodb(pool), owner: Owner::Program, tasks: TaskTracker::default() }
    }
}

impl From<PgPool> for Database {
    fn from(pool: PgPool) -> Self {
        Database {
            pool: Pool::Postgres(pool),
            owner: Owner::Program,
            tasks: TaskTracker::default(),
        }
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::SqlitePool> for Database {
    fn from(pool: sqlx::SqlitePool) -> Self {
        Database { pool: Pool::Sqlite(pool), owner: Owner::Program, tasks: TaskTracker::default() }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.kind()).finish()
    }
}
