//! Compares hierlock on real servers with a statement per row (a pool, BEGIN, SET, a SELECT for each row,
//! ROLLBACK), with the same statement that hierlock sends, with and without the label of its session, and with two bare round trips. Each with and without
//! network latency.

mod delay_proxy;
mod floor;
mod single_statement;
mod statement_per_row;

pub use floor::RoundTripFloor;
pub use single_statement::{LabelledStatement, SingleStatement};
pub use statement_per_row::StatementPerRow;

use hierlock::sql::{Provision, Strategy};
use hierlock::{Buckets, Hierarchy, Hierlock, Target};
use hierlock_sandbox::{Engine, Sandbox};
use std::time::Duration;

/// Enough buckets that the clients of a workload never share one.
pub const BUCKETS: u32 = 100_000;

/// A server and a lock strategy to measure.
#[derive(Clone, Copy, Debug)]
pub struct ServerSetup {
    /// The server.
    pub engine: Engine,
    /// The strategy, which maps nodes to slots.
    pub strategy: Strategy,
}

impl ServerSetup {
    /// All setups that are measured.
    pub const ALL: [ServerSetup; 4] = [
        ServerSetup { engine: Engine::Mysql, strategy: Strategy::Striped },
        ServerSetup { engine: Engine::Mariadb, strategy: Strategy::Striped },
        ServerSetup { engine: Engine::Postgres, strategy: Strategy::Striped },
        ServerSetup { engine: Engine::Postgres, strategy: Strategy::Advisory },
    ];
}

/// The nodes of one acquire: resources of one account of one user.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// The number of the client. Clients lock different users.
    pub client: usize,
    /// The number of resources.
    pub resources: usize,
}

impl Nodes {
    /// Returns the resources as targets.
    pub fn targets(&self) -> Vec<Target> {
        let (user, account) = (format!("u{}", self.client), format!("a{}", self.client));
        (0..self.resources)
            .filter_map(|i| Target::resource(&user, &account, &format!("r{i}")).ok())
            .collect()
    }

    /// Returns the rows to lock as (level, bucket), the root first.
    pub fn rows(&self) -> Vec<(i16, i32)> {
        let buckets = Buckets::new(BUCKETS).unwrap_or_default();
        let targets = self.targets();
        let mut rows: Vec<(i16, i32)> = targets
            .first()
            .into_iter()
            .flat_map(|target| (0..target.level()).map(|level| target.ancestor(level)))
            .chain(targets.iter().cloned())
            .map(|node| (node.level() as i16, node.bucket(buckets) as i32))
            .collect();
        rows.sort_unstable();
        rows
    }
}

/// A contender with a connection for each client, without a pool.
pub trait DedicatedConnection: Sized + Send + 'static {
    /// Opens the connection.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    fn open(server: &BenchServer) -> impl Future<Output = Result<Self, sqlx::Error>>;

    /// Locks and releases the nodes once.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    fn cycle(&mut self, nodes: &Nodes) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A throw-away server with a filled lock table.
pub struct BenchServer {
    /// The engine and the strategy.
    pub setup: ServerSetup,
    /// The URL for hierlock, with the strategy.
    pub url: String,
    sandbox: Sandbox,
}

impl BenchServer {
    /// Starts the server and fills its lock table.
    ///
    /// # Errors
    /// Fails if the server is not installed or does not start.
    pub async fn start(setup: ServerSetup) -> Result<Self, Box<dyn std::error::Error>> {
        let sandbox = Sandbox::start(setup.engine)?;
        let url = format!("{}?strategy={}", sandbox.url(), setup.strategy);
        let server = Self { setup, url, sandbox };
        if setup.strategy == Strategy::Striped {
            let url = format!("{}&buckets={BUCKETS}", server.url);
            Provision::connect(&url, Hierarchy::default()).await?.run(|_| ()).await?;
        }
        Ok(server)
    }

    /// Puts a proxy in front of the server that delays every byte by `one_way`, in each direction.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn add_latency(&mut self, one_way: Duration) -> Result<(), Box<dyn std::error::Error>> {
        let (before, rest) = self.sandbox.url().rsplit_once(':').ok_or("no port in the URL")?;
        let (port, database) = rest.split_once('/').ok_or("no database in the URL")?;
        let port = delay_proxy::start(port.parse()?, one_way)?;
        self.url = format!("{before}:{port}/{database}?strategy={}", self.setup.strategy);
        Ok(())
    }

    /// Returns the URL for sqlx, without parameters.
    pub fn bare_url(&self) -> String {
        let bare = self.url.split('?').next().unwrap_or_default();
        bare.replacen("mariadb", "mysql", 1)
    }

    /// Connects hierlock.
    ///
    /// # Errors
    /// Fails if the server cannot be reached.
    pub async fn hierlock(&self) -> hierlock::Result<Hierlock> {
        Hierlock::connect(&self.url).await
    }
}
