//! The API of clients of a server beyond that of any backend: options, constructors, and locks in transactions.

use super::{
    Contention, DriverConnection, Exclusion, GuardTransaction, InTransaction, LockServer,
    ProgramPool, Scope, SqlBackend, SqlHold, Strategy, exclusion,
};
use crate::backend::AnyBackend;
use crate::{Buckets, Builder, Guard, Hierlock, Request, Result, SlotMode, Target};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

impl Builder {
    setters! {
        /// Sets how nodes map to slots. By default advisory keys on PostgreSQL, and striped rows on other servers. In a
        /// URL: `strategy`.
        strategy(strategy: Strategy) => options.strategy: Some(strategy);
        /// Sets the number of buckets of a level. By default that of the lock table; connecting fails if the two
        /// differ. In a URL: `buckets`.
        buckets(buckets: Buckets) => options.buckets: Some(buckets);
        /// Sets the lock table. Locks in different tables are independent of each other. In a URL: `table`.
        table(table: impl Into<String>) => options.table: Some(table.into());
        /// Sets the number of holds at a time, each on its own connection. By default 10. In a URL: `connections`.
        connections(connections: usize) => options.connections: Some(connections);
        /// Sets the interval of the check that the sessions of holds are alive. By default a second. In a URL:
        /// `keep_alive_ms`.
        keep_alive(interval: Duration) => options.keep_alive_ms: Some(interval);
        /// Sets the limit for answers of the server to statements that wait for no lock. By default 5 seconds. In a
        /// URL: `silence_ms`.
        answer_timeout(timeout: Duration) => options.silence_ms: Some(timeout);
        /// Sets the time after which the server ends the sessions of a silent client, and releases their locks. By
        /// default hours, or never. At least three times [`keep_alive`](Self::keep_alive). In a URL:
        /// `client_silence_ms`.
        client_silence(limit: Duration) => options.client_silence_ms: Some(limit);
        /// Sets how long an acquire without a deadline waits for a server that does not answer. By default a minute.
        /// With zero no acquire waits for that. In a URL: `reconnect_ms`.
        reconnect(limit: Duration) => options.reconnect_ms: Some(limit);
        /// Sets InnoDB's own lock wait timeout, after which hierlock starts the wait again. By default never. In a URL:
        /// `lock_wait_timeout`.
        lock_wait_timeout(timeout: Duration) => options.lock_wait_timeout: Some(timeout);
        /// Sets the name of the application, which the server shows for its sessions: see
        /// [`ClientIdentity`](super::ClientIdentity). In a URL: `application`.
        application(application: impl Into<String>) => options.application: Some(application.into());
        /// Sets the name of the program, which the server shows for its sessions. By default its file name.
        program(program: impl Into<String>) => options.program: Some(program.into());
        /// Sets whether advisory keys belong to a transaction or a session. In a URL: `scope`.
        scope(scope: Scope) => options.scope: Some(scope);
        /// Sets whether connecting tests that locks exclude each other on this server, and fails if they do not: see
        /// [`Hierlock::check_exclusion`]. By default false. In a URL: `check_exclusion=true`.
        check_exclusion(check: bool) => options.check_exclusion: Some(check);
    }

    /// Opens the URL of a server, for locks in transactions: see [`Hierlock::connect_sql`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect); also a URL of another backend.
    pub async fn connect_sql(self, url: &str) -> Result<Hierlock<SqlBackend>> {
        let server = LockServer::parse(url, self.options, self.hierarchy)?;
        SqlBackend::connect(server).await.map(Hierlock::with_backend)
    }

    /// Opens the server of the program's own pool: see [`Hierlock::beside`].
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> hierlock::Result<()> {
    /// use hierlock::Hierlock;
    /// use hierlock::sql::Strategy;
    ///
    /// let locks = Hierlock::builder().strategy(Strategy::PerId).connections(4).beside(&pool).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn beside<P: ProgramPool>(self, pool: &P) -> Result<Hierlock<SqlBackend>> {
        let server = self.options.at(pool.address(), self.hierarchy)?;
        SqlBackend::connect(server).await.map(Hierlock::with_backend)
    }
}

impl From<Hierlock<SqlBackend>> for Hierlock {
    fn from(locks: Hierlock<SqlBackend>) -> Self {
        Hierlock::with_backend(AnyBackend::Sql(locks.backend))
    }
}

impl Hierlock {
    /// Returns a client that can lock in transactions, if this client locks on a server. Both share their sessions.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::Hierlock;
    /// assert!(Hierlock::connect("memory:").await?.as_sql().is_none());
    /// # Ok(()) }
    /// ```
    pub fn as_sql(&self) -> Option<Hierlock<SqlBackend>> {
        match &*self.backend {
            AnyBackend::Sql(backend) => Some(Hierlock { backend: backend.clone() }),
            AnyBackend::Memory(_) | AnyBackend::File(_) => None,
        }
    }
}

impl Hierlock<SqlBackend> {
    /// Opens the URL of a server, for the tree `user → account → resource`. This client can also lock
    /// [in transactions](Self::acquire_in).
    ///
    /// # Errors
    /// As [`connect`](Hierlock::connect); also a URL of another backend.
    pub async fn connect_sql(url: &str) -> Result<Self> {
        Builder::default().connect_sql(url).await
    }

