//! The options of a client, as types.

#[cfg(feature = "_server")]
use crate::backend::SqlBackend;
use crate::backend::{AnyBackend, FileBackend, MemoryBackend};
use crate::client::Location;
use crate::{Hierarchy, Hierlock, Result};
#[cfg(feature = "_server")]
use crate::{
    key::Buckets,
    sql::{Options, ProgramPool, Scope, Strategy},
};
#[cfg(feature = "_server")]
use std::{sync::Arc, time::Duration};

/// The options of a client, made by [`Hierlock::builder`].
///
/// All but [`hierarchy`](Self::hierarchy) are for servers, and are the same as the parameters of a URL. Giving one by
/// both is an error. They have no effect on `memory:` and `file:`, so a program can be tried out without a server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::{Hierarchy, Hierlock};
/// use std::time::Duration;
///
/// let locks = Hierlock::builder()
///     .hierarchy(Hierarchy::new(["org", "team", "project", "doc"])?)
///     .connections(4)
///     .keep_alive(Duration::from_millis(500))
///     .connect("memory:")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    hierarchy: Hierarchy,
    #[cfg(feature = "_server")]
    options: Options,
}

impl Builder {
    /// The tree; by default `user → account → resource`. All who share the locks must have the same.
    pub fn hierarchy(mut self, hierarchy: Hierarchy) -> Self {
        self.hierarchy = hierarchy;
        self
    }

    /// Opens a lock URL: see [`Hierlock::connect`].
    ///
    /// # Errors
    /// As there; also an option that is out of range, or given by the URL as well.
    pub async fn connect(self, url: &str) -> Result<Hierlock> {
        let hierarchy = self.hierarchy;
        Ok(Hierlock::with_backend(match Location::parse(url)? {
            Location::Memory("") => AnyBackend::Memory(MemoryBackend::new(hierarchy)),
            Location::Memory(name) => AnyBackend::Memory(MemoryBackend::named(name, hierarchy)?),
            Location::File(path) => AnyBackend::File(FileBackend::open(path, hierarchy)?),
            #[cfg(feature = "_server")]
            Location::Server => {
                AnyBackend::Sql(Arc::new(SqlBackend::open(url, self.options, hierarchy).await?))
            }
        }))
    }
}

#[cfg(feature = "_server")]
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
