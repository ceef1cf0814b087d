//! Provisioning: creates the rows that clients lock, checks them, adds some, and changes their number.
//!
//! ```text
//!   leader: one session at a time, by a user-level or advisory lock of the server
//!     │  agreement `filling` ─► table ─► rows ─► agreement `ready`
//!     ▼
//!   fill: chunks in the order of the primary key ─► a few sessions, each chunk a transaction
//! ```
//!
//! Clients refuse to connect until the agreement is `ready`, so no client uses a table that is half full. Every step can be
//! repeated, so a provisioner that was killed is simply started again.

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

use super::lock_table::{self, LockTableError, Result as TableResult, RowTable};
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

/// The limit for one statement, such as the INSERT of a chunk or the creation of the index.
const ANSWER_LIMIT: Duration = Duration::from_secs(3600);
/// The number of rows in one transaction.
const DEFAULT_CHUNK_ROWS: u32 = 100_000;
/// The limit is for memory: the existing rows of a chunk are read to find the missing ones.
const MAX_CHUNK_ROWS: u32 = 1_000_000;
/// Measured to be the fastest, or as fast as more; see `bench`.
const DEFAULT_CONNECTIONS: usize = 2;
/// The number of nodes that one statement adds.
const MAX_ADDED_NODES: usize = 1000;

/// A callback for progress.
type OnProgress<'a> = &'a (dyn Fn(ProvisionProgress) + Send + Sync);

/// Creates the rows that clients of a server lock, checks them, and changes their number.
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
/// If the future of a call is dropped, its work so far remains, and the server may complete the current statement. The same
/// call then continues from there.
#[derive(Debug)]
pub struct Provision {
    address: ServerAddress,
    answer_limit: Duration,
    scheme: Scheme,
    series: Series,
    connections: usize,
    chunk_rows: u32,
    max_rows_per_second: Option<u64>,
    warnings: Vec<String>,
    /// The session for adding nodes.
    idle: tokio::sync::Mutex<Option<Session>>,
}

impl Provision {
    /// Connects to a server and checks it. Changes nothing yet.
    ///
    /// The URL is that of [`Hierlock::connect`](crate::Hierlock::connect). Without `buckets=` the count is that of the
    /// table, if there is one.
    ///
    /// # Errors
    /// The URL is invalid, or the server cannot be reached or used. Also fails for advisory keys, the default on PostgreSQL:
    /// they need no rows, and an agreement on rows would lock out clients with advisory keys.
    pub async fn connect(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let server = LockServer::parse(url, Options::default(), hierarchy)?;
        let LockServer { address, mut scheme, settings } = server;
        if scheme.strategy == Strategy::Advisory {
            return Err(UrlError::NothingToProvision.into());
        }
        let answer_limit = settings.pool.answer_limit;
        let mut session = Session::connect_alone(&address, answer_limit).await?;
        scheme.dialect = session.dialect;
        let asked = async {
            let warnings = lock_table::check_server(&mut session, &address).await?;
            let series = Series::detect(&mut session).await?;
            if scheme.follows_table
                && let Some(stored) = lock_table::read(&mut session, &scheme).await?
            {
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
            connections: DEFAULT_CONNECTIONS,
            chunk_rows: DEFAULT_CHUNK_ROWS,
            max_rows_per_second: None,
            warnings,
            idle: Some(session).into(),
        })
    }

    setters! {
        /// Sets the number of connections that fill and count rows. By default 2.
        connections(connections: usize) => connections: connections.max(1);
        /// Sets the number of rows in one transaction, up to a million. By default 100,000.
        chunk_rows(rows: u32) => chunk_rows: rows.clamp(1, MAX_CHUNK_ROWS);
        /// Sets the maximum number of rows written per second. By default unlimited.
        max_rows_per_second(rows: Option<u64>) => max_rows_per_second: rows;
    }

    getters! { self:
        /// Returns warnings about the server.
        warnings -> &[String] = &self.warnings;
        /// Returns the scheme that all clients will share.
        scheme -> &Scheme = &self.scheme;
        /// Returns the estimated size of the table.
        prediction -> Prediction = Prediction::of(&self.scheme);
    }

    /// Creates the tables and fills them, or continues that. Does nothing if all rows exist.
    ///
    /// # Errors
    /// The table exists for other levels, another strategy or another number of buckets; another provisioner is running; or
    /// the server fails.
    pub async fn run(
        &self,
        progress: impl Fn(ProvisionProgress) + Send + Sync,
    ) -> Result<ProvisionReport> {
        let begun = Instant::now();
        let inserted = self.named(self.make_tables(&progress)).await?;
        let rows = self.prediction().rows;
        Ok(ProvisionReport { rows, inserted, deleted: 0, elapsed: begun.elapsed() })
    }

