//! A dropped guard releases its lock on the server: in a panic, in blocking code, and during or after a shutdown of its
//! runtime.

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
    a_runtime_shutdown_frees_its_locks,
    a_runtime_shutdown_ends_a_wait_on_the_server,
);

/// Runs a function on another thread, because a runtime cannot be dropped inside another.
async fn on_other_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn a_dropped_guard_frees_its_lock_and_keeps_its_connection(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("connections=1").await;
    let mut outside = database.outside().await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
        sessions.push(outside.busy_session().await);
        drop(guard);
        outside.until_busy(0).await;
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1, "the connection was not reused");
}

async fn a_panic_frees_the_lock_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let inside = locks.clone();
    let panicking = tokio::spawn(async move {
        let _guard = inside.acquire(target("u1")).await.unwrap();
        // Not `panic!`, which would print to the terminal.
        resume_unwind(Box::new("on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    outside.until_busy(0).await;

    // The same in blocking code, on a thread without a runtime.
    let url = database.url.clone();
    let panicked = std::thread::spawn(move || {
        let locks = blocking::Hierlock::connect(&url).unwrap();
        catch_unwind(AssertUnwindSafe(|| {
            let _guard = locks.acquire(target("u1")).unwrap();
            resume_unwind(Box::new("on purpose"));
        }))
        .is_err()
    });
    assert!(on_other_thread(|| panicked.join().unwrap()).await);
    outside.until_busy(0).await;
    assert!(is_free(&locks, "u1").await);
}

async fn a_blocking_guard_frees_its_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let url = database.url.clone();
    let guard = on_other_thread(move || {
        blocking::Hierlock::connect(&url).unwrap().acquire(target("u1/a1")).unwrap()
    })
    .await;
    outside.until_busy(1).await;
    let waiter = spawn_acquire(&locks, "u1/a1/r1");
    until_waiting(&locks, 1).await;
    // The task that drops the guard runs on another runtime than the guard's.
    drop(guard);
    waiter.await.unwrap().unwrap().release().await.unwrap();
    outside.until_busy(0).await;
}

/// A runtime closes its sockets when it ends, so the server releases all locks. A guard may outlive the runtime.
async fn a_runtime_shutdown_frees_its_locks(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut outside = database.outside().await;
    let url = database.url.clone();
    let (dying, guard) = on_other_thread(move || {
        let dying = Runtime::new().unwrap();
        let guard = dying.block_on(async {
            let locks = hierlock::Hierlock::connect(&url).await.unwrap();
            locks.acquire(target("u1")).await.unwrap()
        });
        (dying, guard)
    })
    .await;
    outside.until_busy(1).await;
    on_other_thread(move || drop(dying)).await;
    // The program may still work under the guard, so the lock is held. But the keep-alive has ended, and the guard reports
    // that. Dropping the guard releases the lock.
    assert!(guard.lost().await.is_lost());
    assert_eq!(outside.busy().await.len(), 1);
    drop(guard);
    outside.until_busy(0).await;

    // The shutdown drops a task that owns a guard.
    let url = database.url.clone();
    let dying = on_other_thread(move || {
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
    on_other_thread(move || drop(dying)).await;
    outside.until_busy(0).await;
}

/// The client of the waiting statement is gone. PostgreSQL checks every second for its client, and ends the statement.
/// InnoDB does not check: the statement waits until it is granted, and then releases the lock.
async fn a_runtime_shutdown_ends_a_wait_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    let held = locks.acquire(target("u1/a1/r1")).await.unwrap();
    let url = database.url.clone();
    on_other_thread(move || {
        let dying = Runtime::new().unwrap();
        dying.block_on(async {
            let waiters = hierlock::Hierlock::connect(&url).await.unwrap();
            let waiter = waiters.clone();
            tokio::spawn(async move { waiter.acquire(target("u1/a1")).await.map(drop) });
            until_waiting(&waiters, 1).await;
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
