//! Making the rows that clients lock: filling, checking, adding, and changing how many there are.
//!
//! ```text
//!   leader: one session, of which there is one at a time (a lock of the server's own)
//!     │  agreement `filling` ─► table ─► rows ─► agreement `ready`
//!     ▼
//!   fill: chunks in the order of the primary key ─► a few sessions, each chunk a transaction
//! ```
//!
//! Clients refuse to connect until the agreement is `ready`, so nobody meets a table that is half full.
//! Every step may be done twice, so whoever was killed is simply started again.

mod check;
mod chunk;
mod fill;
mod leader;
mod pace;
mod rebucket;
mod script;
mod series;
mod size;

pub use check::Check;
pub use chunk::RowRange;
pub use size::Prediction;

use super::agreement::{self, Agreement, State};
use super::place::{Place, Settings};
use super::statement::Value;
use super::{Dialect, Scheme, Strategy};
use crate::error::{Result, SqlError, UrlError};
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use crate::target::Target;
use chunk::Chunks;
use fill::{Before, Fill};
use hierlock_engine::{ServerAddress, Session, Suitability};
use series::Series;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long one chunk, or making an index, may take.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How many rows are one transaction.
const CHUNK_ROWS: u32 = 100_000;
/// The most: what is missing of a chunk is found in memory.
const MOST_CHUNK_ROWS: u32 = 1_000_000;
/// Measured to be the fastest, or as fast as more; see `bench`.
const CONNECTIONS: usize = 2;
/// How many nodes are added by one statement.
const ADDED_AT_ONCE: usize = 1000;

/// What makes the rows that clients of a server lock.
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
/// Dropped before its end, any of its calls leaves what was done so far, and the server may finish the
/// statement it is at. Called again, it goes on from there.
#[derive(Debug)]
pub struct Provision {
    address: ServerAddress,
    settings: Settings,
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

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How many rows are done, in this phase.
    pub done: u64,
    /// How many rows there are to do; 0 where they are not counted.
    pub total: u64,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Rows are inserted, where they are missing.
    Filling,
    /// The primary key is made.
    Indexing,
    /// A change waits until locks that are held have been released.
    WaitingForHolders,
    /// Rows that nobody needs any more are deleted.
    Deleting,
    /// Rows are counted.
    Checking,
}

