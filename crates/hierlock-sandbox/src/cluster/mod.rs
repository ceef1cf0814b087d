//! Clusters: servers that replicate to each other, or replicas of one server.
//!
//! ```text
//!   SinglePrimary, MultiPrimary    Galera                   Replicas
//!
//!     mysqld ◄──► mysqld           mariadbd ◄──► mariadbd   server ──► replica
//!        ▲          ▲                  ▲           ▲           └─────► replica
//!        └► mysqld ◄┘                  └► mariadbd ┘
//! ```

mod galera;
mod group_replication;
mod replicas;

use crate::error::{Error, Result};
use crate::{Engine, Sandbox, retry, server};

/// How the servers of a cluster are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// MySQL Group Replication: the first server is the primary, the others are read-only.
    SinglePrimary,
    /// MySQL Group Replication: all servers accept writes.
    MultiPrimary,
    /// A Galera cluster of MariaDB: all servers accept writes.
    Galera,
    /// The first server is the primary. The others are asynchronous, read-only replicas; on PostgreSQL hot standbys.
    Replicas(Engine),
}

impl Topology {
    /// Returns the engine of the servers.
    pub fn engine(self) -> Engine {
        match self {
            Topology::SinglePrimary | Topology::MultiPrimary => Engine::Mysql,
            Topology::Galera => Engine::Mariadb,
            Topology::Replicas(engine) => engine,
        }
    }
}

/// A cluster of running servers. Dropping it ends the servers and removes their files.
///
/// A killed member of a group or of a Galera cluster does not join again when it is restarted.
#[derive(Debug)]
pub struct SandboxCluster {
    topology: Topology,
    servers: Vec<Sandbox>,
}

impl SandboxCluster {
    /// Starts a cluster of `servers` servers. When this returns, all of them accept connections and replicate.
    ///
    /// # Errors
    /// The engine or a part of it is not installed ([`Error::is_missing`]), or a server does not start or join; then
    /// the error contains its log.
    pub fn start(topology: Topology, servers: usize) -> Result<Self> {
        let start = match topology {
            Topology::SinglePrimary | Topology::MultiPrimary => group_replication::start,
            Topology::Galera => galera::start,
            Topology::Replicas(_) => replicas::start,
        };
        // A member of a group opens a second port when it joins. If that port is taken, the statement fails.
        let is_retryable =
            |error: &Error| matches!(error, Error::Ended { .. } | Error::CommandFailed { .. });
        let servers = retry(is_retryable, || start(topology, servers))?;
        Ok(Self { topology, servers })
    }

    /// Like [`start`](Self::start), for a test. Returns None with a message if the engine is not installed, except in
    /// CI.
    ///
    /// # Panics
    /// A server does not start or join, or the engine is not installed and this is CI.
    pub fn for_tests(topology: Topology, servers: usize) -> Option<Self> {
        server::or_skip(Self::start(topology, servers))
    }

    /// Returns the topology.
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// Returns the servers. The first one is the primary, if there is only one.
    pub fn servers(&self) -> &[Sandbox] {
        &self.servers
    }
}

/// Starts servers with the numbers from 0, all at the same time. Fails with the first error.
fn start_all(
    count: usize,
    start: impl Fn(usize) -> Result<Sandbox> + Sync,
) -> Result<Vec<Sandbox>> {
    std::thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || start(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
