//! What MySQL and MariaDB have in common.

use crate::error::{Error, Result};
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where it keeps its temporary tables. A server that starts removes those that it finds in its directory
/// for them, so one that is shared would cost another server its own, and its life.
pub(super) fn tmpdir(directory: &Path) -> String {
    format!("--tmpdir={}", directory.join("tmp").display())
}

/// What a server needs before it is started for the first time.
pub(super) fn prepare(directory: &Path) -> Result<()> {
    std::fs::write(directory.join("init.sql"), INIT_SQL)
        .map_err(|source| Error::io("write the server's first statements", source))?;
    std::fs::create_dir(directory.join("tmp"))
        .map_err(|source| Error::io("make a directory for temporary tables", source))
}

/// Options for a server that is small, quick to start, and need not survive a power cut.
pub(super) fn serve(mut command: Command, directory: &Path, port: u16) -> Command {
    let at = |option: &str, name: &str| format!("--{option}={}", directory.join(name).display());
    command
        .arg(at("datadir", "data"))
        .arg(tmpdir(directory))
        .arg(at("socket", "socket"))
        .arg(at("pid-file", "pid"))
        .arg(at("init-file", "init.sql"))
        .arg(format!("--port={port}"))
        .args(["--bind-address=127.0.0.1", "--skip-log-bin", "--max-connections=500"])
        .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=128M"])
        .args(["--character-set-server=utf8mb4", "--skip-name-resolve"]);
    command
}

/// Run by the server each time it starts. Without names to resolve, `localhost` is only the socket.
const INIT_SQL: &str = "\
CREATE DATABASE IF NOT EXISTS hierlock;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
";

/// It greets with protocol version 10; while it is starting nobody listens, or the socket is closed.
pub(super) fn is_ready(port: u16) -> bool {
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

pub(super) fn url(scheme: &str, port: u16) -> String {
    format!("{scheme}://root@127.0.0.1:{port}/hierlock")
}

/// Servers refuse to run as root unless told that it is meant.
pub(super) fn as_root() -> Option<&'static str> {
    nix::unistd::getuid().is_root().then_some("--user=root")
}
