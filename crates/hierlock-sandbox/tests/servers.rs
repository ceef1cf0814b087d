//! Real servers: they start, answer, and are gone with whoever started them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PART: &str = "HIERLOCK_SANDBOX_TEST_PART";

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap()
}

fn answers(url: &str) -> bool {
    TcpStream::connect(("127.0.0.1", port(url))).is_ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

on_each_server!(lives_and_leaves_nothing);

async fn lives_and_leaves_nothing(engine: Engine) {
    let Some(sandbox) = Sandbox::for_tests(engine) else { return };
    let (url, pid) = (sandbox.url().to_owned(), sandbox.pid().unwrap());
    let directory = sandbox.directory().to_owned();
    assert!(url.starts_with(engine.name()), "{url}");
    assert!(answers(&url) && is_alive(pid) && directory.exists());
    drop(sandbox);
    assert!(!answers(&url) && !is_alive(pid), "it ends before the drop returns");
    assert!(!directory.exists(), "nothing is left");
}

#[test]
fn a_killed_server_is_started_again_where_it_was() {
    let Some(mut sandbox) = Sandbox::for_tests(Engine::Postgres) else { return };
    let (url, killed) = (sandbox.url().to_owned(), sandbox.pid().unwrap());
    let kill = Command::new("kill").args(["-KILL", &killed.to_string()]).status().unwrap();
    assert!(kill.success());
    sandbox.restart().unwrap();
    let pid = sandbox.pid().unwrap();
    assert!(pid != killed && is_alive(pid) && !is_alive(killed));
    assert!(sandbox.url() == url && answers(&url));
    drop(sandbox);
    assert!(!answers(&url) && !is_alive(pid), "it ends all the same");
}

#[test]
fn several_run_at_once() {
    let Some(first) = Sandbox::for_tests(Engine::Postgres) else { return };
    let second = Sandbox::for_tests(Engine::Postgres).unwrap();
    assert_ne!(first.url(), second.url());
    assert!(answers(first.url()) && answers(second.url()));
    drop(first);
    assert!(answers(second.url()));
}

/// MariaDB removes temporary tables that it finds when it starts. In a directory that servers share these
/// were those of another one, which crashed when it next used them.
#[test]
fn one_that_starts_leaves_the_temporary_tables_of_others_alone() {
    let shared = std::env::temp_dir();
    let others = shared.join(format!("#sql-temptable-{}-1.MAI", std::process::id()));
    std::fs::write(&others, "").unwrap();
    let sandbox = Sandbox::for_tests(Engine::Mariadb);
    let is_there = others.exists();
    let _ = std::fs::remove_file(&others);
    assert!(is_there || sandbox.is_none());
}

/// Does nothing unless another test has started it.
#[test]
fn a_part_in_another_test() {
    let Ok(engine) = std::env::var(PART) else { return };
    let sandbox = Sandbox::start(engine.parse().unwrap()).unwrap();
    println!(
        "\nstarted {} {} {}",
        sandbox.pid().unwrap(),
        sandbox.directory().display(),
        sandbox.url()
    );
    std::thread::sleep(Duration::from_secs(120));
}

/// The failure this prevents: a test run that is killed leaves servers behind, until the machine has
/// no memory left.
#[test]
fn kill_9_of_the_parent_ends_the_servers() {
    for engine in Engine::ALL {
        // Only to learn whether it is installed.
        let Some(_installed) = Sandbox::for_tests(engine) else { continue };
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_part_in_another_test", "--nocapture"])
            .env(PART, engine.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.unwrap().strip_prefix("started ").map(str::to_owned));
        let line = line.expect("the part never started its server");
        let words: Vec<&str> = line.split(' ').collect();
        let (pid, directory, url) = (words[0].parse().unwrap(), PathBuf::from(words[1]), words[2]);
        assert!(is_alive(pid) && answers(url));
        parent.kill().unwrap();
        parent.wait().unwrap();
        until("the server is gone", || !is_alive(pid) && !answers(url));
        until("its directory is gone", || !directory.exists());
    }
}
