//! Real servers: they start, accept connections, and end with the process that started them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "HIERLOCK_SANDBOX_TEST_ROLE";

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

on_each_server!(a_server_starts_and_cleans_up);

async fn a_server_starts_and_cleans_up(engine: Engine) {
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
fn a_killed_server_restarts_on_its_data() {
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
fn several_servers_run_at_once() {
    let Some(first) = Sandbox::for_tests(Engine::Postgres) else { return };
    let second = Sandbox::for_tests(Engine::Postgres).unwrap();
    assert_ne!(first.url(), second.url());
    assert!(answers(first.url()) && answers(second.url()));
    drop(first);
    assert!(answers(second.url()));
}

/// When MariaDB starts it removes the temporary tables that it finds. In a directory that servers share these
/// belonged to another server, which crashed when it next used them.
#[test]
fn a_start_keeps_the_temporary_tables_of_others() {
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
fn run_role_of_another_test() {
    let Ok(engine) = std::env::var(ROLE) else { return };
    let sandbox = Sandbox::start(engine.parse().unwrap()).unwrap();
    println!(
        "\nstarted {} {} {}",
        sandbox.pid().unwrap(),
        sandbox.directory().display(),
        sandbox.url()
    );
    std::thread::sleep(Duration::from_secs(120));
}

/// The failure this prevents: a killed test run leaves servers behind, until the machine has no memory left.
#[test]
fn killing_the_parent_ends_the_servers() {
    for engine in Engine::ALL {
        // Checks only whether it is installed.
        let Some(_installed) = Sandbox::for_tests(engine) else { continue };
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run_role_of_another_test", "--nocapture"])
            .env(ROLE, engine.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.unwrap().strip_prefix("started ").map(str::to_owned));
        let line = line.expect("the child never started its server");
        let words: Vec<&str> = line.split(' ').collect();
        let (pid, directory, url) = (words[0].parse().unwrap(), PathBuf::from(words[1]), words[2]);
        assert!(is_alive(pid) && answers(url));
        parent.kill().unwrap();
        parent.wait().unwrap();
        until("the server is gone", || !is_alive(pid) && !answers(url));
        until("its directory is gone", || !directory.exists());
    }
}
