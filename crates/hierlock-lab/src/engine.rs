//! The engines and strategies on which scenarios run.

use crate::text::serialize_as_text;
use hierlock::sql::Strategy;
use hierlock_engine::Dialect;
use std::fmt;
use std::str::FromStr;

/// The engine that manages the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// All engines, in the order of reports.
    pub const ALL: [Engine; 5] =
        [Self::Mysql, Self::Mariadb, Self::Postgres, Self::Memory, Self::File];

    /// The engines with SQL.
    pub const SERVERS: [Engine; 3] = [Self::Mysql, Self::Mariadb, Self::Postgres];

    /// The name in a scenario and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
            Self::File => "file",
        }
    }

    /// Returns the kind of server to start, if the engine is a server.
    pub fn server(self) -> Option<Dialect> {
        Dialect::from_scheme(self.name())
    }

    /// Returns the strategies that map nodes to slots; empty where there is only one way.
    pub fn strategies(self) -> &'static [Strategy] {
        match self {
            Self::Mysql | Self::Mariadb => {
                &[Strategy::Striped, Strategy::PerId, Strategy::OnDemand]
            }
            Self::Postgres => &Strategy::ALL,
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

/// An engine and, for scenarios that lock nodes on a server, the strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackendKind {
    /// The engine that manages the locks.
    pub engine: Engine,
    /// The mapping of nodes to slots; only for scenarios that lock nodes, and only on servers.
    pub strategy: Option<Strategy>,
}

impl BackendKind {
    /// Returns all backends of these engines: a server has one per strategy.
    pub fn all(engines: impl IntoIterator<Item = Engine>) -> Vec<BackendKind> {
        let backends = |engine: Engine| match engine.strategies() {
            [] => vec![BackendKind { engine, strategy: None }],
            all => all.iter().map(|own| BackendKind { engine, strategy: Some(*own) }).collect(),
        };
        engines.into_iter().flat_map(backends).collect()
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.strategy {
            Some(strategy) => f.pad(&format!("{} {strategy}", self.engine)),
            None => f.pad(self.engine.name()),
        }
    }
}

serialize_as_text!(Engine, BackendKind);
