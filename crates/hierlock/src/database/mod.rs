//! Databases for the toolbox: optimistic versions, leases and queues keep their rows in MySQL, MariaDB, PostgreSQL, or
//! in a file of SQLite, where nothing needs to be installed.
//!
//! ```text
//!   caller's transaction ──┐
//!   Database ──Transaction─┴─► DatabaseConnection ──► Row
//!      sessions of our own,      waits for an answer   Value: bound, never text
//!      or a program's pool       while the server works on it
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::database::Database;
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", directory.path().join("app.db").display());
//! let database = Database::connect(&url).await?;
//! let mut tx = database.begin().await?;
//! tx.run("CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)").await?;
//! tx.execute("INSERT INTO accounts VALUES (?, ?)", [1.into(), 100.into()]).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```

#![cfg_attr(
    not(feature = "toolbox"),
    allow(dead_code, unused_imports, reason = "parts of it are for the toolbox alone")
)]

mod connection;
mod pool;
mod schema;
mod transaction;

pub(crate) use connection::{DatabaseConnection, answered, heartbeat_limit};
pub(crate) use hierlock_engine::{
    Driver, ExecuteResult, LockWaitPolicy, RowLock, check_name, check_table_name,
};
pub use hierlock_engine::{Row, Value, error_message};
pub(crate) use pool::PooledConnection;
pub(crate) use schema::{Schema, diagnosed, failed};
pub use transaction::{AnyTransaction, Transaction};

use crate::error::{Error, Result, UrlError};
#[cfg(feature = "toolbox")]
use crate::handover::{CancellationToken, Handover};
use crate::retry::{RetryPolicy, retry};
#[cfg(feature = "_server")]
use hierlock_engine::{Dialect, Pool, PoolSettings, Purpose, ServerAddress};
use hierlock_engine::{TaskTracker, UrlUse, check_parameters};
use pool::DatabasePool;
#[cfg(feature = "_server")]
use pool::ProgramServer;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// How long [`Database::close`] waits for what is finished by tasks.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

const TRANSACTION_RETRIES: RetryPolicy = RetryPolicy::with_attempts(20);

/// A database, with connections to share. Clones share them too.
#[derive(Clone)]
pub struct Database {
    pool: DatabasePool,
    tasks: TaskTracker,
}

/// Chooses how a database is connected to; made by [`Database::builder`].
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "only servers use them"))]
#[must_use = "nothing is connected until `connect` is called"]
pub struct DatabaseBuilder {
    connections: usize,
    answer_limit: Duration,
}

impl DatabaseBuilder {
    /// Sets how many connections are opened to a server at most; 10 by default.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// Sets after how long without an answer a server is asked on another connection what it does; 5 s by default.
    /// A statement that it works on, or that waits for a lock, takes its time. One whose answer was lost fails.
    pub fn answer_limit(self, limit: Duration) -> Self {
        Self { answer_limit: limit, ..self }
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
            return self.connect_server(url).await;
        }
        Err(UrlError::Database { url: url.into() }.into())
    }

    #[cfg(feature = "_server")]
    async fn connect_server(self, url: &str) -> Result<Database> {
        let unreadable = |error: url::ParseError| UrlError::Server { why: error.to_string() };
        let address = ServerAddress::from_url(&url::Url::parse(url).map_err(unreadable)?)?;
        let settings = PoolSettings {
            connections: self.connections,
            answer_limit: self.answer_limit,
            purpose: Purpose::Database,
            ..PoolSettings::default()
        };
        let pool = Pool::new(address, settings);
        // Fails at once if nobody is there, with what is wrong.
        pool.give_back(pool.connect().await?);
        Ok(DatabasePool::Own(pool).into())
    }
}

impl Database {
    /// Connects to `mysql:`, `mariadb:` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or opens
    /// `sqlite:PATH`, which is made if it is not there.
    ///
    /// A program that has a pool already makes a database from it: `Database::from(pool)`. Fails with
    /// [`is_usage`](crate::Error::is_usage) if the URL is none of these or has an unknown parameter.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Begins to choose how to connect.
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
    /// use, or on SQLite another writer does not end.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing open.
    pub async fn begin(&self) -> Result<Transaction> {
        let begun = Transaction::begin(self.lend().await?, "").await;
        Ok(begun.map_err(failed("begin a transaction"))?.0)
    }

    async fn lend(&self) -> Result<PooledConnection> {
        self.pool.connection().await.map_err(failed("connect to the database"))
    }

    /// Returns the time by the database's clock, which all times of the toolbox are of.
    pub async fn now(&self) -> Result<SystemTime> {
        let sql = format!("SELECT {}", self.driver().now_ms());
        let rows = self.fetch(failed("ask for the time"), &sql, &[]).await?;
        Ok(time_from_ms(rows.first().map_or(Ok(0), |row| row.int(0))?))
    }

