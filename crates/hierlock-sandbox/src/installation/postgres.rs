//! PostgreSQL, from its package.

use super::{Installation, find_program};
use crate::error::Result;
use crate::supervisor::{User, never_root};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Postgres {
    server: PathBuf,
    initdb: PathBuf,
}

pub(super) fn find() -> Option<Postgres> {
    let places = package_places();
    let server = find_program("postgres", &places)?;
    // Of the same version: from the same place.
    let beside = std::fs::canonicalize(&server).ok()?.with_file_name("initdb");
    let initdb = beside.is_file().then_some(beside).or_else(|| find_program("initdb", &places))?;
    Some(Postgres { server, initdb })
}

/// Debian keeps each version in a directory of its own; the newest first.
fn package_places() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path.join("bin")).collect()
}

impl Installation for Postgres {
    /// It refuses to run as root.
    fn user(&self) -> User {
        never_root()
    }

    fn prepare(&self, directory: &Path, _: &[&str]) -> Result<Command> {
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
            // Deadlocks are looked for after this long; a second is long for a test that makes many.
            "deadlock_timeout=50ms".into(),
            // None are allowed unless told.
            "max_prepared_transactions=20".into(),
            // A power cut may take it.
            "fsync=off".into(),
            "full_page_writes=off".into(),
            "synchronous_commit=off".into(),
        ] {
            command.arg("-c").arg(setting);
        }
        command
    }

    /// The last line of its pid file says so. The first says whose file it is: one that was killed leaves its own.
    fn is_ready(&self, _: u16, directory: &Path) -> bool {
        let read = |name| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let (pid, text) = (read("server.pid"), read("data/postmaster.pid"));
        let is_own = !pid.is_empty() && text.lines().next() == Some(pid.trim());
        is_own && text.lines().nth(7).is_some_and(|status| status.trim() == "ready")
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://hierlock@127.0.0.1:{port}/postgres")
    }
}
