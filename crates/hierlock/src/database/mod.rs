//! Databases for the toolbox: optimistic versions, leases and queues store their rows in MySQL, MariaDB, PostgreSQL or
//! SQLite, which needs no server.
//!
//! ```text
//!   caller's transaction ──┐
//!   Database ──Transaction─┴─► DatabaseConnection ──► Row
//!      own sessions, or the      waits for an answer   Value: bound, never text
//!      program's pool            while the server works on it
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::database::Database;
//!
//! let database = Database::connect("sqlite::memory:").await?;
//! let mut tx = database.begin().await?;
//! tx.run("CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)").await?;
//! tx.execute("INSERT INTO accounts VALUES (?, ?)", [1.into(), 100.into()]).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```

#![cfg_attr(
    not(feature = "toolbox"),
    allow(dead_code, unused_imports, reason = "parts are only for the toolbox")
)]

mod connection;
mod pool;
mod schema;
#[cfg(feature = "_server")]
mod server;
mod transaction;

pub(crate) use connection::{DatabaseConnection, heartbeat_limit, with_time_limit};
pub(crate) use hierlock_engine::{
    Driver, ExecuteResult, LockWaitPolicy, RowLock, check_name, check_table_name,
};
pub use hierlock_engine::{Row, Value, error_message};
pub(crate) use pool::PooledConnection;
pub(crate) use schema::{Schema, diagnose_schema, failed};
pub use transaction::{AnyTransaction, Transaction};

use crate::error::{Error, Result, UrlError};
#[cfg(feature = "toolbox")]
use crate::handover::Handover;
use crate::retry::{RetryPolicy, retry};
#[cfg(feature = "_server")]
use hierlock_engine::{Dialect, Pool, PoolSettings, Purpose, ServerAddress};
use hierlock_engine::{UrlUse, check_parameters, task_tracker};
use pool::DatabasePool;
#[cfg(feature = "_server")]
use server::{DatabaseServer, ServerSession};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// SQLite has no server.
#[cfg(not(feature = "_server"))]
type ServerSession = std::convert::Infallible;

/// How long [`Database::close`] waits for background tasks.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

const TRANSACTION_RETRIES: RetryPolicy = RetryPolicy::with_attempts(20);

/// A database with a pool of connections. Clones share the pool.
#[derive(Clone)]
pub struct Database {
    pool: DatabasePool,
    /// The tasks that finish dropped calls.
    pub(crate) tasks: TaskTracker,
}

/// The options of a connection to a database, made by [`Database::builder`].
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "only servers use them"))]
#[must_use = "nothing is connected until `connect` is called"]
pub struct DatabaseBuilder {
    connections: usize,
    answer_limit: Duration,
}

impl DatabaseBuilder {
    setters! {
        /// Sets the maximum number of connections to a server; 10 by default.
        connections(connections: usize) => connections: connections.max(1);
        /// Sets how long a statement may take before another connection asks the server about it; 5 s by default. The wait
        /// continues if the server runs the statement or the statement waits for a lock. If the answer was lost, the
        /// statement fails.
        answer_limit(limit: Duration) => answer_limit: limit;
    }

    /// Connects, as [`Database::connect`] does.
    pub async fn connect(self, url: &str) -> Result<Database> {
        check_parameters(url, UrlUse::Driver)?;
        let scheme = url.split_once(':').unwrap_or_default().0;
        #[cfg(feature = "sqlite")]
        if scheme == "sqlite" {
            return pool::open(url).await.map(Database::from);
        }
        #[cfg(feature = "_server")]
        if Dialect::from_scheme(scheme).is_some() {
            let unreadable = |error: url::ParseError| UrlError::Server { why: error.to_string() };
            let address = ServerAddress::from_url(&url::Url::parse(url).map_err(unreadable)?)?;
            let Self { connections, answer_limit } = self;
            let purpose = Purpose::Database;
            let settings =
                PoolSettings { connections, answer_limit, purpose, ..PoolSettings::default() };
            let pool = Pool::new(address, settings);
            // Fails at once if the server cannot be reached.
            pool.give_back(pool.connect().await?);
            return Ok(DatabasePool::Own(DatabaseServer::new(pool)).into());
        }
        Err(UrlError::Database { url: url.into() }.into())
    }
}