    /// Runs a query by itself, outside of any transaction: on SQLite it waits for no writer. A `?` is a place for a
    /// value, as in [`Transaction::execute`].
    pub async fn query(
        &self,
        sql: &str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>> {
        let values: Vec<Value> = values.into_iter().collect();
        self.fetch(failed("run a query"), sql, &values).await
    }

    /// Runs a whole transaction of ours on tables of a schema, and again if it loses a race. Statements without values
    /// that come `first` are sent along with BEGIN, in one round trip; `work` is given their rows. It may be called
    /// several times, and returns its result with the transaction, which is committed or rolled back.
    ///
    /// # Cancel safety
    /// Dropped during COMMIT it may have happened; before, nothing has.
    pub(crate) async fn run<T, W: Future<Output = (Result<T>, Transaction)>>(
        &self,
        (schema, first): (Schema, &str),
        work: impl Fn(Transaction, Vec<Row>) -> W,
    ) -> Result<T> {
        let done = retry(TRANSACTION_RETRIES, async |_| {
            let begun = Transaction::begin(self.lend().await?, first).await;
            let (tx, rows) = begun.map_err(schema.failed("begin a transaction"))?;
            match work(tx, rows).await {
                (Ok(done), tx) => tx.commit().await.map(|()| done),
                (Err(error), tx) => {
                    // If it cannot be rolled back its connection is closed, which does the same.
                    let _ = tx.rollback().await;
                    Err(error)
                }
            }
        });
        diagnosed(self, done.await.map_err(|error| error.last)).await
    }

    /// The same for work that begins its transaction with [`DatabaseConnection::begin_packet`] and ends it in its last
    /// packet, which saves two round trips. It returns the connection, which is closed if it fails.
    pub(crate) async fn send<T, W: Future<Output = Result<(T, PooledConnection)>>>(
        &self,
        work: impl Fn(PooledConnection) -> W,
    ) -> Result<T> {
        let done = retry(TRANSACTION_RETRIES, async |_| {
            let (done, connection) = work(self.lend().await?).await?;
            connection.give_back();
            Ok(done)
        });
        diagnosed(self, done.await.map_err(|error| error.last)).await
    }

    /// Runs one statement that is a transaction by itself, and again if it loses a race. `failed` makes its error.
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
        diagnosed(self, done.await.map_err(|error| failed(error.last))).await
    }

    /// The same for one that returns rows.
    pub(crate) async fn fetch(
        &self,
        failed: impl FnOnce(sqlx::Error) -> Error,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>> {
        diagnosed(self, self.rows(sql, values).await.map_err(failed)).await
    }

    async fn rows(&self, sql: &str, values: &[Value]) -> sqlx::Result<Vec<Row>> {
        let rows = retry(TRANSACTION_RETRIES, async |_| {
            let mut connection = self.pool.connection().await?;
            let rows = connection.connection().fetch(sql, values.iter().cloned()).await;
            connection.end_statement(rows).await
        });
        rows.await.map_err(|error| error.last)
    }

    /// A pool of one connection to the same database, beside those that are shared, on PostgreSQL.
    #[cfg(all(feature = "postgres", feature = "toolbox"))]
    pub(crate) fn listener(&self) -> Option<sqlx::PgPool> {
        let options = match &self.pool {
            DatabasePool::Own(pool) => match &pool.address {
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

    /// Returns what a SELECT ends with that locks its rows: ` FOR UPDATE`, or nothing on SQLite, where a transaction of
    /// [`begin`](Self::begin) is the only writer.
    pub fn for_update(&self) -> &'static str {
        if self.driver() == Driver::Sqlite { "" } else { " FOR UPDATE" }
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Runs work that a task finishes if the caller goes away: no statement is left half done on a connection.
    #[cfg(feature = "toolbox")]
    pub(crate) fn run_to_end<W: Future<Output: Send> + Send + 'static>(
        &self,
        work: impl FnOnce(CancellationToken) -> W,
    ) -> Handover<W::Output> {
        Handover::new(Handle::current(), &self.tasks, work)
    }

    /// Waits until tasks have finished what callers have dropped halfway, such as an acquire of a lease, which is given
    /// back, for at most 10 seconds; then ends all connections, after what is under way on them. Call it before a
    /// program ends.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_LIMIT, self.tasks.wait_until_idle()).await;
        self.pool.close().await;
    }
}

/// A time as the database counts it: milliseconds since 1970 in UTC.
pub(crate) fn time_from_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl From<DatabasePool> for Database {
    fn from(pool: DatabasePool) -> Self {
        Self { pool, tasks: TaskTracker::default() }
    }
}

#[cfg(feature = "mysql")]
impl From<sqlx::MySqlPool> for Database {
    fn from(pool: sqlx::MySqlPool) -> Self {
        let options = pool.connect_options().as_ref().clone();
        let server = ProgramServer::new(ServerAddress::mysql(Dialect::Mysql, options));
        DatabasePool::Mysql(pool, server).into()
    }
}

#[cfg(feature = "postgres")]
impl From<sqlx::PgPool> for Database {
    fn from(pool: sqlx::PgPool) -> Self {
        let options = pool.connect_options().as_ref().clone();
        let server = ProgramServer::new(ServerAddress::postgres(options));
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
