//! The installed servers, and the commands that run them in their own directories.

mod innodb;
mod postgres;

use crate::Engine;
use crate::error::{Error, Result};
use crate::launch::Launch;
use crate::supervisor::User;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An installed server that can run in a directory.
pub(crate) trait Installation {
    fn user(&self) -> User {
        None
    }

    /// Returns the command that initializes the data directory.
    fn prepare(&self, directory: &Path, launch: &Launch) -> Result<Command>;

    fn serve(&self, directory: &Path, port: u16) -> Command;

    fn is_ready(&self, port: u16, directory: &Path) -> bool;

    fn url(&self, port: u16) -> String;

    /// Returns the client program of the same package, connected as an administrator; None if it is not installed.
    fn client(&self, port: u16) -> Option<Command>;
}

/// Finds the installed server of an engine.
pub(crate) fn find(engine: Engine) -> Result<Box<dyn Installation>> {
    let (missing, found) = match engine {
        Engine::Mysql => ("mysqld", innodb::find_mysql().map(|found| Box::new(found) as _)),
        Engine::Mariadb => ("mariadbd", innodb::find_mariadb().map(|found| Box::new(found) as _)),
        Engine::Postgres => ("postgres", postgres::find().map(|found| Box::new(found) as _)),
    };
    found.ok_or(Error::Missing { engine, missing })
}

/// Finds a program on the PATH or in one of the directories in which packages install servers.
fn find_program(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(places.iter().cloned())
        .map(|place| place.join(name))
        .find(|program| program.is_file())
}
