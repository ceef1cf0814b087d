//! The client: opens a URL and locks nodes.

use crate::backend::{AnyBackend, Backend};
use crate::error::UrlError;
use crate::{Builder, Guard, Hierarchy, Holder, Mode, Plan, Request, Result, Target};
use hierlock_engine::{Dialect, UrlUse, check_parameters};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The memory, file or server that has the locks of a URL.
pub(crate) enum Location<'a> {
    /// `memory:` with its name, which may be empty.
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

/// Locks on the nodes of a tree: every ancestor shared, the node itself exclusive. Clones are cheap and share
/// everything.
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
/// `B` is the backend; by default the backend of any URL. A client of a known backend has the methods of that backend: a
/// client made by [`connect_sql`](Self::connect_sql) has [`acquire_in`](Self::acquire_in), and its guards have
/// [`transaction`](Guard::transaction).
#[derive(Debug)]
pub struct Hierlock<B: Backend = AnyBackend> {
    pub(crate) backend: Arc<B>,
}

impl<B: Backend> Clone for Hierlock<B> {
    fn clone(&self) -> Self {
        Self { backend: self.backend.clone() }
    }
}

impl Hierlock {
    /// Opens a lock URL, for the tree `user → account → resource`.
    ///
    /// | URL | locks |
    /// |---|---|
    /// | `memory:` | in this process, among the clones of the returned client |
    /// | `memory:NAME` | in this process, among all clients with that name |
    /// | `file:PATH` | among all processes of this host that use that path (Linux) |
    /// | `postgres://…` | among all clients of that database; nothing has to be set up |
    /// | `mysql://…`, `mariadb://…` | the same, on rows that [`sql::provision`](crate::sql) has inserted |
    ///
    /// # Errors
    /// A URL that is none of these or has an unknown parameter, or a file that cannot be opened or locked.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Hierarchy::default()).await
    }

    /// Opens a lock URL for another tree. All clients that share locks must have the same tree.
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

    /// Returns a builder with the options of a client: the tree, and all parameters of a URL.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<B: Backend> Hierlock<B> {
    /// Makes a client of a backend: one of [hierlock's](crate::backend), or the program's own.
    pub fn with_backend(backend: B) -> Self {
        Self { backend: Arc::new(backend) }
    }

    getters! { self:
        /// Returns the backend.
        backend -> &B = &self.backend;
        /// Returns the tree.
        hierarchy -> &Hierarchy = self.backend.hierarchy();
        /// Returns warnings about the server, for example that the nodes of its cluster do not share their locks.
        warnings -> &[String] = self.backend.warnings();
        /// Returns all holders and waiters of this process, oldest first: their nodes, their age, and their blockers.
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
        holders -> Vec<Holder> = self.backend.holders();
    }

    /// Locks a node exclusively and waits without a limit. If the server restarts meanwhile, reconnects: by default for
    /// up to a minute (`reconnect_ms` in the URL).
    ///
    /// # Errors
    /// A target that does not fit into the tree, or a backend that fails.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue and releases the nodes that were already locked.
    pub async fn acquire(&self, target: Target) -> Result<Guard<B::Hold>> {
        self.request(target).acquire().await
    }

    /// Locks a node exclusively, or returns `None` if it is not free.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self, target: Target) -> Result<Option<Guard<B::Hold>>> {
        self.request(target).try_acquire().await
    }

    /// Locks several nodes of any levels exclusively, all together. Never deadlocks with other acquires.
    ///
    /// # Errors, and cancel safety
    /// As [`acquire`](Self::acquire). An empty list of targets is an error too.
    pub async fn acquire_all(
        &self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<Guard<B::Hold>> {
        self.request_all(targets).acquire().await
    }

    /// Locks several children of one node exclusively, for example resources of an account, like
    /// [`acquire_all`](Self::acquire_all).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, Target};
    /// let locks = Hierlock::connect("memory:").await?;
    /// let guard = locks.acquire_children(&Target::account("u1", "a1")?, ["r2", "r1"]).await?;
    /// assert_eq!(guard.targets().len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors, and cancel safety
    /// As [`acquire_all`](Self::acquire_all). An ID that is empty or too long is an error, and so is a parent that is a
    /// leaf.
    pub async fn acquire_children<I: AsRef<str>>(
        &self,
        parent: &Target,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Guard<B::Hold>> {
        let children = ids.into_iter().map(|id| parent.child(id.as_ref()));
        self.acquire_all(children.collect::<Result<Vec<_>>>()?).await
    }

    /// Returns a request, to which a mode, a deadline and a name can be added.
    pub fn request(&self, target: Target) -> Request<&Hierlock<B>> {
        self.request_all([target])
    }

    /// Returns a request for several nodes together.
    pub fn request_all(&self, targets: impl IntoIterator<Item = Target>) -> Request<&Hierlock<B>> {
        Request::new(self, targets)
    }

    /// Returns the slots that an acquire would lock, in order. Locks nothing.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self, targets: impl IntoIterator<Item = Target>, mode: Mode) -> Result<Plan> {
        self.request_all(targets).mode(mode).plan()
    }

    /// Waits, at most for `limit`, until the server has nothing left of what this client gave up: the locks of dropped
    /// guards, the waits of dropped acquires, and the sessions of guards that were lost. Then closes idle connections.
    /// **Call it before a program ends**, above all after [`lost`](Guard::lost): a task ends the session of a lost
    /// connection on the server. Without that task, the server keeps the lock until its TCP connection times out, which
    /// can take hours.
    ///
    /// A server that refuses connections three times in a row counts as stopped. Guards that are held stay held, and the
    /// client can be used again. For `memory:` and `file:` there is nothing to wait for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, Target};
    /// # use std::time::Duration;
    /// let locks = Hierlock::connect("memory:").await?;
    /// drop(locks.acquire(Target::user("u1")?).await?);
    /// locks.close(Duration::from_secs(10)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_timeout`](crate::Error::is_timeout): something is left on the server. The cleanup continues as long as a clone
    /// of this client and the runtime live.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn close(&self, limit: Duration) -> Result<()> {
        self.backend.close(limit).await
    }
}
