//! MySQL: the one on the PATH, or one that was unpacked beside the system.

use super::{Installation, find_program, innodb};
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a MySQL may be that was unpacked, not installed: its root holds `usr/sbin/mysqld`.
const MYSQL_ROOT: &str = "HIERLOCK_MYSQL_ROOT";

pub(super) struct Mysql {
    program: PathBuf,
    /// If it was unpacked: the root of the tree, with libraries of its own.
    root: Option<PathBuf>,
}

pub(super) fn find() -> Option<Mysql> {
    let unpacked = unpacked_root().and_then(|root| {
        let program = root.join("usr/sbin/mysqld");
        program.is_file().then_some(Mysql { program, root: Some(root) })
    });
    find_program("mysqld", &["/usr/sbin".into(), "/usr/local/mysql/bin".into()])
        // MariaDB installs a program of that name too.
        .filter(|program| !says_mariadb(program))
        .map(|program| Mysql { program, root: None })
        .or(unpacked)
}

/// Where `scripts/install-servers` puts it.
fn unpacked_root() -> Option<PathBuf> {
    let cache = || {
        std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .map(|cache| cache.join("hierlock/mysql"))
    };
    std::env::var_os(MYSQL_ROOT).map(PathBuf::from).or_else(cache)
}

fn says_mariadb(program: &Path) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("MariaDB"))
}

impl Mysql {
    /// The program with the options that come first. An unpacked one is started by the loader of its
    /// own tree, since the system's libraries may be older.
    fn command(&self) -> Command {
        let mut command = match &self.root {
            None => Command::new(&self.program),
            Some(root) => {
                let library = root.join("usr/lib/x86_64-linux-gnu");
                let private = root.join("usr/lib/mysql/private");
                let mut command = Command::new(library.join("ld-linux-x86-64.so.2"));
                command
                    .arg("--library-path")
                    .arg(format!("{}:{}", library.display(), private.display()))
                    .arg(&self.program);
                command
            }
        };
        command.arg("--no-defaults");
        if let Some(root) = &self.root {
            let at =
                |option: &str, place: &str| format!("--{option}={}", root.join(place).display());
            command
                .arg(at("basedir", "usr"))
                .arg(at("lc-messages-dir", "usr/share/mysql"))
                .arg(at("plugin-dir", "usr/lib/mysql/plugin"));
        }
        command.args(innodb::as_root()).args(["--secure-file-priv=NULL", "--mysqlx=0"]);
        command
    }
}

/// The option that cannot be changed once there is a data directory.
const PERMANENT_OPTION: &str = "--lower-case-table-names";

impl Installation for Mysql {
    fn prepare(&self, directory: &Path, options: &[&str]) -> Result<Command> {
        innodb::prepare(directory)?;
        let mut initialize = self.command();
        initialize
            .arg("--initialize-insecure")
            .arg(format!("--datadir={}", directory.join("data").display()))
            .arg(innodb::tmpdir(directory))
            .args(options.iter().filter(|option| option.starts_with(PERMANENT_OPTION)));
        Ok(initialize)
    }

    fn serve(&self, directory: &Path, port: u16) -> Command {
        innodb::serve(self.command(), directory, port)
    }

    fn is_ready(&self, port: u16, _: &Path) -> bool {
        innodb::is_ready(port)
    }

    fn url(&self, port: u16) -> String {
        innodb::url("mysql", port)
    }
}
