//! What MySQL and MariaDB have in common.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Options for a server that is small, quick to start, and need not survive a power cut.
pub(super) fn serve(mut command: Command, directory: &Path, port: u16) -> Command {
    let at = |option: &str, name: &str| format!("--{option}={}", directory.join(name).display());
    command
        .arg(at("datadir", "data"))
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
pub(super) const INIT_SQL: &str = "\
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