impl Phase {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Filling => "filling",
            Phase::Indexing => "making the primary key",
            Phase::WaitingForHolders => "waiting for holders",
            Phase::Deleting => "deleting",
            Phase::Checking => "checking",
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many rows there are for clients to lock. Of rows by ID: 0, for nobody counts them.
    pub rows: u64,
    /// How many of them are new.
    pub inserted: u64,
    /// How many were one too many.
    pub deleted: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Provision {
    /// Makes sure that the server is there and fit. Nothing is changed yet.
    ///
    /// The URL is that of [`Hierlock::connect`](crate::Hierlock::connect). Without `buckets=` the count is
    /// that of the table, if there is one.
    ///
    /// # Errors
    /// A URL that cannot be read, a server that cannot be reached or used. Also advisory keys, which
    /// PostgreSQL has unless its URL names another strategy: they need no rows, and clients that agreed on
    /// rows would shut out those who lock keys.
    pub async fn connect(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let Place { address, mut scheme, follows, settings } = Place::parse(url, hierarchy)?;
        if scheme.strategy == Strategy::Advisory {
            return Err(UrlError::NothingToProvision.into());
        }
        let mut session = Session::connect_alone(&address, settings.answer_limit).await?;
        scheme.dialect = session.dialect;
        let mut provision = Self {
            address,
            settings,
            series: Series::of(scheme.dialect),
            scheme,
            follows,
            connections: CONNECTIONS,
            chunk_rows: CHUNK_ROWS,
            max_rows_per_second: None,
            warnings: Vec::new(),
            idle: tokio::sync::Mutex::default(),
        };
        match session.suitability().await.map_err(|error| provision.failed(error))? {
            Suitability::Fit => {}
            Suitability::Unfit(why) => return Err(provision.unfit(why)),
            Suitability::Doubtful(why) => {
                provision.warnings.push(format!("{}: {why}", provision.address));
            }
        }
        provision.series =
            Series::ask(&mut session).await.map_err(|error| provision.failed(error))?;
        if follows && let Some(kept) = provision.kept(&mut session).await? {
            provision.scheme.follow(&kept);
        }
        provision.idle = Some(session).into();
        Ok(provision)
    }

    /// On how many connections rows are filled and counted. Few: each makes the server write as fast as
    /// it can.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// How many rows are one transaction, up to a million.
    pub fn chunk_rows(mut self, rows: u32) -> Self {
        self.chunk_rows = rows.clamp(1, MOST_CHUNK_ROWS);
        self
    }

    /// How many rows a second are written at most; as many as the server can, unless told.
    pub fn max_rows_per_second(mut self, rows: Option<u64>) -> Self {
        self.max_rows_per_second = rows;
        self
    }

    /// What a person should know of the server before using it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What all clients will have to agree about.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// How large the table becomes.
    pub fn prediction(&self) -> Prediction {
        Prediction::of(&self.scheme)
    }

    /// Makes the tables and fills them, or goes on with that. Where everything is there, nothing is done.
    ///
    /// # Errors
    /// The table is there for other levels, another strategy or another number of buckets; someone else is
    /// provisioning it; or the server fails.
    pub async fn run(&self, progress: impl Fn(Progress) + Send + Sync) -> Result<Report> {
        let begun = Instant::now();
        let failed = |error| self.failed(error);
        let mut leader = self.lead().await?;
        let made = agreement::make_meta(&mut leader).await;
        made.map_err(failed)?.map_err(|why| self.unfit(why))?;
        match self.settle(&mut leader).await? {
            Some(kept) => self.is_agreed(&kept)?,
            None => {
                self.is_ours(&mut leader).await?;
                let state = match self.scheme.strategy {
                    Strategy::Striped => State::Filling,
                    _ => State::Ready,
                };
                for statement in self.scheme.agree(state) {
                    leader.run(&statement).await.map_err(failed)?;
                }
            }
        }
        let inserted = match self.scheme.strategy {
            Strategy::Striped => self.finish(&mut leader, &progress).await?,
            _ => {
                self.create(&mut leader, self.scheme.create_rows()).await?;
                0
            }
        };
        let rows = self.prediction().rows;
        Ok(Report { rows, inserted, deleted: 0, elapsed: begun.elapsed() })
    }

    /// Makes what is missing of the rows, and says that all is ready.
    async fn finish(
        &self,
        leader: &mut Session,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<u64> {
        let failed = |error| self.failed(error);
        let chunks = self.chunks(0, self.scheme.buckets.count());
        let table = match self.table(leader).await? {
            Some(table) => Some(table),
            None => {
                let create = match self.key_last() {
                    true => self.scheme.create_rows_without_key(),
                    false => self.scheme.create_rows(),
                };
                self.create(leader, create).await?;
                None
            }
        };
        let has_key = table.map_or(!self.key_last(), |table| table.has_key);
        let before = match (table.is_some(), has_key) {
            (false, _) => Before::Empty,
            (true, true) => Before::Unknown,
            (true, false) => {
                fill::keyless(leader, &self.scheme, chunks.size).await.map_err(failed)?
            }
        };
        let inserted = Fill { provision: self, chunks, before, progress }.run().await?;
        if !has_key {
            let total = chunks.rows();
            progress(Progress { phase: Phase::Indexing, done: total, total });
            let table = self.scheme.quoted_table();
            let sql = format!("ALTER TABLE {table} ADD PRIMARY KEY (level, bucket)");
            leader.run(&sql).await.map_err(failed)?;
        }
        if let Some(analyse) = script::analyse(&self.scheme)
            && inserted > 0
        {
            leader.run(&analyse).await.map_err(failed)?;
        }
        self.keep_ready(leader).await?;
        Ok(inserted)
    }

    async fn create(&self, leader: &mut Session, sql: Option<String>) -> Result<()> {
        match sql {
            Some(sql) => leader.run(&sql).await.map_err(|error| self.failed(error)),
            None => Ok(()),
        }
    }

    /// Is the primary key made after the rows? Not where they must come slowly, as it comes all at once.
    fn key_last(&self) -> bool {
        self.scheme.dialect == Dialect::Postgres && self.max_rows_per_second.is_none()
    }

    /// Counts the rows and names what is missing. Nothing is changed.
    ///
    /// # Errors
    /// Only striped rows can be checked: of rows by ID, nobody knows which there must be. Else as
    /// [`run`](Self::run).
    pub async fn check(&self, progress: impl Fn(Progress) + Send + Sync) -> Result<Check> {
        self.is_striped()?;
        self.check_rows(&progress).await
    }

    /// Fills exactly what is missing, while clients lock the rest. It is [`run`](Self::run) for a table
    /// that is there.
    ///
    /// # Errors
    /// As [`run`](Self::run); also if there is no table yet.
    pub async fn repair(&self, progress: impl Fn(Progress) + Send + Sync) -> Result<Report> {
        self.is_striped()?;
        let mut session = self.session().await?;
        if self.kept(&mut session).await?.is_none() {
            return Err(self.unfit(self.no_table()));
        }
        self.run(progress).await
    }

    /// Changes how many buckets a level has, while clients lock. Those whose URL names no count follow.
    ///
    /// # Errors
    /// Not striped rows, no table yet, or as [`run`](Self::run).
    pub async fn rebucket(
        &self,
        buckets: Buckets,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<Report> {
        self.is_striped()?;
        self.change_buckets(buckets, &progress).await
    }

    /// Adds rows for nodes and all above them, of which some may be there: for whoever makes a node, where
    /// rows are per ID. How many were new.
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
        let all: Vec<Target> = all.into_iter().collect();
        let mut idle = self.idle.lock().await;
        // One that has died in its sleep is replaced, once: what is there already is not added again.
        if let Some(mut session) = idle.take()
            && let Ok(added) = self.add_with(&mut session, &all).await
        {
            *idle = Some(session);
            return Ok(added);
        }
        let mut session = self.session().await?;
        let added = self.add_with(&mut session, &all).await?;
        *idle = Some(session);
        Ok(added)
    }

    async fn add_with(&self, session: &mut Session, nodes: &[Target]) -> Result<u64> {
        let failed = |error| self.failed(error);
        self.agreed(session).await?;
        let (table, mut added) = (self.scheme.quoted_table(), 0);
        for nodes in nodes.chunks(ADDED_AT_ONCE) {
            // Inserting a row that is there would wait for whoever has locked it.
            let hex = match self.scheme.dialect {
                Dialect::Postgres => "encode(lock_key, 'hex')",
                _ => "LOWER(HEX(lock_key))",
            };
            let key = |node: &Target| Value::Key(node.key().into_bytes());
            let keys: Vec<String> =
                nodes.iter().map(|node| key(node).literal(self.scheme.dialect)).collect();
            let keys = keys.join(", ");
            let sql = format!("SELECT {hex} FROM {table} WHERE lock_key IN ({keys})");
            let there = session.rows(&sql).await.map_err(failed)?;
            let there: BTreeSet<&str> = there.iter().map(|row| &*row[0]).collect();
            let is_new = |node: &&Target| {
                let hex: String = node.key().bytes().map(|byte| format!("{byte:02x}")).collect();
                !there.contains(&*hex)
            };
            let new: Vec<&Target> = nodes.iter().filter(is_new).collect();
            if !new.is_empty() {
                let sql = self.scheme.insert(new.into_iter());
                added += session.affected(&sql).await.map_err(failed)?;
            }
        }
        Ok(added)
    }

    /// The same as SQL for the server's own client.
    pub fn print_sql(&self) -> String {
        script::script(&self.scheme, self.series, self.chunks(0, self.scheme.buckets.count()))
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

    fn is_striped(&self) -> Result<()> {
        match self.scheme.strategy {
            Strategy::Striped => Ok(()),
            other => Err(UrlError::NotStriped { strategy: other.name() }.into()),
        }
    }

    fn no_table(&self) -> String {
        let table = self.scheme.rows_table();
        format!("it has no lock table `{table}` yet; make it with `hierlock provision`")
    }

    /// Is what is kept what we would make? Whether it is ready does not matter.
    fn is_agreed(&self, kept: &Agreement) -> Result<()> {
        let kept = Agreement { state: State::Ready, ..kept.clone() };
        let Some(mut why) = self.scheme.differs(&kept) else { return Ok(()) };
        let same = Agreement { buckets: self.scheme.buckets.count(), ..kept };
        if self.scheme.differs(&same).is_none() {
            let buckets = same.buckets;
            why += &format!(", or change it with `hierlock provision --rebucket {buckets}`");
        }
        Err(self.unfit(why))
    }

    /// A table that is there although nobody has agreed on it must be as ours would be.
    async fn is_ours(&self, leader: &mut Session) -> Result<()> {
        let Some(table) = self.table(leader).await? else { return Ok(()) };
        let (name, fence) = (self.scheme.rows_table(), self.scheme.fence());
        let right = Some(self.scheme.buckets.count());
        if self.scheme.strategy == Strategy::Striped && table.fence != right {
            return Err(self.unfit(format!(
                "there is a table `{name}` without a column {fence}. If its rows are for that many \
                 buckets, ALTER TABLE {name} ADD COLUMN {fence} BOOLEAN; else name another with \
                 table=NAME"
            )));
        }
        Ok(())
    }

    /// The state of what is there and agreed upon.
    async fn agreed(&self, session: &mut Session) -> Result<State> {
        let Some(kept) = self.kept(session).await? else {
            return Err(self.unfit(self.no_table()));
        };
        let Some(table) = self.table(session).await? else {
            return Err(self.unfit(self.no_table()));
        };
        if let Some(fence) = table.fence
            && fence != kept.buckets
        {
            return Err(SqlError::CutShort { server: self.address.to_string(), fence }.into());
        }
        self.is_agreed(&kept)?;
        Ok(kept.state)
    }
}
