//! Locks between processes. A killed process leaves no lock.

use crate::child_process::{ChildProcess, INCREMENTS};
use crate::support::{Database, Setup, on_every_setup, target};
use hierlock::Target;
use hierlock_conformance::{is_free, spawn_acquire, until_free, until_waiting};
use std::time::Instant;

on_every_setup!(
    killing_a_holder_frees_its_lock_at_once,
    killing_a_waiter_leaves_no_lock,
    eight_processes_lose_no_update,
    two_processes_conflict_on_related_nodes_only,
);

async fn killing_a_holder_frees_its_lock_at_once(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let mut holder = ChildProcess::spawn("holder", &database.url, "u1/a1/r1");
    holder.expect_line("holds");
    assert!(!is_free(&locks, "u1").await && is_free(&locks, "u1/a1/r2").await);
    // A waiter already waits.
    let waiter = spawn_acquire(&locks, "u1/a1");
    until_waiting(&locks, 1).await;
    let begun = Instant::now();
    holder.kill();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    println!("granted {:?} after the kill", begun.elapsed());
    outside.until_busy(0).await;
    assert!(is_free(&locks, "u1").await);
}

/// The statement of a killed waiter may continue to wait and be granted. Then the server finds that its client is gone, and
/// releases the lock. (PostgreSQL checks every second, InnoDB only when it responds.) The next waiter must get the lock.
async fn killing_a_waiter_leaves_no_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let held = locks.acquire(target("u1/a1")).await.unwrap();
    let mut dead = ChildProcess::spawn("waiter", &database.url, "u1/a1");
    dead.expect_line("waits");
    let behind = spawn_acquire(&locks, "u1/a1");
    until_waiting(&locks, 1).await;
    dead.kill();
    held.release().await.unwrap();
    let begun = Instant::now();
    behind.await.unwrap().unwrap().release().await.unwrap();
    println!("granted {:?} after the release, behind a killed waiter", begun.elapsed());
    outside.until_busy(0).await;
    until_free(&locks, "u1").await;
}

async fn eight_processes_lose_no_update(setup: Setup) {
    const PROCESSES: u64 = 8;
    let Some(database) = Database::new(setup).await else { return };
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let adders: Vec<ChildProcess> =
        (0..PROCESSES).map(|_| ChildProcess::spawn("adder", &database.url, &counter)).collect();
    for adder in adders {
        adder.finish();
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), (PROCESSES * INCREMENTS).to_string());
}

/// Returns the 14 nodes of a 2×2×2 tree.
fn nodes() -> Vec<Target> {
    let mut nodes = vec![];
    for user in ["u1", "u2"] {
        nodes.push(Target::user(user).unwrap());
        for account in ["a1", "a2"] {
            nodes.push(Target::account(user, account).unwrap());
            nodes.extend(["r1", "r2"].map(|r| Target::resource(user, account, r).unwrap()));
        }
    }
    nodes
}

/// One process holds, the other tries: they conflict if and only if the nodes are equal or one is an ancestor of
/// the other.
async fn two_processes_conflict_on_related_nodes_only(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut other = ChildProcess::spawn("holder on command", &database.url, "");
    for held in nodes() {
        other.send(&held.to_string());
        other.expect_line(&held.to_string());
        for wanted in nodes() {
            let tried = locks.try_acquire(wanted.clone()).await.unwrap();
            let is_refused = tried.is_none();
            if let Some(guard) = tried {
                guard.release().await.unwrap();
            }
            let conflict = held.contains(&wanted) || wanted.contains(&held);
            assert_eq!(is_refused, conflict, "{held} is held, {wanted} is wanted");
        }
    }
    other.send("");
    other.expect_line("");
    assert!(is_free(&locks, "u2").await);
    other.finish();
}