impl Database {
    /// Connects to `mysql:`, `mariadb:` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or opens `sqlite:PATH`, which is
    /// created if it does not exist.
    ///
    /// A program that already has a pool of sqlx can use it: `Database::from(pool)`. Fails with
    /// [`is_usage`](crate::Error::is_usage) if the URL is none of these or has an unknown parameter.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Returns a builder with the options of a connection.
    ///
    /// ```no_run
    /// # async fn example() -> hierlock::Result<()> {
    /// use hierlock::database::Database;
    ///
    /// let database = Database::builder().connections(4).connect("postgres://app@db/shop").await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder { connections: 10, answer_limit: Duration::from_secs(5) }
    }

    pub(crate) fn driver(&self) -> Driver {
        self.pool.driver()
    }

    /// Begins a transaction: at READ COMMITTED on a server, the only writer on SQLite. Fails if all connections stay in
    /// use, or if another writer on SQLite does not end in time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no transaction open.
    pub async fn begin(&self) -> Result<Transaction> {
        let transaction = Transaction::begin(self.lend().await?, "").await;
        Ok(transaction.map_err(failed("begin a transaction"))?.0)
    }

    async fn lend(&self) -> Result<PooledConnection> {
        self.pool.connection().await.map_err(failed("connect to the database"))
    }

    /// Returns the time of the database's clock, which the whole toolbox uses.
    pub async fn now(&self) -> Result<SystemTime> {
        let sql = format!("SELECT {}", self.driver().now_ms());
        let rows = self.fetch(failed("ask for the time"), &sql, &[]).await?;
        Ok(time_from_ms(rows.first().map_or(Ok(0), |row| row.int(0))?))
    }

    /// Runs a query outside of any transaction. On SQLite it does not wait for a writer. A `?` is a placeholder, as in
    /// [`Transaction::execute`].
    pub async fn query(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        let values: Vec<Value> = values.into_iter().collect();
        self.fetch(failed("run a query"), sql, &values).await
    }

    /// Runs a whole transaction on hierlock's tables, and retries it after a deadlock, a serialization failure, or a busy
    /// SQLite file. The statements `first`, which have no values, are sent with BEGIN in one round trip; `work` gets their
    /// rows. `work` may be called several times. It returns its result with the transaction, which is then committed or
    /// rolled back.
    ///
    /// # Cancel safety
    /// If the future is dropped during COMMIT, the transaction may be committed; if earlier, it is not.
    pub(crate) async fn run<T, W: Future<Output = (Result<T>, Transaction)>>(
        &self,
        (schema, first): (Schema, &str),
        work: impl Fn(Transaction, Vec<Row>) -> W,
    ) -> Result<T> {
        let done = retry(TRANSACTION_RETRIES, async |_| {
            let transaction = Transaction::begin(self.lend().await?, first).await;
            let (tx, rows) = transaction.map_err(schema.failed("begin a transaction"))?;
            match work(tx, rows).await {
                (Ok(done), tx) => tx.commit().await.map(|()| done),
                (Err(error), tx) => {
                    // If the rollback fails, the connection is closed, which rolls back as well.
                    let _ = tx.rollback().await;
                    Err(error)
                }
            }
        });
        diagnose_schema(self, done.await.map_err(|error| error.last)).await
    }

    /// Runs and retries a whole transaction like [`run`](Self::run), but `work` itself begins it with
    /// [`DatabaseConnection::begin_packet`] and ends it in its last packet, which saves two round trips. `work` returns the
    /// connection; if it fails, the connection is closed.
    pub(crate) async fn send<T, W: Future<Output = Result<(T, PooledConnection)>>>(
        &self,
        work: impl Fn(PooledConnection) -> W,
    ) -> Result<T> {
        let done = retry(TRANSACTION_RETRIES, async |_| {
            let (done, connection) = work(self.lend().await?).await?;
            connection.give_back();
            Ok(done)
        });
        diagnose_schema(self, done.await.map_err(|error| error.last)).await
    }

    /// Runs one statement as its own transaction, and retries it like [`run`](Self::run). `failed` converts the error.
    pub(crate) async fn execute(
        &self,
        failed: impl FnOnce(sqlx::Error) -> Error,
        sql: &str,
        values: &[Value],
    ) -> Result<ExecuteResult> {
        let done = retry(TRANSACTION_RETRIES, async |_| {
            let mut connection = self.pool.connection().await?;
            let done = connection.connection().execute(sql, values.iter().cloned()).await;
            connection.end_statement(done).await
        });
        diagnose_schema(self, done.await.map_err(|error| failed(error.last))).await
    }

    /// Runs one statement that returns rows, as [`execute`](Self::execute) does.
    pub(crate) async fn fetch(
        &self,
        failed: impl FnOnce(sqlx::Error) -> Error,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>> {
        diagnose_schema(self, self.rows(sql, values).await.map_err(failed)).await
    }

    async fn rows(&self, sql: &str, values: &[Value]) -> sqlx::Result<Vec<Row>> {
        let rows = retry(TRANSACTION_RETRIES, async |_| {
            let mut connection = self.pool.connection().await?;
            let rows = connection.connection().fetch(sql, values.iter().cloned()).await;
            connection.end_statement(rows).await
        });
        rows.await.map_err(|error| error.last)
    }

    /// Returns a separate pool of one connection to the same database, on PostgreSQL, for LISTEN.
    #[cfg(all(feature = "postgres", feature = "toolbox"))]
    pub(crate) fn listener(&self) -> Option<sqlx::PgPool> {
        let options = match &self.pool {
            DatabasePool::Own(server) => match &server.pool.address {
                ServerAddress::Postgres(options) => (**options).clone(),
                #[cfg(feature = "mysql")]
                ServerAddress::Mysql(..) => return None,
            },
            DatabasePool::Postgres(pool, _) => pool.connect_options().as_ref().clone(),
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            _ => return None,
        };
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                let settings = sqlx::AssertSqlSafe(hierlock_engine::session_settings::listener());
                sqlx::raw_sql(settings).execute(connection).await.map(|_| ())
            })
        });
        Some(pool.connect_lazy_with(options))
    }

    /// Returns the end of a SELECT that locks its rows: ` FOR UPDATE`, or an empty text on SQLite, where a transaction of
    /// [`begin`](Self::begin) is the only writer.
    pub fn for_update(&self) -> &'static str {
        if self.driver() == Driver::Sqlite { "" } else { " FOR UPDATE" }
    }

    /// Runs work that a task finishes if the caller drops the future, so that no statement is left unfinished on a
    /// connection.
    #[cfg(feature = "toolbox")]
    pub(crate) fn run_to_end<W: Future<Output: Send> + Send + 'static>(
        &self,
        work: impl FnOnce(CancellationToken) -> W,
    ) -> Handover<W::Output> {
        Handover::new(Handle::current(), &self.tasks, work)
    }

    /// Waits at most 10 seconds for the tasks that finish dropped calls, such as an acquire of a lease, which is released.
    /// Then closes all connections after their current statements. Call it before a program ends.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.tasks.wait()).await;
        self.pool.close().await;
    }
}

/// Converts a time of the database: milliseconds since 1970 in UTC.
pub(crate) fn time_from_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl From<DatabasePool> for Database {
    fn from(pool: DatabasePool) -> Self {
        Self { pool, tasks: task_tracker() }
    }
}

#[cfg(feature = "mysql")]
impl From<sqlx::MySqlPool> for Database {
    fn from(pool: sqlx::MySqlPool) -> Self {
        let server = DatabaseServer::of_program(&pool);
        DatabasePool::Mysql(pool, server).into()
    }
}

#[cfg(feature = "postgres")]
impl From<sqlx::PgPool> for Database {
    fn from(pool: sqlx::PgPool) -> Self {
        let server = DatabaseServer::of_program(&pool);
        DatabasePool::Postgres(pool, server).into()
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::SqlitePool> for Database {
    fn from(pool: sqlx::SqlitePool) -> Self {
        DatabasePool::Sqlite(pool).into()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.driver()).finish()
    }
}
