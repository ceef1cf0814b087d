//! What a client of a server has beside that of any URL: its options, its constructors, and locks in transactions.

use super::{
    Connection, GuardTransaction, InTransaction, ProgramPool, Scope, SqlBackend, SqlHold, Strategy,
};
use crate::backend::AnyBackend;
use crate::{Buckets, Builder, Guard, Hierlock, Request, Result, SlotMode, Target};
use std::collections::BTreeMap;
use std::time::Duration;

impl Builder {
    /// How a node becomes a slot; by default advisory keys on PostgreSQL, else striped rows. In a URL: `strategy`.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.options.strategy = Some(strategy);
        self
    }

    /// How many buckets a level has; by default what the server says. Fails if the two differ. In a URL: `buckets`.
    pub fn buckets(mut self, buckets: Buckets) -> Self {
        self.options.buckets = Some(buckets);
        self
    }

    /// Another table, whose locks are independent of those in the default one. In a URL: `table`.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.options.table = Some(name.into());
        self
    }

    /// How many holds the client can have at a time, each on its own connection; by default 10. In a URL:
    /// `connections`.
    pub fn connections(mut self, most: usize) -> Self {
        self.options.connections = Some(most);
        self
    }

    /// How often the server is asked whether a hold is still there; by default each second. In a URL: `keep_alive_ms`.
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.options.keep_alive_ms = Some(every);
        self
    }

    /// How long a server may take to answer what it need not wait for; by default 5 seconds. In a URL: `silence_ms`.
    pub fn answer_timeout(mut self, limit: Duration) -> Self {
        self.options.silence_ms = Some(limit);
        self
    }

    /// After how long without a word from this client the server ends its sessions, with their locks; by default hours,
    /// or never. At least three times [`keep_alive`](Self::keep_alive). In a URL: `client_silence_ms`.
    pub fn client_silence(mut self, limit: Duration) -> Self {
        self.options.client_silence_ms = Some(limit);
        self
    }

    /// How long an acquire without a deadline waits for a server that does not answer; by default a minute. With zero
    /// no acquire waits for that. In a URL: `reconnect_ms`.
    pub fn reconnect(mut self, limit: Duration) -> Self {
        self.options.reconnect_ms = Some(limit);
        self
    }

    /// After how long InnoDB itself ends a wait, which then begins again; by default never. In a URL:
    /// `lock_wait_timeout`.
    pub fn lock_wait_timeout(mut self, limit: Duration) -> Self {
        self.options.lock_wait_timeout = Some(limit);
        self
    }

    /// What advisory keys belong to. In a URL: `scope`.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.options.scope = Some(scope);
        self
    }

    /// Opens the URL of a server, for locks in transactions: see [`Hierlock::connect_sql`].
    ///
    /// # Errors
    /// As [`connect`](Self::connect); also a URL that is no server's.
    pub async fn connect_sql(self, url: &str) -> Result<Hierlock<SqlBackend>> {
        let backend = SqlBackend::open(url, self.options, self.hierarchy).await?;
        Ok(Hierlock::with_backend(backend))
    }

    /// Locks on the server of a pool that the program has already: see [`Hierlock::beside`].
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
        let backend = SqlBackend::beside(pool, self.options, self.hierarchy).await?;
        Ok(Hierlock::with_backend(backend))
    }
}

impl From<Hierlock<SqlBackend>> for Hierlock {
    fn from(locks: Hierlock<SqlBackend>) -> Self {
        Hierlock::with_backend(AnyBackend::Sql(locks.backend))
    }
}

impl Hierlock {
    /// Returns this client as one that can lock in transactions, if it locks on a server. The two share everything.
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
    /// As [`connect`](Hierlock::connect); also a URL that is no server's.
    pub async fn connect_sql(url: &str) -> Result<Self> {
        Builder::default().connect_sql(url).await
    }

    /// Opens the server of a pool that the program has already: with the address, user and TLS of the pool, but **with
    /// connections of its own**. A holder that waited for a connection of the pool could hang the whole service.
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

    /// Locks nodes inside the caller's own transaction; they are freed when that ends. **The recommended way** where
    /// the data is in the same database: a lost connection loses lock and work together, and one connection is enough.
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
    /// As [`acquire_all`](Self::acquire_all); [`transaction_state`](crate::Error::transaction_state) tells what has
    /// become of the transaction.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait on the server; what was taken stays until the transaction ends.
    pub async fn acquire_in<T: InTransaction>(
        &self,
        transaction: &mut T,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        self.request_all(targets).acquire_in(transaction).await
    }
}

impl Request<&Hierlock<SqlBackend>> {
    /// Waits until all is held **by the caller's own transaction**, and returns how. It is held until that ends.
    ///
    /// # Errors, and cancel safety
    /// As [`Hierlock::acquire_in`].
    pub async fn acquire_in<T: InTransaction>(
        self,
        transaction: &mut T,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        let (locks, request) = self.begin();
        Box::pin(locks.backend.acquire_in(transaction, request)).await
    }
}

impl From<Guard<SqlHold>> for Guard {
    fn from(guard: Guard<SqlHold>) -> Self {
        Guard::new(guard.hold.into())
    }
}

impl Guard<SqlHold> {
    /// Lends the transaction that holds the locks, for the work to be done under them: a lost connection loses lock and
    /// work together, and no second connection is needed. `C` is [`sqlx::MySqlConnection`] (also for MariaDB) or
    /// [`sqlx::PgConnection`].
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
    /// Meanwhile [`lost`](Self::lost) notices nothing; the statements of the work fail instead. If the work ends the
    /// transaction itself, the lock is lost.
    ///
    /// # Errors
    /// The connection of another database, a lock with `scope=session`, which has no transaction of its own, or
    /// [`is_lost`](crate::Error::is_lost).
    pub async fn transaction<C: Connection>(&mut self) -> Result<GuardTransaction<'_, C>> {
        self.hold.lend().await
    }

    /// Commits what was done in the lock's own transaction, and frees the lock with it. Releasing or dropping the guard
    /// instead undoes the work.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction); also work that failed (then nothing is committed), and a connection that ends
    /// during COMMIT (then it is not known).
    ///
    /// # Cancel safety
    /// Once begun, it commits whether the future is dropped or not.
    pub async fn commit(self) -> Result<()> {
        self.hold.commit().await
    }
}
