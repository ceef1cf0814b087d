//! Where a scenario is run.

use hierlock::sql::Strategy;
use hierlock_engine::Dialect;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What keeps the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// A MySQL server.
    Mysql,
    /// A MariaDB server.
    Mariadb,
    /// A PostgreSQL server.
    Postgres,
    /// The lock manager of this process.
    Memory,
    /// The kernel's file locks.
    File,
}

impl Engine {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Engine; 5] =
        [Self::Mysql, Self::Mariadb, Self::Postgres, Self::Memory, Self::File];

    /// Those that understand SQL.
    pub const SERVERS: [Engine; 3] = [Self::Mysql, Self::Mariadb, Self::Postgres];

    /// Its name in a scenario and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
            Self::File => "file",
        }
    }

    /// Its server, if it is one.
    pub fn server(self) -> Option<hierlock_sandbox::Engine> {
        match self {
            Self::Mysql => Some(hierlock_sandbox::Engine::Mysql),
            Self::Mariadb => Some(hierlock_sandbox::Engine::Mariadb),
            Self::Postgres => Some(hierlock_sandbox::Engine::Postgres),
            Self::Memory | Self::File => None,
        }
    }

    pub(crate) fn dialect(self) -> Option<Dialect> {
        Dialect::from_scheme(self.name())
    }

    /// The ways in which a node can become a slot there; none where there is only one.
    pub fn strategies(self) -> &'static [Strategy] {
        match self {
            Self::Mysql | Self::Mariadb => {
                &[Strategy::Striped, Strategy::PerId, Strategy::OnDemand]
            }
            Self::Postgres => {
                &[Strategy::Striped, Strategy::PerId, Strategy::OnDemand, Strategy::Advisory]
            }
            Self::Memory | Self::File => &[],
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|engine| engine.name() == text).ok_or_else(|| {
            format!("`{text}` is not an engine; it is mysql, mariadb, postgres, memory or file")
        })
    }
}

/// An engine and, where nodes of the tree are locked on a server, the strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// What keeps the locks.
    pub engine: Engine,
    /// How a node becomes a slot; only for scenarios that lock nodes, and only on servers.
    pub strategy: Option<Strategy>,
}

impl Place {
    /// All places of these engines: each strategy of a server is one.
    pub fn all(engines: impl IntoIterator<Item = Engine>) -> Vec<Place> {
        let places = |engine: Engine| {
            let strategies = engine.strategies().iter().map(|strategy| Some(*strategy));
            let only = strategies.len() == 0;
            strategies.chain(only.then_some(None)).map(move |strategy| Place { engine, strategy })
        };
        engines.into_iter().flat_map(places).collect()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.strategy {
            Some(strategy) => f.pad(&format!("{} {strategy}", self.engine)),
            None => f.pad(self.engine.name()),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
