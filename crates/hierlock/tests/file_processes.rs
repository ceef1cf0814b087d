//! `file:` between real processes: this test binary starts itself again in another role.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::{Target, blocking::Hierlock};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const ROLE: &str = "HIERLOCK_TEST_ROLE";
const FILE: &str = "HIERLOCK_TEST_FILE";
const INCREMENTS: u64 = 200;

fn url(directory: &Path) -> String {
    format!("file:{}", directory.join("locks").display())
}

/// Starts this test binary again in a role.
fn spawn_role(role: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "run_role_of_another_test", "--nocapture"])
        .env(ROLE, role)
        .env(FILE, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for_line(child: &mut Child, wanted: &str) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(wanted)), "the child never printed {wanted}");
}

/// Does nothing unless another test has started it.
#[test]
fn run_role_of_another_test() {
    let (Ok(role), Some(directory)) = (std::env::var(ROLE), std::env::var_os(FILE)) else { return };
    let directory = Path::new(&directory);
    let locks = Hierlock::connect(&url(directory)).unwrap();
    match role.as_str() {
        "holder" => {
            let _guard = locks.acquire(Target::resource("u1", "a1", "r1").unwrap()).unwrap();
            println!("holding");
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        "adder" => {
            let counter = directory.join("counter");
            for _ in 0..INCREMENTS {
                let _guard = locks.acquire(Target::account("u1", "a1").unwrap()).unwrap();
                let value: u64 = std::fs::read_to_string(&counter).unwrap().parse().unwrap();
                std::fs::write(&counter, (value + 1).to_string()).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn killing_a_holder_frees_its_lock_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let locks = Hierlock::connect(&url(directory.path())).unwrap();
    let mut holder = spawn_role("holder", directory.path());
    wait_for_line(&mut holder, "holding");
    assert!(locks.try_acquire(Target::user("u1").unwrap()).unwrap().is_none());
    assert!(locks.try_acquire(Target::resource("u1", "a1", "r2").unwrap()).unwrap().is_some());

    // A thread of this process already waits.
    let waiter = std::thread::spawn({
        let locks = locks.clone();
        move || locks.acquire(Target::account("u1", "a1").unwrap()).map(drop)
    });
    while !locks.holders().iter().any(|holder| holder.waits.is_some()) {
        std::thread::yield_now();
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    waiter.join().unwrap().unwrap();
    assert!(locks.try_acquire(Target::user("u1").unwrap()).unwrap().is_some());
}

#[test]
fn eight_processes_lose_no_update() {
    const PROCESSES: u64 = 8;
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let adders: Vec<Child> =
        (0..PROCESSES).map(|_| spawn_role("adder", directory.path())).collect();
    for adder in adders {
        assert!(adder.wait_with_output().unwrap().status.success());
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), (PROCESSES * INCREMENTS).to_string());
}
