//! Making the rows that clients lock: filling, checking, adding, and changing how many there are.
//!
//! ```text
//!   leader: one session, of which there is one at a time (a lock of the server's own)
//!     │  agreement `filling` ─► table ─► rows ─► agreement `ready`
//!     ▼
//!   fill: chunks in the order of the primary key ─► a few sessions, each chunk a transaction
//! ```
//!
//! Clients refuse to connect until the agreement is `ready`, so nobody meets a table that is half full. Every step may
//! be done twice, so whoever was killed is simply started again.

mod check;
mod chunk;
mod fill;
mod leader;
mod rate_limit;
mod rebucket;
mod report;
mod script;
mod series;

pub use check::TableCheck;
pub use chunk::RowRange;
pub use report::{Prediction, ProvisionPhase, ProvisionProgress, ProvisionReport};

use super::lock_table::{self, LockTableError, RowTable};
use super::statement::{Literal as _, hex};
use super::{Dialect, LockServer, Options, Scheme, Strategy};
use crate::error::UrlError;
use crate::{Buckets, Hierarchy, Result, Target};
use chunk::Chunks;
use fill::run_all;
use hierlock_engine::{ServerAddress, Session};
use series::Series;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long one chunk, or making an index, may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(3600);
/// How many rows are one transaction.
const DEFAULT_CHUNK_ROWS: u32 = 100_000;
/// The most: what is missing of a chunk is found in memory.
const MAX_CHUNK_ROWS: u32 = 1_000_000;
/// Measured to be the fastest, or as fast as more; see `bench`.
const DEFAULT_CONNECTIONS: usize = 2;
/// How many nodes are added by one statement.
const MAX_ADDED_NODES: usize = 1000;

/// Told how far it has come.
type OnProgress<'a> = &'a (dyn Fn(ProvisionProgress) + Send + Sync);

/// Makes the rows that clients of a server lock, checks them, and changes how many there are.
///
/// ```no_run
/// # async fn provision() -> hierlock::Result<()> {
/// use hierlock::Hierarchy;
/// use hierlock::sql::Provision;
///
/// let url = "mysql://root@127.0.0.1/app?buckets=1000000";
/// let provision = Provision::connect(url, Hierarchy::default()).await?;
/// println!("about {} bytes", provision.prediction().bytes);
/// provision.run(|progress| println!("{} of {}", progress.done, progress.total)).await?;
/// assert!(provision.check(|_| ()).await?.is_clean());
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// Dropped before its end, any of its calls leaves what was done so far, and the server may finish the statement it is
/// at. Called again, it goes on from there.
#[derive(Debug)]
pub struct Provision {
    address: ServerAddress,
    answer_limit: Duration,
    scheme: Scheme,
    series: Series,
    /// Was the bucket count taken from the server, or left to us?
    follows: bool,
    connections: usize,
    chunk_rows: u32,
    max_rows_per_second: Option<u64>,
    warnings: Vec<String>,
    /// For adding nodes.
    idle: tokio::sync::Mutex<Option<Session>>,
}

impl Provision {
    /// Makes sure that the server is there and fit. Nothing is changed yet.
    ///
    /// The URL is that of [`Hierlock::connect`](crate::Hierlock::connect). Without `buckets=` the count is that of the
    /// table, if there is one.
    ///
    /// # Errors
    /// A URL that cannot be read, a server that cannot be reached or used. Also advisory keys, which PostgreSQL has by
    /// default: they need no rows, and clients that agreed on rows would shut out those who lock keys.
    pub async fn connect(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let server = LockServer::parse(url, Options::default(), hierarchy)?;
        let LockServer { address, mut scheme, follows, settings } = server;
        if scheme.strategy == Strategy::Advisory {
            return Err(UrlError::NothingToProvision.into());
        }
        let answer_limit = settings.pool.answer_limit;
        let mut session = Session::connect_alone(&address, answer_limit).await?;
        scheme.dialect = session.dialect;
        let asked = async {
            let warnings = lock_table::check_server(&mut session, &address).await?;
            let series = Series::ask(&mut session).await?;
            if follows && let Some(stored) = lock_table::read(&mut session, &scheme).await? {
                scheme.follow(&stored);
            }
            Ok((warnings, series))
        };
        let (warnings, series) = asked.await.map_err(|error: LockTableError| error.at(&address))?;
        Ok(Self {
            address,
            answer_limit,
            scheme,
            series,
            follows,
            connections: DEFAULT_CONNECTIONS,
            chunk_rows: DEFAULT_CHUNK_ROWS,
            max_rows_per_second: None,
            warnings,
            idle: Some(session).into(),
        })
    }

