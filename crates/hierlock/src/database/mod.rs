//! Databases for the toolbox: optimistic versions, leases and
//! queues keep their rows in MySQL, MariaDB, PostgreSQL, or in a file of SQLite, where
//! nothing needs to be installed.
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
//! # let file = directory.path().join("app.db");
//! let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
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

mod answer;
mod caller;
mod connection;
mod pooled;
#[cfg(feature = "_server")]
mod program_server;
mod schema;
mod transaction;

pub(crate) use answer::{answered, heartbeat_limit};
pub use caller::AnyTransaction;
pub(crate) use connection::DatabaseConnection;
pub(crate) use hierlock_engine::{
    Driver, ExecuteResult, LockWaitPolicy, RowLock, check_name, check_table_name,
};
pub use hierlock_engine::{Row, Value, error_message};
pub(crate) use schema::{Schema, diagnosed, failed};
pub use transaction::Transaction;

use crate::error::{Result, UrlError};
use crate::retry::{RetryPolicy, retry};
use futures_util::future::BoxFuture;
#[cfg(feature = "_server")]
use hierlock_engine::{Dialect, Pool, PoolSettings, Purpose, ServerAddress};
use hierlock_engine::{TaskTracker, UrlUse, check_parameters};
use pooled::{LentConnection, PooledConnection};
#[cfg(feature = "_server")]
use program_server::{ProgramServer, ProgramSession};
#[cfg(feature = "postgres")]
use sqlx::PgPool;
use std::fmt;
#[cfg(feature = "_server")]
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// How long a caller waits for a connection while all are in use.
#[cfg(feature = "_server")]
const CONNECTION_WAIT: Duration = Duration::from_secs(30);

/// How long a writer waits for another on SQLite before it is told that the file is busy; then it is
/// tried again.
#[cfg(feature = "sqlite")]
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long [`Database::close`] waits for what is finished by tasks.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A connection of SQLite that was idle for longer is asked whether it is still there before it is lent again.
#[cfg(feature = "sqlite")]
const MAX_IDLE_WITHOUT_PING: Duration = Duration::from_secs(1);

/// How often a transaction of ours is tried.
const TRANSACTION_RETRIES: RetryPolicy = RetryPolicy::with_attempts(20);

/// A database, with connections to share. Clones share them too.
#[derive(Clone)]
pub struct Database {
    pool: DatabasePool,
    /// The server of a program's pool.
    #[cfg(feature = "_server")]
    program_server: Option<Arc<ProgramServer>>,
    tasks: TaskTracker,
}

