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

fn is_listening(url: &str) -> bool {
    TcpStream::connect(("127.0.0.1", port(url))).is_ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn wait_until(event: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "did not happen within the limit: {event}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

on_each_server!(a_server_starts_and_cleans_up);

async fn a_server_starts_and_cleans_up(engine: Engine) {
    let Some(sandbox) = Sandbox::for_tests(engine) else { return };
    let (url, pid) = (sandbox.url().to_owned(), sandbox.pid().unwrap());
    let directory = sandbox.directory().to_owned();
    assert!(url.starts_with(engine.name()), "{url}");
    assert!(is_listening(&url) && is_alive(pid) && directory.exists());
    drop(sandbox);
    assert!(!is_listening(&url) && !is_alive(pid), "the server still runs after the drop");
    assert!(!directory.exists(), "the directory still exists");
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
    assert!(sandbox.url() == url && is_listening(&url));
    drop(sandbox);
    assert!(
        !is_listening(&url) && !is_alive(pid),
        "the restarted server still runs after the drop"
    );
}

#[test]
fn several_servers_run_at_once() {
    let Some(first) = Sandbox::for_tests(Engine::Postgres) else { return };
    let second = Sandbox::for_tests(Engine::Postgres).unwrap();
    assert_ne!(first.url(), second.url());
    assert!(is_listening(first.url()) && is_listening(second.url()));
    drop(first);
    assert!(is_listening(second.url()));
}

/// MariaDB removes temporary tables in its temporary directory when it starts. In a shared directory these belonged to
/// another server, which crashed at their next use.
#[test]
fn a_start_keeps_the_temporary_tables_of_other_servers() {
    let shared = std::env::temp_dir();
    let others = shared.join(format!("#sql-temptable-{}-1.MAI", std::process::id()));
    std::fs::write(&others, "").unwrap();
    let sandbox = Sandbox::for_tests(Engine::Mariadb);
    let still_exists = others.exists();
    let _ = std::fs::remove_file(&others);
    assert!(still_exists || sandbox.is_none());
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
        // Only checks whether the engine is installed.
        let Some(_installed) = Sandbox::for_tests(engine) else { continue };
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run_role_of_another_test", "--nocapture"])
            .env(ROLE, engine.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.unwrap().strip_prefix("started ").map(str::to_owned));
        let line = line.expect("the child did not start its server");
        let words: Vec<&str> = line.split(' ').collect();
        let (pid, directory, url) = (words[0].parse().unwrap(), PathBuf::from(words[1]), words[2]);
        assert!(is_alive(pid) && is_listening(url));
        parent.kill().unwrap();
        parent.wait().unwrap();
        wait_until("the server is gone", || !is_alive(pid) && !is_listening(url));
        wait_until("its directory is gone", || !directory.exists());
    }
}
