//! The front door: from a URL to locks.

use crate::backend::{AnyBackend, Backend};
#[cfg(feature = "_server")]
use crate::backend::{SqlBackend, TransactionBackend};
use crate::builder::Builder;
use crate::error::{Result, UrlError};
use crate::guard::Guard;
use crate::hierarchy::Hierarchy;
use crate::mode::Mode;
#[cfg(feature = "_server")]
use crate::mode::SlotMode;
use crate::plan::{Claim, Plan};
use crate::request::Request;
use crate::snapshot::Holder;
#[cfg(feature = "_server")]
use crate::sql::{InTransaction, ProgramPool};
use crate::target::Target;
use hierlock_engine::{Dialect, UrlUse, check_parameters};
#[cfg(feature = "_server")]
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where a lock URL leads.
pub(crate) enum Location<'a> {
    /// By its name, which may be empty.
    Memory(&'a str),
    File(&'a Path),
    #[cfg(feature = "_server")]
    Server,
}

impl<'a> Location<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self> {
        check_parameters(url, UrlUse::Lock)?;
        match url.split_once(':') {
            Some(("memory", name)) => Ok(Location::Memory(name)),
            Some(("file", "" | "//")) => Err(UrlError::NoPath { url: url.into() }.into()),
            // `file:///x` is `/x`, as in any other URL.
            Some(("file", path)) => {
                Ok(Location::File(Path::new(path.strip_prefix("//").unwrap_or(path))))
            }
            #[cfg(feature = "_server")]
            Some((scheme, _)) if Dialect::from_scheme(scheme).is_some() => Ok(Location::Server),
            #[cfg(not(feature = "_server"))]
            Some((scheme, _)) if Dialect::from_scheme(scheme).is_some() => {
                Err(UrlError::NoDriver { url: url.into() }.into())
            }
            _ => Err(UrlError::Scheme { url: url.into() }.into()),
        }
    }
}

/// Locks on the nodes of a tree. Cheap to clone; clones share everything.
///
/// Locking a node takes every ancestor shared and the node itself exclusive, so a lock on an account
/// excludes every lock below it, and two resources of one account never wait for each other.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::{Hierlock, Target};
///
/// let locks = Hierlock::connect("memory:").await?;
/// let r1 = locks.acquire(Target::resource("u1", "a1", "r1")?).await?;
/// let r2 = locks.acquire(Target::resource("u1", "a1", "r2")?).await?; // does not wait
///
/// assert!(locks.try_acquire(Target::account("u1", "a1")?).await?.is_none());
/// r1.release().await?;
/// drop(r2);
/// assert!(locks.try_acquire(Target::account("u1", "a1")?).await?.is_some());
/// # Ok(()) }
/// ```
///
/// `B` is the backend; that of a client which was opened with a URL is the default, and can be any. A client of a known
/// backend can do what that backend can: one of [`connect_sql`](Self::connect_sql) has
/// [`acquire_in`](Self::acquire_in), and its guards have [`transaction`](Guard::transaction).
#[derive(Debug)]
pub struct Hierlock<B: Backend = AnyBackend> {
    pub(crate) backend: Arc<B>,
}

impl<B: Backend> Clone for Hierlock<B> {
    fn clone(&self) -> Self {
        Self { backend: self.backend.clone() }
    }
}

#[cfg(feature = "_server")]
impl From<Hierlock<SqlBackend>> for Hierlock {
    fn from(locks: Hierlock<SqlBackend>) -> Self {
        Hierlock::with_backend(AnyBackend::Sql(locks.backend))
    }
}

