//! Locks between real processes, and what is left of one that is killed with -9.

use crate::parts::{ADDS, Part};
use crate::support::{Database, Setup, on_every_setup, target};
use hierlock::Target;
use hierlock_conformance::{is_free, spawn_acquire, until_free, until_waiting};
use std::time::Instant;

on_every_setup!(
    kill_9_of_a_holder_frees_at_once,
    kill_9_of_a_waiter_leaves_no_ghost,
    eight_processes_lose_no_update,
    two_processes_conflict_as_the_model_says,
);

async fn kill_9_of_a_holder_frees_at_once(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let mut holder = Part::play("holder", &database.url, "u1/a1/r1");
    holder.says("holds");
    assert!(!is_free(&locks, "u1").await && is_free(&locks, "u1/a1/r2").await);
    // Somebody already waits.
    let waiter = spawn_acquire(&locks, "u1/a1");
    until_waiting(&locks, 1).await;
    let begun = Instant::now();
    holder.kill_9();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    println!("granted {:?} after the kill", begun.elapsed());
    outside.until_busy(0).await;
    assert!(is_free(&locks, "u1").await);
}

/// The statement of a dead waiter may go on waiting, and be granted: then the server finds that nobody
/// is there, and gives it back. (PostgreSQL looks every second, InnoDB only when it answers.) Who waits
/// behind it must not wait for ever.
async fn kill_9_of_a_waiter_leaves_no_ghost(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let held = locks.acquire(target("u1/a1")).await.unwrap();
    let mut dead = Part::play("waiter", &database.url, "u1/a1");
    dead.says("waits");
    let behind = spawn_acquire(&locks, "u1/a1");
    until_waiting(&locks, 1).await;
    dead.kill_9();
    held.release().await.unwrap();
    let begun = Instant::now();
    behind.await.unwrap().unwrap().release().await.unwrap();
    println!("granted {:?} after the release, behind a ghost", begun.elapsed());
    outside.until_busy(0).await;
    until_free(&locks, "u1").await;
}

async fn eight_processes_lose_no_update(setup: Setup) {
    const PROCESSES: u64 = 8;
    let Some(database) = Database::new(setup).await else { return };
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let adders: Vec<Part> =
        (0..PROCESSES).map(|_| Part::play("adder", &database.url, &counter)).collect();
    for adder in adders {
        adder.finish();
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), (PROCESSES * ADDS).to_string());
}

/// The 14 nodes of a 2×2×2 tree.
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

/// One process holds, the other tries: a conflict if and only if one node is the other or above it.
async fn two_processes_conflict_as_the_model_says(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut other = Part::play("obeys", &database.url, "");
    for held in nodes() {
        other.tell(&held.to_string());
        other.says(&held.to_string());
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
    other.tell("");
    other.says("");
    assert!(is_free(&locks, "u2").await);
    other.finish();
}
