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

    /// Returns the client program of the same package, connected as an administrator.
    fn client(&self, port: u16) -> Result<Command>;
}

/// Finds the installed server of an engine.
pub(crate) fn find(engine: Engine) -> Result<Box<dyn Installation>> {
    Ok(match engine {
        Engine::Mysql => Box::new(innodb::find_mysql()?),
        Engine::Mariadb => Box::new(innodb::find_mariadb()?),
        Engine::Postgres => Box::new(postgres::find()?),
    })
}

/// Finds a program in one of these directories. MariaDB also installs programs with the names of MySQL's.
fn find_program(
    engine: Engine,
    name: &'static str,
    directories: impl IntoIterator<Item = PathBuf>,
) -> Result<PathBuf> {
    let is_wanted = |program: &PathBuf| {
        program.is_file() && !(engine == Engine::Mysql && innodb::is_mariadb(program))
    };
    let mut programs = directories.into_iter().map(|directory| directory.join(name));
    programs.find(is_wanted).ok_or(Error::Missing { engine, missing: name })
}

/// Returns the directories of the PATH.
fn search_path() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}