    /// Sets on how many connections rows are filled and counted; by default 2.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// Sets how many rows are one transaction, up to a million; by default 100,000.
    pub fn chunk_rows(mut self, rows: u32) -> Self {
        self.chunk_rows = rows.clamp(1, MAX_CHUNK_ROWS);
        self
    }

    /// Sets how many rows a second are written at most; by default as many as the server can.
    pub fn max_rows_per_second(mut self, rows: Option<u64>) -> Self {
        self.max_rows_per_second = rows;
        self
    }

    /// Returns what a person should know of the server before using it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns what all clients will have to agree about.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Returns how large the table becomes.
    pub fn prediction(&self) -> Prediction {
        Prediction::of(&self.scheme)
    }

    /// Makes the tables and fills them, or goes on with that. Where everything is there, nothing is done.
    ///
    /// # Errors
    /// The table is there for other levels, another strategy or another number of buckets; someone else is provisioning
    /// it; or the server fails.
    pub async fn run(
        &self,
        progress: impl Fn(ProvisionProgress) + Send + Sync,
    ) -> Result<ProvisionReport> {
        let begun = Instant::now();
        let inserted = self.named(self.make_tables(&progress)).await?;
        let rows = self.prediction().rows;
        Ok(ProvisionReport { rows, inserted, deleted: 0, elapsed: begun.elapsed() })
    }

    /// Makes the tables, and returns how many rows were missing.
    async fn make_tables(&self, progress: OnProgress<'_>) -> Result<u64, LockTableError> {
        let is_striped = self.scheme.strategy == Strategy::Striped;
        let mut leader = self.leader().await?;
        lock_table::make_meta(&mut leader).await?;
        match self.read_agreement(&mut leader).await? {
            Some(stored) => self.check_agreement(&stored)?,
            None => {
                self.check_table(&mut leader).await?;
                run_all(&mut leader, self.scheme.agree(self.scheme.first_state())).await?;
            }
        }
        if is_striped {
            return self.finish(&mut leader, progress).await;
        }
        run_all(&mut leader, self.scheme.create_rows()).await?;
        Ok(0)
    }

    /// Makes what is missing of striped rows, and says that all is ready.
    async fn finish(
        &self,
        leader: &mut Session,
        progress: OnProgress<'_>,
    ) -> Result<u64, LockTableError> {
        let scheme = &self.scheme;
        let table = RowTable::find(leader, scheme).await?;
        let is_empty = table.is_none();
        // Not where rows must come slowly, as the primary key comes all at once.
        let is_key_last = scheme.dialect == Dialect::Postgres && self.max_rows_per_second.is_none();
        match table {
            // It was cut short. What is missing is found by the key.
            Some(table) if !table.has_key => self.add_key(leader, progress).await?,
            Some(_) => {}
            None => {
                let without_key = |sql: String| sql.replace(", PRIMARY KEY (level, bucket)", "");
                let create = scheme.create_rows();
                let create = if is_key_last { create.map(without_key) } else { create };
                run_all(leader, create).await?;
            }
        }
        let chunks = self.chunks(0, scheme.buckets.count());
        let inserted = self.fill(chunks, is_empty, progress).await?;
        if is_empty && is_key_last {
            self.add_key(leader, progress).await?;
        }
        if inserted > 0 {
            run_all(leader, script::analyse(scheme)).await?;
        }
        leader.run(&scheme.update_ready()).await?;
        Ok(inserted)
    }

    async fn add_key(
        &self,
        leader: &mut Session,
        progress: OnProgress<'_>,
    ) -> Result<(), LockTableError> {
        let total = self.prediction().rows;
        progress(ProvisionProgress { phase: ProvisionPhase::Indexing, done: total, total });
        let table = self.scheme.quoted_table();
        leader.run(&format!("ALTER TABLE {table} ADD PRIMARY KEY (level, bucket)")).await?;
        Ok(())
    }

    /// Counts the rows and names what is missing. Nothing is changed.
    ///
    /// # Errors
    /// As [`run`](Self::run); also rows by ID, of which nobody knows which there must be.
    pub async fn check(
        &self,
        progress: impl Fn(ProvisionProgress) + Send + Sync,
    ) -> Result<TableCheck> {
        self.require_striped()?;
        self.named(self.check_rows(&progress)).await
    }

    /// Fills exactly what is missing, while clients lock the rest: [`run`](Self::run) for a table that is there.
    ///
    /// # Errors
    /// As [`run`](Self::run); also if there is no table yet.
    pub async fn repair(
        &self,
        progress: impl Fn(ProvisionProgress) + Send + Sync,
    ) -> Result<ProvisionReport> {
        self.require_striped()?;
        let table = async {
            let stored = lock_table::read(&mut self.session().await?, &self.scheme).await?;
            stored.ok_or_else(|| self.scheme.no_table())
        };
        self.named(table).await?;
        self.run(progress).await
    }

