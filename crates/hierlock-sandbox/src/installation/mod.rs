//! How each kind of server that is installed is made to run in a directory of its own.

mod innodb;
mod mariadb;
mod mysql;
mod postgres;

use crate::Engine;
use crate::error::{Error, Result};
use crate::supervisor::User;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An installed server, which can run in a directory.
pub(crate) trait Installation {
    /// Who it runs as.
    fn user(&self) -> User {
        User::Ourselves
    }

    /// The command that makes its data directory, for a server with these options.
    fn prepare(&self, directory: &Path, options: &[&str]) -> Result<Command>;

    /// The server, in the foreground.
    fn serve(&self, directory: &Path, port: u16) -> Command;

    /// Does it answer?
    fn is_ready(&self, port: u16, directory: &Path) -> bool;

    /// How to connect to it.
    fn url(&self, port: u16) -> String;
}

/// Finds the server of an engine on this machine.
pub(crate) fn find(engine: Engine) -> Result<Box<dyn Installation>> {
    let found: Option<Box<dyn Installation>> = match engine {
        Engine::Mysql => mysql::find().map(|found| Box::new(found) as _),
        Engine::Mariadb => mariadb::find().map(|found| Box::new(found) as _),
        Engine::Postgres => postgres::find().map(|found| Box::new(found) as _),
    };
    found.ok_or_else(|| Error::missing(engine))
}

/// A program on the PATH, or in one of the places where packages put servers.
fn find_program(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(places.iter().cloned())
        .map(|place| place.join(name))
        .find(|program| program.is_file())
}
