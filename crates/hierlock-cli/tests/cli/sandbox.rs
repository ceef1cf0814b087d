//! Tests of `hierlock sandbox`, which run the command.

use crate::support::{code, hierlock, stderr, stdout, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::Stdio;

/// Returns whether the test is skipped because the engine is not installed. In CI nothing is skipped.
fn is_skipped(printed: &str) -> bool {
    let missing = printed.contains("is not installed") && std::env::var_os("CI").is_none();
    if missing {
        eprintln!("skipped, because {printed}");
    }
    missing
}

fn accepts_connections(url: &str) -> bool {
    let port = url.rsplit(':').next().unwrap().split('/').next().unwrap();
    TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_ok()
}

#[test]
fn a_sandbox_runs_until_it_is_signalled() {
    let mut process = hierlock(&["sandbox", "postgres", "--print-url"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
    if url.is_empty() {
        let printed = stderr(&process.wait_with_output().unwrap());
        assert!(is_skipped(&printed), "{printed}");
        return;
    }
    assert!(accepts_connections(url.trim()), "{url}");
    kill(Pid::from_raw(process.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert!(!accepts_connections(url.trim()), "the server ends with the command");
}

#[test]
fn keep_leaves_the_sandbox_running() {
    let output = hierlock(&["sandbox", "postgres", "--print-url", "--keep"]).output().unwrap();
    if code(&output) != Some(0) && is_skipped(&stderr(&output)) {
        return;
    }
    let (url, printed) = (stdout(&output), stderr(&output));
    assert!(accepts_connections(url.trim()), "{url}");
    let pid = printed.rsplit("kill ").next().unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    until("the server has ended", || !accepts_connections(url.trim()));
}

#[test]
fn an_unknown_engine_is_refused() {
    let output = hierlock(&["sandbox", "oracle"]).output().unwrap();
    assert_eq!(code(&output), Some(64));
    assert!(stderr(&output).contains("mysql, mariadb or postgres"), "{}", stderr(&output));
}

#[test]
fn a_missing_engine_is_reported() {
    // MySQL is searched on the PATH, in the usual directories, and in HIERLOCK_MYSQL_ROOT.
    let installed = std::process::Command::new("/usr/sbin/mysqld").arg("--version").output();
    if installed.is_ok_and(|output| !stdout(&output).contains("MariaDB")) {
        return;
    }
    let nowhere = tempfile::tempdir().unwrap();
    let mut command = hierlock(&["sandbox", "mysql"]);
    command.env("PATH", nowhere.path()).env("HIERLOCK_MYSQL_ROOT", nowhere.path());
    let output = command.output().unwrap();
    assert_eq!(code(&output), Some(69), "{}", stderr(&output));
    assert!(stderr(&output).contains("scripts/install-servers mysql"), "{}", stderr(&output));
}