    /// Changes how many buckets a level has, while clients lock. Those whose URL names no count follow.
    ///
    /// # Errors
    /// Not striped rows, no table yet, or as [`run`](Self::run).
    pub async fn rebucket(
        &self,
        buckets: Buckets,
        progress: impl Fn(ProvisionProgress) + Send + Sync,
    ) -> Result<ProvisionReport> {
        self.require_striped()?;
        let begun = Instant::now();
        let (inserted, deleted) = self.named(self.change_buckets(buckets, &progress)).await?;
        let rows = self.with_buckets(buckets).prediction().rows;
        Ok(ProvisionReport { rows, inserted, deleted, elapsed: begun.elapsed() })
    }

    /// Adds rows for nodes and all above them, and returns how many are new: for whoever makes a node, with rows by ID.
    ///
    /// # Errors
    /// Striped rows, which are for all nodes; a node too deep for the tree; no table yet.
    pub async fn add(&self, nodes: &[Target]) -> Result<u64> {
        if !self.scheme.strategy.is_by_id() {
            return Err(UrlError::NotById { strategy: self.scheme.strategy.name() }.into());
        }
        let mut all = BTreeSet::new();
        for node in nodes {
            self.scheme.hierarchy.check(node)?;
            all.extend((0..=node.level()).map(|level| node.ancestor(level)));
        }
        let all = Vec::from_iter(all);
        let mut idle = self.idle.lock().await;
        // One that was lost while it was idle is replaced, once: what is there already is not added again.
        if let Some(mut session) = idle.take()
            && let Ok(added) = self.add_on(&mut session, &all).await
        {
            *idle = Some(session);
            return Ok(added);
        }
        let mut session = self.named(self.session()).await?;
        let added = self.named(self.add_on(&mut session, &all)).await?;
        *idle = Some(session);
        Ok(added)
    }

    /// Adds the name of the server to an error.
    async fn named<T>(&self, work: impl Future<Output = Result<T, LockTableError>>) -> Result<T> {
        work.await.map_err(|error| error.at(&self.address))
    }

    async fn add_on(&self, session: &mut Session, nodes: &[Target]) -> Result<u64, LockTableError> {
        self.agreed_state(session).await?;
        let (table, hex_key) = (self.scheme.quoted_table(), self.scheme.hex_key());
        let mut added = 0;
        for nodes in nodes.chunks(MAX_ADDED_NODES) {
            // Inserting a row that is there would wait for whoever has locked it.
            let key = |node: &Target| node.key().into_bytes().literal(self.scheme.dialect);
            let keys = nodes.iter().map(key).collect::<Vec<_>>().join(", ");
            let sql = format!("SELECT {hex_key} FROM {table} WHERE lock_key IN ({keys})");
            let there = session.rows(&sql).await?;
            let there: BTreeSet<&str> = there.iter().map(|row| &*row[0]).collect();
            let is_new = |node: &&Target| !there.contains(&*hex(node.key().as_bytes()));
            let mut new = nodes.iter().filter(is_new).peekable();
            if new.peek().is_some() {
                added += session.affected(&self.scheme.insert(new)).await?;
            }
        }
        Ok(added)
    }

    /// Returns everything that [`run`](Self::run) does as SQL for the server's own client. Run twice, it does nothing
    /// the second time.
    pub fn print_sql(&self) -> String {
        let chunks = self.chunks(0, self.scheme.buckets.count());
        script::script(&self.scheme, self.series, chunks)
    }

    fn with_buckets(&self, buckets: Buckets) -> Self {
        Self {
            address: self.address.clone(),
            scheme: self.scheme.clone().buckets(buckets),
            warnings: Vec::new(),
            idle: tokio::sync::Mutex::default(),
            ..*self
        }
    }

    fn chunks(&self, first: u32, end: u32) -> Chunks {
        // Smooth, where it is to be slow: some chunks a second.
        let smooth = self.max_rows_per_second.map_or(u64::MAX, |rate| (rate / 8).max(1));
        let size = u64::from(self.chunk_rows).min(smooth) as u32;
        Chunks { levels: self.scheme.hierarchy.len(), buckets: (first, end), size }
    }

    fn require_striped(&self) -> Result<()> {
        match self.scheme.strategy {
            Strategy::Striped => Ok(()),
            other => Err(UrlError::NotStriped { strategy: other.name() }.into()),
        }
    }
}