/// Where the connections come from: sessions of our own, with the settings that we rely on; a program's pool; or a file of
/// SQLite.
#[derive(Clone)]
enum DatabasePool {
    #[cfg(feature = "_server")]
    Own(Arc<Pool>),
    #[cfg(feature = "mysql")]
    Mysql(sqlx::MySqlPool),
    #[cfg(feature = "postgres")]
    Postgres(PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

/// Chooses how a database is connected to; made by [`Database::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is connected until `connect` is called"]
pub struct DatabaseBuilder {
    connections: usize,
    answer_limit: Duration,
}

impl DatabaseBuilder {
    /// Sets how many connections are opened to a server at most; 10 by default.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Sets how long a server may take to answer before it is asked on another connection what it is doing; 5 seconds by
    /// default. A statement that the server works on, or that waits for a lock there, is waited for as long as it takes.
    /// One whose answer was lost on the way fails.
    pub fn answer_limit(mut self, limit: Duration) -> Self {
        self.answer_limit = limit;
        self
    }

    /// Connects, as [`Database::connect`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn connect(self, url: &str) -> Result<Database> {
        check_parameters(url, UrlUse::Driver)?;
        let scheme = url.split_once(':').unwrap_or_default().0;
        #[cfg(feature = "sqlite")]
        if scheme == "sqlite" {
            return open(url).await.map(Database::from);
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
        Ok(Database::new(DatabasePool::Own(pool)))
    }
}

impl Database {
    fn new(pool: DatabasePool) -> Self {
        Self {
            pool,
            #[cfg(feature = "_server")]
            program_server: None,
            tasks: TaskTracker::default(),
        }
    }

    /// Connects to `mysql:`, `mariadb:` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or opens
    /// `sqlite:PATH`, which is made if it is not there.
    ///
    /// A program that has a pool already makes a database from it: `Database::from(pool)`.
    ///
    /// # Errors
    /// If the URL is none of these or has a parameter that is unknown
    /// ([`is_usage`](crate::Error::is_usage)), or nobody answers.
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
        match &self.pool {
            #[cfg(feature = "_server")]
            DatabasePool::Own(pool) => pool.address.dialect().driver(),
            #[cfg(feature = "mysql")]
            DatabasePool::Mysql(_) => Driver::Mysql,
            #[cfg(feature = "postgres")]
            DatabasePool::Postgres(_) => Driver::Postgres,
            #[cfg(feature = "sqlite")]
            DatabasePool::Sqlite(_) => Driver::Sqlite,
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
        Ok(self.begin_with(None).await?.0)
    }

    async fn begin_with(&self, first: Option<(Schema, &str)>) -> Result<(Transaction, Vec<Row>)> {
        const DOING: &str = "begin a transaction";
        let connection = self.connection().await.map_err(failed("connect to the database"))?;
        match first {
            None => Transaction::begin(connection, "").await.map_err(failed(DOING)),
            Some((schema, sql)) => {
                Transaction::begin(connection, sql).await.map_err(schema.failed(DOING))
            }
        }
    }

    async fn connection(&self) -> Result<PooledConnection, sqlx::Error> {
        let connection = match &self.pool {
            #[cfg(feature = "_server")]
            DatabasePool::Own(pool) => {
                let permit = tokio::time::timeout(CONNECTION_WAIT, pool.permit()).await;
                let permit = permit.map_err(|_| sqlx::Error::PoolTimedOut)?;
                let permit = permit.ok_or(sqlx::Error::PoolClosed)?;
                let session = pool.session().await.map_err(|error| error.into_driver_error())?;
                LentConnection::Own { session, pool: pool.clone(), _permit: permit }
            }
            #[cfg(feature = "mysql")]
            DatabasePool::Mysql(pool) => LentConnection::Mysql(pool.acquire().await?),
            #[cfg(feature = "postgres")]
            DatabasePool::Postgres(pool) => LentConnection::Postgres(pool.acquire().await?),
            #[cfg(feature = "sqlite")]
            DatabasePool::Sqlite(pool) => LentConnection::Sqlite(pool.acquire().await?),
        };
        Ok(PooledConnection {
            connection: Some(connection),
            #[cfg(feature = "_server")]
            program: (self.program_server.clone())
                .map(|server| ProgramSession { server, id: None }),
            runtime: Handle::current(),
        })
    }

    /// Returns the time by the database's clock, which all times of the toolbox are of.
    ///
    /// # Errors
    /// If there is no connection to be had.
    pub async fn now(&self) -> Result<SystemTime> {
        let sql = format!("SELECT {}", self.driver().now_ms());
        let rows = self.fetch(&sql, &[]).await.map_err(failed("ask for the time"))?;
        Ok(time_from_ms(rows.first().map_or(Ok(0), |row| row.int(0))?))
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
        self.run_with(None, |tx, _| work(tx)).await
    }

    /// The same. Statements without values that come `first`, on tables of a schema, are sent along with BEGIN, in one
    /// round trip; `work` is given their rows.
    pub(crate) async fn run_with<T>(
        &self,
        first: Option<(Schema, &str)>,
        work: impl for<'tx> Fn(&'tx mut Transaction, Vec<Row>) -> BoxFuture<'tx, Result<T>>,
    ) -> Result<T> {
        let done = retry(TRANSACTION_RETRIES, |_| {
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
        diagnosed(self, done.await.map_err(|error| error.last)).await
    }

    /// The same for work that begins its transaction with [`DatabaseConnection::begin_packet`] and ends it in its last
    /// packet, which saves two round trips. If it fails, its connection is closed.
    pub(crate) async fn send<T>(
        &self,
        work: impl for<'c> Fn(DatabaseConnection<'c>) -> BoxFuture<'c, Result<T>>,
    ) -> Result<T> {
        let done = retry(TRANSACTION_RETRIES, |_| {
            let work = &work;
            async move {
                let connection = self.connection().await;
                let mut connection = connection.map_err(failed("connect to the database"))?;
                let done = work(connection.connection()).await?;
                connection.give_back();
                Ok(done)
            }
        });
        diagnosed(self, done.await.map_err(|error| error.last)).await
    }

    /// Runs one statement that is a transaction by itself, and again if it loses a race.
    pub(crate) async fn execute(
        &self,
        sql: &str,
        values: &[Value],
    ) -> Result<ExecuteResult, sqlx::Error> {
        let done = retry(TRANSACTION_RETRIES, |_| async {
            let mut connection = self.connection().await?;
            let done = connection.connection().execute(sql, values.iter().cloned()).await;
            connection.end_statement(done).await
        });
        done.await.map_err(|error| error.last)
    }

    /// The same for one that returns rows.
    pub(crate) async fn fetch(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, sqlx::Error> {
        let rows = retry(TRANSACTION_RETRIES, |_| async {
            let mut connection = self.connection().await?;
            let rows = connection.connection().fetch(sql, values.iter().cloned()).await;
            connection.end_statement(rows).await
        });
        rows.await.map_err(|error| error.last)
    }

    /// A pool of one connection to the same database, beside those that are shared; None unless it is
    /// PostgreSQL.
    #[cfg(all(feature = "postgres", feature = "toolbox"))]
    pub(crate) fn listener(&self) -> Option<PgPool> {
        let options = match &self.pool {
            DatabasePool::Own(pool) => match &pool.address {
                ServerAddress::Postgres(options) => (**options).clone(),
                #[cfg(feature = "mysql")]
                ServerAddress::Mysql(..) => return None,
            },
            DatabasePool::Postgres(pool) => pool.connect_options().as_ref().clone(),
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

    /// Returns what a SELECT ends with that locks its rows: ` FOR UPDATE`, or nothing on SQLite, where a
    /// transaction of [`begin`](Self::begin) is the only writer.
    pub fn for_update(&self) -> &'static str {
        if self.driver() == Driver::Sqlite { "" } else { " FOR UPDATE" }
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
            #[cfg(feature = "_server")]
            DatabasePool::Own(pool) => {
                pool.shut_down(CLOSE_LIMIT).await;
                // What is still there is ended when the server notices.
                let _ = pool.close(CLOSE_LIMIT).await;
            }
            #[cfg(feature = "mysql")]
            DatabasePool::Mysql(pool) => pool.close().await,
            #[cfg(feature = "postgres")]
            DatabasePool::Postgres(pool) => pool.close().await,
            #[cfg(feature = "sqlite")]
            DatabasePool::Sqlite(pool) => pool.close().await,
        }
        #[cfg(feature = "_server")]
        if let Some(server) = &self.program_server {
            let _ = server.pool.close(CLOSE_LIMIT).await;
        }
    }
}

/// A time as the database counts it: milliseconds since 1970 in UTC.
pub(crate) fn time_from_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Opens a file of SQLite, in which readers do not wait for the writer.
#[cfg(feature = "sqlite")]
async fn open(url: &str) -> Result<sqlx::SqlitePool> {
    use sqlx::Connection as _;
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
    // It may hold a password, as a mistake: why it cannot be read is all that is said of it.
    let unreadable =
        |error: sqlx::Error| crate::Error::from(UrlError::Server { why: error_message(&error) });
    let options: SqliteConnectOptions = url.parse().map_err(unreadable)?;
    let server = options.get_filename().display().to_string();
    let options = options
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = sqlx::pool::PoolOptions::new().test_before_acquire(false).before_acquire(
        |connection: &mut sqlx::SqliteConnection, meta| {
            Box::pin(async move {
                Ok(meta.idle_for < MAX_IDLE_WITHOUT_PING || connection.ping().await.is_ok())
            })
        },
    );
    let opened = pool.connect_with(options).await;
    opened.map_err(|source| hierlock_engine::ServerError::Connect { server, source }.into())
}

#[cfg(feature = "mysql")]
impl From<sqlx::MySqlPool> for Database {
    fn from(pool: sqlx::MySqlPool) -> Self {
        let options = pool.connect_options().as_ref().clone();
        let server = ProgramServer::new(ServerAddress::mysql(Dialect::Mysql, options));
        Self { program_server: Some(server), ..Self::new(DatabasePool::Mysql(pool)) }
    }
}

#[cfg(feature = "postgres")]
impl From<PgPool> for Database {
    fn from(pool: PgPool) -> Self {
        let server = ServerAddress::postgres(pool.connect_options().as_ref().clone());
        let server = ProgramServer::new(server);
        Self { program_server: Some(server), ..Self::new(DatabasePool::Postgres(pool)) }
    }
}

#[cfg(feature = "sqlite")]
impl From<sqlx::SqlitePool> for Database {
    fn from(pool: sqlx::SqlitePool) -> Self {
        Database::new(DatabasePool::Sqlite(pool))
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.driver()).finish()
    }
}
