//! Provisioners are killed with SIGKILL at random points and started again. The rows are correct in the end.

use crate::striped;
use hierlock::Hierarchy;
use hierlock::sql::Provision;
use hierlock_sandbox::{Engine, on_each_server};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

on_each_server! { a_killed_provisioner_can_be_run_again }

const URL: &str = "HIERLOCK_TEST_PROVISION";
const DIE_AT: &str = "HIERLOCK_TEST_DIE_AT";
const REBUCKET: &str = "HIERLOCK_TEST_REBUCKET";

/// Starts this test binary again as a provisioner.
fn spawn_provisioner(url: &str, variables: &[(&str, u64)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed_provisioner::provision_for_another_test"]).env(URL, url);
    for (name, value) in variables {
        command.env(name, value.to_string());
    }
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Provisions for another test that has started this process. Does nothing otherwise.
#[tokio::test]
async fn provision_for_another_test() {
    let Ok(url) = std::env::var(URL) else { return };
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let provision = Provision::connect(&url, Hierarchy::default()).await.unwrap().chunk_rows(500);
    let progress = |progress: hierlock::sql::ProvisionProgress| {
        if number(DIE_AT).is_some_and(|at| progress.done > at) {
            // No destructor runs, as with a kill by another process.
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
    };
    match number(REBUCKET) {
        Some(count) => {
            let count = hierlock::Buckets::new(count as u32).unwrap();
            provision.rebucket(count, progress).await.unwrap();
        }
        None => {
            provision.run(progress).await.unwrap();
        }
    }
}

/// Runs provisioners that are killed at a random row or at a random moment, and then one that must complete.
fn kill_and_repeat(url: &str, more: &[(&str, u64)], rows: u64) {
    for round in 0..8 {
        let mut variables = more.to_vec();
        if round % 2 == 0 {
            variables.push((DIE_AT, fastrand::u64(..rows)));
        }
        let mut child = spawn_provisioner(url, &variables);
        if round % 2 == 1 {
            std::thread::sleep(Duration::from_millis(fastrand::u64(..250)));
            child.kill().unwrap();
        }
        child.wait().unwrap();
    }
    assert!(spawn_provisioner(url, more).wait().unwrap().success());
}

async fn a_killed_provisioner_can_be_run_again(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    let url = format!("{}&buckets=20000", database.url);
    tokio::task::block_in_place(|| kill_and_repeat(&url, &[], 60_000));
    database.assert_rows(20_000).await;
    assert!(database.check().await.is_clean());
    database.connect().await;

    for count in [30_001, 7_000] {
        let url = &database.url;
        let more = [(REBUCKET, u64::from(count))];
        tokio::task::block_in_place(|| kill_and_repeat(url, &more, 30_000));
        database.assert_rows(count).await;
        assert!(database.check().await.is_clean());
        let locks = database.connect().await;
        drop(locks.acquire("u1/a1/r1".parse().unwrap()).await.unwrap());
    }
}
