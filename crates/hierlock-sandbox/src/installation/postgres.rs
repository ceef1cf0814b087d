//! PostgreSQL, from its package.

use super::{Installation, find_program, search_path};
use crate::Engine;
use crate::error::{Error, Result};
use crate::launch::{DataSource, Launch};
use crate::supervisor::{User, unprivileged_user};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Postgres {
    server: PathBuf,
    initdb: PathBuf,
}

pub(super) fn find() -> Result<Postgres> {
    let server = find_program(Engine::Postgres, "postgres", directories())?;
    // From the same directory if possible, so that the version is the same.
    let link = std::fs::canonicalize(&server).map_err(Error::io("read the path of the server"))?;
    let beside = link.parent().map(Path::to_owned);
    let initdb = find_program(Engine::Postgres, "initdb", beside.into_iter().chain(directories()))?;
    Ok(Postgres { server, initdb })
}

/// The PATH, and the directories in which Debian installs each version, the newest first.
fn directories() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort();
    let installed = versions.into_iter().rev().map(|(_, path)| path.join("bin"));
    search_path().into_iter().chain(installed).collect()
}

impl Installation for Postgres {
    /// PostgreSQL refuses to run as root.
    fn user(&self) -> User {
        unprivileged_user()
    }

    fn prepare(&self, directory: &Path, launch: &Launch) -> Result<Command> {
        if let DataSource::BackupOf(port) = launch.data {
            let beside = self.initdb.parent().map(Path::to_owned);
            let mut backup = Command::new(find_program(Engine::Postgres, "pg_basebackup", beside)?);
            backup
                .arg("--pgdata")
                .arg(directory.join("data"))
                .args(["--host=127.0.0.1", "--username=hierlock", "--no-sync"])
                .arg(format!("--port={port}"))
                // The new server becomes a standby.
                .args(["--write-recovery-conf", "--checkpoint=fast"]);
            return Ok(backup);
        }
        let mut initdb = Command::new(&self.initdb);
        initdb
            .arg("--pgdata")
            .arg(directory.join("data"))
            .args(["--username=hierlock", "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "--no-instructions"]);
        Ok(initdb)
    }

    fn serve(&self, directory: &Path, port: u16) -> Command {
        let mut command = Command::new(&self.server);
        command.arg("-D").arg(directory.join("data")).arg("-k").arg(directory);
        for setting in [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".into(),
            "max_connections=300".into(),
            // The default of one second is long for tests with many deadlocks.
            "deadlock_timeout=50ms".into(),
            // The default is 0.
            "max_prepared_transactions=20".into(),
            // The data need not survive a power failure.
            "fsync=off".into(),
            "full_page_writes=off".into(),
            "synchronous_commit=off".into(),
        ] {
            command.arg("-c").arg(setting);
        }
        command
    }

    /// The last line of the pid file is the status. The first is the process id: the file may be that of a killed
    /// server.
    fn is_ready(&self, _: u16, directory: &Path) -> bool {
        let read = |name| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let (pid, text) = (read("server.pid"), read("data/postmaster.pid"));
        let is_own = !pid.is_empty() && text.lines().next() == Some(pid.trim());
        let status = text.lines().nth(7).map(str::trim);
        is_own && status.is_some_and(|status| ["ready", "standby"].contains(&status))
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://hierlock@127.0.0.1:{port}/postgres")
    }

    fn client(&self, port: u16) -> Result<Command> {
        let mut command = Command::new(find_program(Engine::Postgres, "psql", directories())?);
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", &self.url(port)]);
        Ok(command)
    }
}
