//! hierlock on real servers beside the straightforward way: a pool, BEGIN, SET, a SELECT a row, ROLLBACK;
//! beside its own statement sent by hand; and beside the floor, two bare round trips. Next door, or at some
//! distance.

mod distance;
mod floor;
mod statement;
mod straightforward;

pub use floor::Floor;
pub use statement::Statement;
pub use straightforward::Straightforward;

use hierlock::sql::{Provision, Strategy};
use hierlock::{Buckets, Hierarchy, Hierlock, Target};
use hierlock_sandbox::{Engine, Sandbox};
use std::time::Duration;

/// Enough that the clients of a line never meet.
pub const BUCKETS: u32 = 100_000;

/// What is measured: a server, and how it is locked on.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The server.
    pub engine: Engine,
    /// How a node becomes a slot.
    pub strategy: Strategy,
}

impl Setup {
    /// All that are measured.
    pub const ALL: [Setup; 4] = [
        Setup { engine: Engine::Mysql, strategy: Strategy::Striped },
        Setup { engine: Engine::Mariadb, strategy: Strategy::Striped },
        Setup { engine: Engine::Postgres, strategy: Strategy::Striped },
        Setup { engine: Engine::Postgres, strategy: Strategy::Advisory },
    ];
}

/// The nodes of one acquire: resources of one account of one user.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Who; different for each client.
    pub client: usize,
    /// How many resources.
    pub resources: usize,
}

impl Nodes {
    /// As targets.
    pub fn targets(&self) -> Vec<Target> {
        let (user, account) = (format!("u{}", self.client), format!("a{}", self.client));
        (0..self.resources)
            .filter_map(|i| Target::resource(&user, &account, &format!("r{i}")).ok())
            .collect()
    }

    /// As rows, root first, each with its level: what one would lock by hand.
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

/// What has a connection of its own.
pub trait Alone: Sized + Send + 'static {
    /// Opens it.
    ///
    /// # Errors
    /// A server that is gone.
    fn open(bench: &Bench) -> impl Future<Output = Result<Self, sqlx::Error>>;

    /// Takes and gives back.
    ///
    /// # Errors
    /// A server that is gone.
    fn cycle(&mut self, nodes: &Nodes) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A server of its own, with the rows it needs.
pub struct Bench {
    /// What is measured.
    pub setup: Setup,
    /// How to connect, with the strategy.
    pub url: String,
    sandbox: Sandbox,
}

impl Bench {
    /// Starts it.
    ///
    /// # Errors
    /// A server that is not installed or does not start.
    pub async fn start(setup: Setup) -> Result<Self, Box<dyn std::error::Error>> {
        let sandbox = Sandbox::start(setup.engine)?;
        let url = format!("{}?strategy={}", sandbox.url(), setup.strategy);
        let bench = Self { setup, url, sandbox };
        if setup.strategy == Strategy::Striped {
            let url = format!("{}&buckets={BUCKETS}", bench.url);
            Provision::connect(&url, Hierarchy::default()).await?.run(|_| ()).await?;
        }
        Ok(bench)
    }

    /// Moves it away: what is sent to it arrives so much later, and so do its answers.
    ///
    /// # Errors
    /// No port is free.
    pub fn move_away(&mut self, one_way: Duration) -> Result<(), Box<dyn std::error::Error>> {
        let (before, rest) = self.sandbox.url().rsplit_once(':').ok_or("no port in the URL")?;
        let (port, database) = rest.split_once('/').ok_or("no database in the URL")?;
        let port = distance::away(port.parse()?, one_way)?;
        self.url = format!("{before}:{port}/{database}?strategy={}", self.setup.strategy);
        Ok(())
    }

    /// How a driver connects.
    pub fn bare_url(&self) -> String {
        let bare = self.url.split('?').next().unwrap_or_default();
        bare.replacen("mariadb", "mysql", 1)
    }

    /// hierlock's own client.
    ///
    /// # Errors
    /// A server that is gone.
    pub async fn hierlock(&self) -> hierlock::Result<Hierlock> {
        Hierlock::connect(&self.url).await
    }
}
