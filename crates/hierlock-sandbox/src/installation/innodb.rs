//! MySQL and MariaDB.

use super::{Installation, find_program, search_path};
use crate::Engine;
use crate::error::{Error, Result};
use crate::launch::{DataSource, Launch};
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The directory of an unpacked MySQL: it contains `usr/sbin/mysqld`.
const MYSQL_ROOT: &str = "HIERLOCK_MYSQL_ROOT";

/// The option of MySQL that is fixed when the data directory is initialized.
const PERMANENT_OPTION: &str = "--lower-case-table-names";

/// Statements that the server runs at each start. Without name resolution `localhost` is only the socket. Every member
/// of a cluster runs the statements, so they are not replicated.
const INIT_SQL: &str = "\
SET sql_log_bin = 0;
CREATE DATABASE IF NOT EXISTS hierlock;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
";

pub(super) struct Innodb {
    engine: Engine,
    server: PathBuf,
    /// MariaDB: the program that initializes a data directory. MySQL's server does that itself.
    install: Option<PathBuf>,
    /// The root directory of an unpacked MySQL, which has its own libraries.
    root: Option<PathBuf>,
}

pub(super) fn find_mariadb() -> Result<Innodb> {
    let find = |name| {
        let directories = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
        find_program(Engine::Mariadb, name, search_path().into_iter().chain(directories))
    };
    let (server, install) = (find("mariadbd")?, Some(find("mariadb-install-db")?));
    Ok(Innodb { engine: Engine::Mariadb, server, install, root: None })
}

pub(super) fn find_mysql() -> Result<Innodb> {
    let mysql = |server, root| Innodb { engine: Engine::Mysql, server, install: None, root };
    let directories = ["/usr/sbin", "/usr/local/mysql/bin"].map(PathBuf::from);
    find_program(Engine::Mysql, "mysqld", search_path().into_iter().chain(directories))
        .map(|server| mysql(server, None))
        .or_else(|missing| {
            let root = unpacked_root().ok_or(missing)?;
            let server = find_program(Engine::Mysql, "mysqld", [root.join("usr/sbin")])?;
            Ok(mysql(server, Some(root)))
        })
}

/// Returns the directory in which `scripts/install-servers` installs MySQL.
fn unpacked_root() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    variable(MYSQL_ROOT).or_else(|| {
        let cache = variable("XDG_CACHE_HOME");
        let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("hierlock/mysql"))
    })
}

pub(super) fn is_mariadb(program: &Path) -> bool {
    let version = Command::new(program).arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("MariaDB"))
}

fn path_option(option: &str, directory: &Path, name: &str) -> String {
    format!("--{option}={}", directory.join(name).display())
}

/// Returns the option without which the servers refuse to run as root.
fn as_root() -> Option<&'static str> {
    nix::unistd::getuid().is_root().then_some("--user=root")
}

impl Innodb {
    /// Returns the command of a program of the package. An unpacked one uses its own loader, because the system may be
    /// older.
    fn program(&self, program: &Path) -> Command {
        let Some(root) = &self.root else { return Command::new(program) };
        let library = root.join("usr/lib/x86_64-linux-gnu");
        let private = root.join("usr/lib/mysql/private");
        let mut command = Command::new(library.join("ld-linux-x86-64.so.2"));
        command
            .args(["--library-path", &format!("{}:{}", library.display(), private.display())])
            .arg(program);
        command
    }

    /// Returns the server's command with its first options.
    fn command(&self) -> Command {
        let mut command = self.program(&self.server);
        command.arg("--no-defaults").args(as_root());
        if let Some(root) = &self.root {
            command
                .arg(path_option("basedir", root, "usr"))
                .arg(path_option("lc-messages-dir", root, "usr/share/mysql"))
                .arg(path_option("plugin-dir", root, "usr/lib/mysql/plugin"));
        }
        command
    }
}

fn own_options(engine: Engine) -> &'static [&'static str] {
    match engine {
        // Lists the holders of metadata locks. If the plugin is not installed, the server starts without it.
        Engine::Mariadb => &["--plugin-load-add=metadata_lock_info"],
        _ => &["--secure-file-priv=NULL", "--mysqlx=0"],
    }
}

impl Installation for Innodb {
    fn prepare(&self, directory: &Path, launch: &Launch) -> Result<Command> {
        let [first, last] = launch.init_sql;
        std::fs::write(directory.join("init.sql"), format!("{first}{INIT_SQL}{last}"))
            .map_err(Error::io("write the server's first statements"))?;
        // For temporary tables. A server removes all files there when it starts, so the directory must not be shared.
        let tmp = std::fs::create_dir(directory.join("tmp"));
        tmp.map_err(Error::io("make a directory for temporary tables"))?;
        let mut command;
        if let DataSource::CopyOf(template) = &launch.data {
            command = Command::new("cp");
            command.arg("-R").arg(template.join("data")).arg(directory.join("data"));
            return Ok(command);
        }
        if let Some(install) = &self.install {
            command = Command::new(install);
            command.arg("--no-defaults").args(as_root());
            command.args(["--auth-root-authentication-method=normal"]);
            command.args(["--skip-test-db", "--skip-name-resolve"]);
        } else {
            command = self.command();
            command.arg("--initialize-insecure").args(own_options(self.engine));
            let options = launch.options.iter();
            command.args(options.filter(|option| option.starts_with(PERMANENT_OPTION)));
        }
        command.arg(path_option("datadir", directory, "data"));
        command.arg(path_option("tmpdir", directory, "tmp"));
        Ok(command)
    }

    /// Settings for a small server that starts quickly and need not survive a power failure.
    fn serve(&self, directory: &Path, port: u16) -> Command {
        let mut command = self.command();
        command.args(own_options(self.engine));
        for (option, name) in [
            ("datadir", "data"),
            ("tmpdir", "tmp"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("init-file", "init.sql"),
        ] {
            command.arg(path_option(option, directory, name));
        }
        command
            .arg(format!("--port={port}"))
            .args(["--bind-address=127.0.0.1", "--skip-log-bin", "--max-connections=500"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=128M"])
            .args(["--character-set-server=utf8mb4", "--skip-name-resolve"]);
        command
    }

    /// A ready server sends a greeting of protocol version 10. Before that the port is not open, or the connection is
    /// closed.
    fn is_ready(&self, port: u16, _: &Path) -> bool {
        let greets = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            // Three bytes of length, a sequence number, then the version.
            let mut greeting = [0; 5];
            stream.read_exact(&mut greeting)?;
            Ok(greeting[4] == 10)
        };
        greets().unwrap_or(false)
    }

    fn url(&self, port: u16) -> String {
        format!("{}://root@127.0.0.1:{port}/hierlock", self.engine)
    }

    fn client(&self, port: u16) -> Result<Command> {
        let name = if self.engine == Engine::Mariadb { "mariadb" } else { "mysql" };
        let unpacked = self.root.as_ref().map(|root| vec![root.join("usr/bin")]);
        let program = find_program(self.engine, name, unpacked.unwrap_or_else(search_path))?;
        let mut command = self.program(&program);
        command
            .args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root"])
            .arg(format!("--port={port}"))
            // Results are printed as they arrive.
            .args(["--batch", "--skip-column-names", "--unbuffered", "hierlock"]);
        Ok(command)
    }
}
