//! The options and the initial data of a server.

use crate::Engine;
use crate::error::{Error, Result};
use crate::installation::{self, Installation};
use crate::supervisor;
use std::path::PathBuf;
use tempfile::TempDir;

/// The options and the initial data of a server.
pub(crate) struct Launch {
    pub(crate) engine: Engine,
    /// Further options on the command line.
    pub(crate) options: Vec<String>,
    pub(crate) data: DataSource,
    /// MySQL and MariaDB: statements that run at each start, before and after those that every server runs.
    pub(crate) init_sql: [&'static str; 2],
}

/// The source of the data of a new server.
pub(crate) enum DataSource {
    /// A new data directory.
    New,
    /// MySQL and MariaDB: a copy of the data of a [template](data_template).
    CopyOf(PathBuf),
    /// PostgreSQL: a base backup of the running server at this port. The new server becomes its standby.
    BackupOf(u16),
}

impl Launch {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, options: Vec::new(), data: DataSource::New, init_sql: [""; 2] }
    }

    /// Creates a directory with everything that the server needs to start.
    pub(crate) fn prepare(&self, installation: &dyn Installation) -> Result<TempDir> {
        let directory =
            tempfile::Builder::new().prefix(&format!("hierlock-{}-", self.engine)).tempdir();
        let directory = directory.map_err(Error::io("make a directory for the server"))?;
        let user = installation.user();
        supervisor::change_owner(user, directory.path())?;
        let mut prepare = installation.prepare(directory.path(), self)?;
        supervisor::run_as(user, prepare.current_dir(directory.path()));
        supervisor::run(prepare, "")?;
        Ok(directory)
    }
}

/// Initializes a data directory of MySQL or MariaDB. Copying it for each server takes a tenth of the time.
pub(crate) fn data_template(engine: Engine) -> Result<TempDir> {
    let directory = Launch::new(engine).prepare(&*installation::find(engine)?)?;
    // MySQL: the file contains the UUID of a server. Without it each server generates its own when it starts.
    let _ = std::fs::remove_file(directory.path().join("data/auto.cnf"));
    Ok(directory)
}
