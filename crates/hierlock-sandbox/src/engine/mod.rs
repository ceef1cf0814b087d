//! The servers there are, and how each is made to run in a directory of its own.

mod innodb;
mod mariadb;
mod mysql;
mod postgres;

use crate::error::{Error, Result};
use crate::supervisor::User;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
    /// PostgreSQL.
    Postgres,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::Mysql, Engine::Mariadb, Engine::Postgres];

    /// Its name, as in a URL and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Mysql => "mysql",
            Engine::Mariadb => "mariadb",
            Engine::Postgres => "postgres",
        }
    }

    /// What is looked for, and what would bring it.
    pub(crate) fn programs(self) -> (&'static str, &'static str) {
        match self {
            Engine::Mysql => ("mysqld", "./scripts/install-servers mysql"),
            Engine::Mariadb => ("mariadbd", "./scripts/install-servers mariadb"),
            Engine::Postgres => ("postgres", "./scripts/install-servers postgres"),
        }
    }

    pub(crate) fn recipe(self) -> Result<Box<dyn Recipe>> {
        let found: Option<Box<dyn Recipe>> = match self {
            Engine::Mysql => mysql::find().map(|recipe| Box::new(recipe) as _),
            Engine::Mariadb => mariadb::find().map(|recipe| Box::new(recipe) as _),
            Engine::Postgres => postgres::find().map(|recipe| Box::new(recipe) as _),
        };
        found.ok_or_else(|| Error::missing(self))
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
        Self::ALL
            .into_iter()
            .find(|engine| engine.name() == text)
            .ok_or_else(|| format!("`{text}` is not an engine; it is mysql, mariadb or postgres"))
    }
}

/// How to run one kind of server in a directory.
pub(crate) trait Recipe {
    /// Who it runs as.
    fn user(&self) -> User {
        User::Ourselves
    }

    /// Commands that make its data directory, one after the other, for a server with these options.
    fn prepare(&self, directory: &Path, options: &[&str]) -> Result<Vec<Command>>;

    /// The server, in the foreground.
    fn serve(&self, directory: &Path, port: u16) -> Command;

    /// Does it answer?
    fn is_ready(&self, port: u16, directory: &Path) -> bool;

    /// How to connect to it.
    fn url(&self, port: u16, directory: &Path) -> String;
}

/// A program on the PATH, or in one of the places where packages put servers.
fn find_program(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(places.iter().cloned())
        .map(|place| place.join(name))
        .find(|program| program.is_file())
}
