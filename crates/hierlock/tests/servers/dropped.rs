//! A guard that is dropped frees its lock on the server, wherever and however it is dropped: in a panic, in
//! blocking code, on a runtime that is shutting down, or after it.

use crate::support::{Database, Setup, on_each_engine, on_every_setup, target};
use hierlock::blocking;
use hierlock_conformance::{is_free, spawn_acquire, until_free, until_waiting};
use hierlock_sandbox::Engine;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tokio::runtime::Runtime;

on_every_setup!(a_dropped_guard_frees_its_lock_and_keeps_its_connection);
on_each_engine!(
    a_panic_frees_the_lock_on_the_server,
    a_blocking_guard_frees_its_lock,
    a_runtime_that_shuts_down_frees_its_locks,
    a_runtime_that_shuts_down_while_waiting_leaves_no_ghost,
);

/// Runs on a thread of its own, as a runtime cannot be dropped inside another.
async fn elsewhere<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(what).await.unwrap()
}

async fn a_dropped_guard_frees_its_lock_and_keeps_its_connection(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("connections=1").await;
    let mut outside = database.outside().await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
        sessions.push(outside.the_busy_one().await);
        drop(guard);
        outside.until_busy(0).await;
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "its connection was not used again");
}

async fn a_panic_frees_the_lock_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let inside = locks.clone();
    let panicking = tokio::spawn(async move {
        let _guard = inside.acquire(target("u1")).await.unwrap();
        // Not `panic!`, which would write to the terminal.
        resume_unwind(Box::new("on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    outside.until_busy(0).await;

    // The same in blocking code, on a thread that no runtime knows.
    let url = database.url.clone();
    let panicked = std::thread::spawn(move || {
        let locks = blocking::Hierlock::connect(&url).unwrap();
        catch_unwind(AssertUnwindSafe(|| {
            let _guard = locks.acquire(target("u1")).unwrap();
            resume_unwind(Box::new("on purpose"));
        }))
        .is_err()
    });
    assert!(elsewhere(|| panicked.join().unwrap()).await);
    outside.until_busy(0).await;
    assert!(is_free(&locks, "u1").await);
}

async fn a_blocking_guard_frees_its_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let url = database.url.clone();
    let guard = elsewhere(move || {
        blocking::Hierlock::connect(&url).unwrap().acquire(target("u1/a1")).unwrap()
    })
    .await;
    outside.until_busy(1).await;
    let waiter = spawn_acquire(&locks, "u1/a1/r1");
    until_waiting(&locks, 1).await;
    // In a task of a runtime, which is not the one that the guard lives on.
    drop(guard);
    waiter.await.unwrap().unwrap().release().await.unwrap();
    outside.until_busy(0).await;
}

/// With the runtime its sockets go, and so the server frees everything. A guard may outlive it.
async fn a_runtime_that_shuts_down_frees_its_locks(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut outside = database.outside().await;
    let url = database.url.clone();
    let (dying, guard) = elsewhere(move || {
        let dying = Runtime::new().unwrap();
        let guard = dying.block_on(async {
            let locks = hierlock::Hierlock::connect(&url).await.unwrap();
            locks.acquire(target("u1")).await.unwrap()
        });
        (dying, guard)
    })
    .await;
    outside.until_busy(1).await;
    elsewhere(move || drop(dying)).await;
    // Whoever has the guard may still work under it, so it holds; but nobody watches any more, and
    // it says so. Dropped, it is free.
    assert!(guard.lost().await.is_lost());
    assert_eq!(outside.busy().await.len(), 1);
    drop(guard);
    outside.until_busy(0).await;

    // Dropped by a task that the shutdown itself drops.
    let url = database.url.clone();
    let dying = elsewhere(move || {
        let dying = Runtime::new().unwrap();
        dying.block_on(async {
            let locks = hierlock::Hierlock::connect(&url).await.unwrap();
            let guard = locks.acquire(target("u1")).await.unwrap();
            tokio::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
        });
        dying
    })
    .await;
    outside.until_busy(1).await;
    elsewhere(move || drop(dying)).await;
    outside.until_busy(0).await;
}

/// The waiter's statement is then nobody's. PostgreSQL looks every second whether its client is there, and
/// ends the statement. InnoDB does not look: it waits on, and when it is granted it finds out, and
/// gives it back.
async fn a_runtime_that_shuts_down_while_waiting_leaves_no_ghost(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let held = locks.acquire(target("u1/a1/r1")).await.unwrap();
    let url = database.url.clone();
    elsewhere(move || {
        let dying = Runtime::new().unwrap();
        dying.block_on(async {
            let waits = hierlock::Hierlock::connect(&url).await.unwrap();
            let waiting = waits.clone();
            tokio::spawn(async move { waiting.acquire(target("u1/a1")).await.map(drop) });
            until_waiting(&waits, 1).await;
        });
    })
    .await;
    let version = "SELECT current_setting('server_version_num')";
    if setup.engine == Engine::Postgres && outside.number(version).await >= 140_000 {
        outside.until_busy(1).await;
    }
    held.release().await.unwrap();
    outside.until_busy(0).await;
    until_free(&locks, "u1").await;
}