/// Opening whatever a URL leads to.
impl Hierlock {
    /// Opens a lock URL, for the tree `user → account → resource`.
    ///
    /// | URL | locks |
    /// |---|---|
    /// | `memory:` | in this process, among the clones of what this call returns |
    /// | `memory:NAME` | in this process, among all who give that name |
    /// | `file:PATH` | among all processes of this host that give that path (Linux) |
    /// | `postgres://…` | among all who connect to that database; nothing need be set up |
    /// | `mysql://…`, `mariadb://…` | the same, on rows that [`sql::provision`](crate::sql) has made |
    ///
    /// # Errors
    /// A URL that is none of these or has a parameter that is unknown, or a file that cannot be opened or
    /// locked.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Hierarchy::default()).await
    }

    /// Opens a lock URL for a tree of one's own. All who share the lock must have the same tree.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// use hierlock::{Hierarchy, Hierlock};
    ///
    /// let tree = Hierarchy::new(["org", "team", "project", "doc"])?;
    /// let locks = Hierlock::connect_with("memory:", tree.clone()).await?;
    /// let guard = locks.acquire(tree.parse("acme/search/ranking")?).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect); also a shared name that is in use with another tree.
    pub async fn connect_with(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        Self::builder().hierarchy(hierarchy).connect(url).await
    }

    /// Begins a client with options: the tree, and what the parameters of a URL say, as types.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same client, if it locks on a server: one that can lock in transactions. It shares everything with this one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::Hierlock;
    /// assert!(Hierlock::connect("memory:").await?.as_sql().is_none());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "_server")]
    pub fn as_sql(&self) -> Option<Hierlock<SqlBackend>> {
        match &*self.backend {
            AnyBackend::Sql(backend) => Some(Hierlock { backend: backend.clone() }),
            AnyBackend::Memory(_) | AnyBackend::File(_) => None,
        }
    }
}

/// Opening a database, for locks in transactions.
#[cfg(feature = "_server")]
impl Hierlock<SqlBackend> {
    /// Opens the URL of a server, for the tree `user → account → resource`. It can do what a client of
    /// [`connect`](Hierlock::connect) can, and lock [in transactions](Self::acquire_in).
    ///
    /// ```no_run
    /// # async fn example() -> hierlock::Result<()> {
    /// use hierlock::Hierlock;
    ///
    /// let locks = Hierlock::connect_sql("postgres://me@localhost/app").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Hierlock::connect); also a URL that is no server's.
    pub async fn connect_sql(url: &str) -> Result<Self> {
        Builder::default().connect_sql(url).await
    }

    /// Locks on the server of a pool that the program has already, with the same address, user and TLS,
    /// but **with connections of its own**: a holder that also needed a connection of the program's pool
    /// could hang the whole service. [`Builder::beside`] is the same with options.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> hierlock::Result<()> {
    /// use hierlock::Hierlock;
    ///
    /// let locks = Hierlock::beside(&pool).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Hierlock::connect).
    pub async fn beside<P: ProgramPool>(pool: &P) -> Result<Self> {
        Builder::default().beside(pool).await
    }
}

impl<B: Backend> Hierlock<B> {
    /// Locks on a backend that the program has made: one of [ours](crate::backend), or its own.
    pub fn with_backend(backend: B) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The tree.
    pub fn hierarchy(&self) -> &Hierarchy {
        self.backend.hierarchy()
    }

    /// Locks a node exclusively; waits as long as it takes. A server that is away meanwhile, because it restarts, is waited for
    /// as well, for a minute unless the URL says otherwise (`reconnect_ms`).
    ///
    /// # Errors
    /// A target that does not fit into the tree, or a backend that fails.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue and frees what was already taken.
    pub async fn acquire(&self, target: Target) -> Result<Guard<B::Hold>> {
        self.request(target).acquire().await
    }

    /// Locks a node exclusively if that needs no waiting.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); that it is not free is no error.
    pub async fn try_acquire(&self, target: Target) -> Result<Option<Guard<B::Hold>>> {
        self.request(target).try_acquire().await
    }

    /// Locks several nodes exclusively, of any levels, all together: without deadlock, however many
    /// others do the same in whatever order.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); also no target at all.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_all(
        &self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<Guard<B::Hold>> {
        self.request_all(targets).acquire().await
    }