    /// Opens the server of the program's own pool: with the address, user and TLS of the pool, but **with separate
    /// connections**. A holder that waited for a connection of the pool could hang the whole service.
    /// [`Builder::beside`] is the same with options.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> hierlock::Result<()> {
    /// let locks = hierlock::Hierlock::beside(&pool).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Hierlock::connect).
    pub async fn beside<P: ProgramPool>(pool: &P) -> Result<Self> {
        Builder::default().beside(pool).await
    }

    /// Returns how often acquires of this client waited, and how often for another node that has the same bucket.
    pub fn contention(&self) -> Contention {
        *self.backend.pool.contention.lock()
    }

    /// Tests whether locks exclude each other on this server: two sessions take shared and exclusive locks on a free slot,
    /// and the server must list that they wait for each other. Some servers accept such locks and do nothing.
    ///
    /// Takes milliseconds and three connections. Another client that wants the slot at that moment waits as long. The test
    /// writes nothing and releases all its locks.
    ///
    /// ```no_run
    /// # async fn example() -> hierlock::Result<()> {
    /// use hierlock::Hierlock;
    ///
    /// let locks = Hierlock::connect_sql("postgres://me@localhost/app").await?;
    /// assert!(locks.check_exclusion().await?.is_shown());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The server fails, or the account may not lock.
    ///
    /// # Cancel safety
    /// If the future is dropped, its sessions are ended on the server.
    pub async fn check_exclusion(&self) -> Result<Exclusion> {
        let pool = &self.backend.pool;
        let checked = exclusion::check(pool, &self.backend.scheme()).await;
        checked.map_err(|error| error.at(&pool.server.address))
    }

    /// Locks nodes in the caller's own transaction, until the transaction ends. **The recommended way** where the data is
    /// in the same database: a lost connection loses lock and work together, and one connection is enough.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use hierlock::{Hierlock, Target};
    ///
    /// let locks = Hierlock::connect_sql("postgres://me@localhost/app").await?;
    /// let mut tx = pool.begin().await?;
    /// locks.acquire_in(&mut tx, [Target::account("u1", "a1")?]).await?;
    /// sqlx::query("UPDATE accounts SET balance = balance - 10 WHERE id = 'a1'")
    ///     .execute(&mut *tx)
    ///     .await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Lock first, then work: a transaction that has changed rows before it locks can deadlock with others.
    ///
    /// # Errors
    /// As [`acquire_all`](Self::acquire_all); [`transaction_state`](crate::Error::transaction_state) returns whether the
    /// transaction can continue.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait on the server. Locks that were taken stay until the transaction ends.
    pub async fn acquire_in<T: InTransaction>(
        &self,
        transaction: &mut T,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        self.request_all(targets).acquire_in(transaction).await
    }
}

impl Request<&Hierlock<SqlBackend>> {
    /// Waits until **the caller's own transaction** holds all locks, and returns their modes. They are held until the
    /// transaction ends.
    ///
    /// # Errors, and cancel safety
    /// As [`Hierlock::acquire_in`].
    pub async fn acquire_in<T: InTransaction>(
        self,
        transaction: &mut T,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        let (locks, request) = self.begin();
        let backend = &locks.backend;
        let acquirer = backend.acquirer(request, backend.scheme(), CancellationToken::new())?;
        Box::pin(acquirer.acquire_in(transaction)).await?;
        Ok(acquirer.plan.steps().map(|step| (step.target, step.mode)).collect())
    }
}

impl From<Guard<SqlHold>> for Guard {
    fn from(guard: Guard<SqlHold>) -> Self {
        Guard { hold: guard.hold.into() }
    }
}

impl Guard<SqlHold> {
    /// Lends the transaction that holds the locks to the work: a lost connection loses lock and work together, and no
    /// second connection is needed. `C` is [`sqlx::MySqlConnection`] (also for MariaDB) or [`sqlx::PgConnection`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use hierlock::{Hierlock, Target};
    /// use sqlx::PgConnection;
    ///
    /// let locks = Hierlock::connect_sql("postgres://me@localhost/app").await?;
    /// let mut guard = locks.acquire(Target::account("u1", "a1")?).await?;
    /// let mut work = guard.transaction::<PgConnection>().await?;
    /// sqlx::query("UPDATE accounts SET balance = balance - 10 WHERE id = 'a1'")
    ///     .execute(&mut *work)
    ///     .await?;
    /// drop(work);
    /// guard.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// While the transaction is lent, [`lost`](Self::lost) notices nothing; the statements of the work fail instead. If the
    /// work ends the transaction itself, the lock is lost.
    ///
    /// # Errors
    /// `C` is the connection type of another driver; the lock has `scope=session` and so no transaction of its own; or
    /// [`is_lost`](crate::Error::is_lost).
    pub async fn transaction<C: DriverConnection>(&mut self) -> Result<GuardTransaction<'_, C>> {
        self.hold.lend().await
    }

    /// Commits the work in the lock's own transaction, and releases the lock with it. Releasing or dropping the guard
    /// instead undoes the work.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction). If the work has failed, nothing is committed. If the connection ends during
    /// COMMIT, it is unknown whether the work is committed.
    ///
    /// # Cancel safety
    /// Commits even if the future is dropped after its first poll.
    pub async fn commit(self) -> Result<()> {
        self.hold.commit().await
    }
}