    /// Creates and fills the tables. Returns the number of inserted rows.
    async fn make_tables(&self, progress: OnProgress<'_>) -> TableResult<u64> {
        let is_striped = self.scheme.strategy == Strategy::Striped;
        let mut leader = self.leader().await?;
        lock_table::make_meta(&mut leader).await?;
        match self.read_agreement(&mut leader).await? {
            Some(stored) => self.check_agreement(&stored)?,
            None => {
                self.check_table(&mut leader).await?;
                run_all(&mut leader, self.scheme.insert_agreement()).await?;
            }
        }
        if is_striped {
            return self.finish(&mut leader, progress).await;
        }
        run_all(&mut leader, self.scheme.create_rows()).await?;
        Ok(0)
    }

    /// Inserts the missing striped rows, and sets the agreement to `ready`. Returns the number of inserted rows.
    async fn finish(&self, leader: &mut Session, progress: OnProgress<'_>) -> TableResult<u64> {
        let scheme = &self.scheme;
        let table = RowTable::find(leader, scheme).await?;
        let is_empty = table.is_none();
        // Not with a rate limit, because the creation of the primary key has no such limit.
        let is_key_last = scheme.dialect == Dialect::Postgres && self.max_rows_per_second.is_none();
        match table {
            // An earlier run was interrupted. The search for missing rows needs the key.
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

    async fn add_key(&self, leader: &mut Session, progress: OnProgress<'_>) -> TableResult<()> {
        let total = self.prediction().rows;
        progress(ProvisionProgress { phase: ProvisionPhase::Indexing, done: total, total });
        let table = self.scheme.quoted_table();
        leader.run(&format!("ALTER TABLE {table} ADD PRIMARY KEY (level, bucket)")).await?;
        Ok(())
    }

    /// Counts the rows and lists the missing ones. Changes nothing. Fails as [`run`](Self::run), and for rows by ID, whose
    /// expected number is unknown.
    pub async fn check(
        &self,
        progress: impl Fn(ProvisionProgress) + Send + Sync,
    ) -> Result<TableCheck> {
        self.require_striped()?;
        self.named(self.check_rows(&progress)).await
    }

    /// Inserts the missing rows while clients lock the others: [`run`](Self::run) for an existing table. Fails if there is
    /// no table.
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

    /// Changes the number of buckets of a level while clients lock. Clients whose URL names no count adopt the new one. Fails
    /// as [`run`](Self::run), and if rows are not striped or there is no table.
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

    /// Inserts rows by ID for nodes and their ancestors, and returns the number of new rows. Programs call it when they
    /// create nodes. Fails for striped rows, which serve all nodes, for a node too deep for the tree, and without a table.
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
        // If the idle session was lost, the call is repeated once on a new one. Existing rows are not inserted again.
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
    async fn named<T>(&self, work: impl Future<Output = TableResult<T>>) -> Result<T> {
        work.await.map_err(|error| error.at(&self.address))
    }

    async fn add_on(&self, session: &mut Session, nodes: &[Target]) -> TableResult<u64> {
        self.checked_agreement(session).await?;
        let (table, hex_key) = (self.scheme.quoted_table(), self.scheme.hex_key());
        let mut added = 0;
        for nodes in nodes.chunks(MAX_ADDED_NODES) {
            // The INSERT of an existing row would wait for the holder of its lock.
            let key = |node: &Target| node.key().into_bytes().literal(self.scheme.dialect);
            let keys = nodes.iter().map(key).collect::<Vec<_>>().join(", ");
            let sql = format!("SELECT {hex_key} FROM {table} WHERE lock_key IN ({keys})");
            let there = session.rows(&sql).await?;
            let there: BTreeSet<&str> = there.iter().map(|row| &*row[0]).collect();
            let is_new = |node: &&Target| !there.contains(&*hex(node.key().as_bytes()));
            let mut new = nodes.iter().filter(is_new).peekable();
            if new.peek().is_some() {
                added += session.as_ref().affected(&self.scheme.insert(new)).await?;
            }
        }
        Ok(added)
    }

    /// Returns an SQL script for the server's own client with the same effect as [`run`](Self::run). A second run of the
    /// script changes nothing.
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
        // With a rate limit, small chunks spread the rows evenly: eight a second.
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
