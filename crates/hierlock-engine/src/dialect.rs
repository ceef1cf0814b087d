//! The database servers that hierlock supports.

use crate::Driver;
use std::fmt;
use std::str::FromStr;

/// A database server that hierlock supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// MySQL 8.0 and newer.
    Mysql,
    /// MariaDB 10.6 and newer.
    Mariadb,
    /// PostgreSQL 13 and newer.
    Postgres,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Dialect; 3] = [Dialect::Mysql, Dialect::Mariadb, Dialect::Postgres];

    /// Returns the name as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Mysql => "mysql",
            Dialect::Mariadb => "mariadb",
            Dialect::Postgres => "postgres",
        }
    }

    /// Returns the official name.
    pub fn product_name(self) -> &'static str {
        match self {
            Dialect::Mysql => "MySQL",
            Dialect::Mariadb => "MariaDB",
            Dialect::Postgres => "PostgreSQL",
        }
    }

    /// Returns the dialect for the scheme of a URL (the part before the colon).
    pub fn from_scheme(scheme: &str) -> Option<Self> {
        if scheme == "postgresql" { Some(Self::Postgres) } else { scheme.parse().ok() }
    }

    /// Returns the driver for this server.
    pub fn driver(self) -> Driver {
        match self {
            Dialect::Mysql | Dialect::Mariadb => Driver::Mysql,
            Dialect::Postgres => Driver::Postgres,
        }
    }

    /// Returns whether the storage engine is InnoDB: MySQL and MariaDB.
    pub fn is_innodb(self) -> bool {
        self != Dialect::Postgres
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parses the [`name`](Dialect::name).
impl FromStr for Dialect {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let dialect = Self::ALL.into_iter().find(|dialect| dialect.name() == name);
        dialect
            .ok_or_else(|| format!("`{name}` is not an engine; it is mysql, mariadb or postgres"))
    }
}