    /// Locks several children of one node exclusively, without deadlock: resources of an account, or whatever the tree
    /// has below that node.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// use hierlock::{Hierlock, Target};
    ///
    /// let locks = Hierlock::connect("memory:").await?;
    /// let guard = locks.acquire_children(&Target::account("u1", "a1")?, ["r2", "r1"]).await?;
    /// assert_eq!(guard.targets().len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire_all`](Self::acquire_all); also an ID that is empty or too long, or a parent that is a leaf of the tree.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_children<I: AsRef<str>>(
        &self,
        parent: &Target,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Guard<B::Hold>> {
        let targets =
            ids.into_iter().map(|id| parent.child(id.as_ref())).collect::<Result<Vec<_>>>()?;
        self.acquire_all(targets).await
    }

    /// Begins a request: another mode, a deadline, a name.
    pub fn request(&self, target: Target) -> Request<&Hierlock<B>> {
        self.request_all([target])
    }

    /// Begins a request for several nodes together.
    pub fn request_all(&self, targets: impl IntoIterator<Item = Target>) -> Request<&Hierlock<B>> {
        Request::new(self, targets)
    }

    /// What an acquire would take, in order; touches nothing.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self, targets: impl IntoIterator<Item = Target>, mode: Mode) -> Result<Plan> {
        let claims: Vec<Claim> = targets.into_iter().map(|target| Claim { target, mode }).collect();
        self.backend.plan(&claims)
    }

    /// What is doubtful about the server: for example that it is one of a cluster whose nodes do not
    /// share their locks. Empty where there is nothing to say.
    pub fn warnings(&self) -> &[String] {
        self.backend.warnings()
    }

    /// Waits, no longer than `limit`, until a server keeps nothing that this client has given up: the locks of
    /// dropped guards, the waits of dropped acquires, and the sessions of guards that were lost. Then closes
    /// connections that are idle. **Call it before a program ends**, above all after
    /// [`lost`](Guard::lost): a lost connection may be one that only this side knows to be gone. The client ends its
    /// session on the server, from a task. If the program ends before that task does, the server keeps the lock until
    /// its own network gives up, which can take hours.
    ///
    /// A server that refuses connections three times in a row counts as ended, and its sessions with it. Guards that are held
    /// stay held, and the client can be used again. For `memory:` and `file:` there is nothing to wait for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, Target};
    /// use std::time::Duration;
    ///
    /// let locks = Hierlock::connect("memory:").await?;
    /// drop(locks.acquire(Target::user("u1")?).await?);
    /// locks.close(Duration::from_secs(10)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_timeout`](crate::Error::is_timeout): something is left there. It is still being tried as long as a clone of
    /// this client and the runtime live.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn close(&self, limit: Duration) -> Result<()> {
        self.backend.close(limit).await
    }

    /// Everybody in this process who holds or waits: what, for how long, and for whom. Oldest first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, Target};
    /// let locks = Hierlock::connect("memory:").await?;
    /// let guard = locks.request(Target::user("u1")?).named("nightly batch").acquire().await?;
    /// let holders = locks.holders();
    /// assert_eq!(holders[0].name.as_deref(), Some("nightly batch"));
    /// assert_eq!(holders[0].id, guard.id());
    /// # Ok(()) }
    /// ```
    pub fn holders(&self) -> Vec<Holder> {
        self.backend.holders()
    }
}

/// Where the backend is a database, and the client was opened as one ([`connect_sql`](Hierlock::connect_sql),
/// [`beside`](Hierlock::beside)).
#[cfg(feature = "_server")]
impl<B: TransactionBackend> Hierlock<B> {
    /// Locks nodes inside a transaction of the caller's own; they are freed when that ends. **The
    /// recommended way** where the data is in the same database: lock and data live and die together, a
    /// lost connection loses both, and no second connection is needed.
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
    /// Lock first, then work: whoever has changed rows before may deadlock with whoever locks first.
    ///
    /// # Errors
    /// As [`acquire_all`](Self::acquire_all); [`transaction_state`](crate::Error::transaction_state) tells
    /// what has become of the transaction.
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
