//! How each kind of server that is installed is made to run in a directory of its own.

mod innodb;
mod postgres;

use crate::Engine;
use crate::error::{Error, Result};
use crate::supervisor::User;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An installed server, which can run in a directory.
pub(crate) trait Installation {
    fn user(&self) -> User {
        None
    }

    /// The command that makes its data directory, for a server with these options.
    fn prepare(&self, directory: &Path, options: &[&str]) -> Result<Command>;

    fn serve(&self, directory: &Path, port: u16) -> Command;

    fn is_ready(&self, port: u16, directory: &Path) -> bool;

    fn url(&self, port: u16) -> String;
}

/// Finds the server of an engine on this machine.
pub(crate) fn find(engine: Engine) -> Result<Box<dyn Installation>> {
    let found = match engine {
        Engine::Mysql => innodb::find_mysql().map(|found| Box::new(found) as _),
        Engine::Mariadb => innodb::find_mariadb().map(|found| Box::new(found) as _),
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
