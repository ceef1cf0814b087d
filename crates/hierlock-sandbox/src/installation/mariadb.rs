//! MariaDB, from its package.

use super::{Installation, find_program, innodb};
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Mariadb {
    server: PathBuf,
    install: PathBuf,
}

pub(super) fn find() -> Option<Mariadb> {
    let places = ["/usr/sbin".into(), "/usr/bin".into()];
    Some(Mariadb {
        server: find_program("mariadbd", &places)?,
        install: find_program("mariadb-install-db", &places)?,
    })
}

impl Installation for Mariadb {
    fn prepare(&self, directory: &Path, _: &[&str]) -> Result<Command> {
        innodb::prepare(directory)?;
        let mut install = Command::new(&self.install);
        install
            .arg("--no-defaults")
            .arg(format!("--datadir={}", directory.join("data").display()))
            .arg(innodb::tmpdir(directory))
            .args([
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ])
            .args(innodb::as_root());
        Ok(install)
    }

    fn serve(&self, directory: &Path, port: u16) -> Command {
        let mut command = Command::new(&self.server);
        command.arg("--no-defaults").args(innodb::as_root());
        // Who holds metadata locks can be seen only with it. Where it is not installed, the server
        // complains and starts all the same.
        command.arg("--plugin-load-add=metadata_lock_info");
        innodb::serve(command, directory, port)
    }

    fn is_ready(&self, port: u16, _: &Path) -> bool {
        innodb::is_ready(port)
    }

    fn url(&self, port: u16) -> String {
        innodb::url("mariadb", port)
    }
}
