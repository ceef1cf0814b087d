//! Cut connections, cancelled waits, dropped guards: what the server says is left of them.

use crate::support::Database;
use hierlock::{Hierlock, Target};
use hierlock_conformance::{until_free, until_waiting};
use std::time::Duration;

const GENEROUS: Duration = Duration::from_secs(30);

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

async fn until_nothing_is_locked(database: &Database) {
    let polls = async {
        while database.locks().await > 0 || database.transactions().await > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(GENEROUS, polls).await.expect("something is still locked");
}

#[tokio::test]
async fn a_hold_is_on_the_server_and_gone_after_release() {
    let Some(database) = Database::new().await else { return };
    let locks = database.connect().await;
    let guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
    assert_eq!(database.locks().await, 3);
    guard.release().await.unwrap();
    assert_eq!((database.locks().await, database.transactions().await), (0, 0));
}

/// A dropped wait leaves no waiting statement and no lock, and the connection is clean: with few
/// connections in the pool, hundreds of cancelled waits later the next one works.
#[tokio::test]
async fn cancelled_waits_leave_nothing_on_the_server() {
    let Some(database) = Database::new().await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let held = others.acquire(target("u1/a1/r9")).await.unwrap();
    for round in 0..200_u64 {
        let several = ["u1/a1/r1", "u1/a1/r9", "u2"].map(target);
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire_all(several).await }
        });
        // At every moment: before it is sent, while it waits, when it is seen to wait.
        tokio::time::sleep(Duration::from_micros(round % 20 * 150)).await;
        waiting.abort();
    }
    let polls = async {
        while database.locks().await > 3 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(GENEROUS, polls).await.expect("more than the holder's is locked");
    held.release().await.unwrap();
    drop(locks.acquire(target("u1")).await.unwrap());
    until_nothing_is_locked(&database).await;
    // Each was cancelled, not ended by force: the connections are still those of the beginning.
    assert_eq!(database.forced_ends().await, 0);
}

/// An extension that is granted when nobody waits for it any more: the guard must not keep it.
#[tokio::test]
async fn an_extension_that_nobody_noticed_is_given_back() {
    let Some(database) = Database::new().await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    for _ in 0..10 {
        let other = others.acquire(target("u2/a1/r1")).await.unwrap();
        let mut guard = locks.acquire(target("u1")).await.unwrap();
        let before = guard.modes();
        {
            let mut extend = std::pin::pin!(guard.extend([target("u2/a1/r1")]));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(extend.as_mut().poll(&mut context).is_pending());
            until_waiting(&locks, 1).await;
            other.release().await.unwrap();
            // Not free although the other is gone: then the extension has it.
            while let Some(stolen) = others.try_acquire(target("u2/a1/r1")).await.unwrap() {
                stolen.release().await.unwrap();
            }
        }
        until_free(&others, "u2").await;
        assert_eq!((guard.modes(), guard.targets().len()), (before, 1));
        assert!(others.try_acquire(target("u1")).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_connection_is_a_lost_lock() {
    let Some(database) = Database::new().await else { return };
    let locks = database.connect().await;
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), guard.lost()).await.is_err());
    database.terminate_all().await;
    let error = tokio::time::timeout(GENEROUS, guard.lost()).await.unwrap();
    assert!(error.is_lost() && error.to_string().contains("`u1`"), "{error}");
    // It never comes back behind the guard's back.
    assert!(guard.extend([target("u2")]).await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
    // Others go on, and so does this client, on new connections.
    drop(database.connect().await.acquire(target("u1")).await.unwrap());
    drop(locks.acquire(target("u1")).await.unwrap());
}

#[tokio::test]
async fn connections_that_died_in_their_sleep_are_replaced() {
    let Some(database) = Database::new().await else { return };
    let locks = database.connect().await;
    for _ in 0..3 {
        locks.acquire(target("u1")).await.unwrap().release().await.unwrap();
        assert!(database.terminate_all().await > 0);
        locks.acquire(target("u1")).await.unwrap().release().await.unwrap();
    }
}

#[test]
fn a_runtime_that_shuts_down_frees_its_locks() {
    let here = tokio::runtime::Runtime::new().unwrap();
    let Some(database) = here.block_on(Database::new()) else { return };
    let elsewhere = tokio::runtime::Runtime::new().unwrap();
    let guard = elsewhere.block_on(async {
        let locks = database.connect().await;
        locks.acquire(target("u1")).await.unwrap()
    });
    assert_eq!(here.block_on(database.locks()), 1);
    drop(elsewhere);
    here.block_on(until_nothing_is_locked(&database));
    // A guard may outlive its runtime; there is nothing left to free.
    drop(guard);
}

/// The same while it waits: a server that noticed only when the lock is free would take it for nobody.
#[test]
fn a_runtime_that_shuts_down_while_waiting_leaves_nothing() {
    let here = tokio::runtime::Runtime::new().unwrap();
    let Some(database) = here.block_on(Database::new()) else { return };
    if here.block_on(database.ask("SELECT current_setting('server_version_num')::bigint")) < 140_000
    {
        eprintln!("skipped, because a server before version 14 does not notice");
        return;
    }
    let locks = here.block_on(database.connect());
    let _held = here.block_on(locks.acquire(target("u1/a1/r1"))).unwrap();
    let elsewhere = tokio::runtime::Runtime::new().unwrap();
    elsewhere.block_on(async {
        let waits = database.connect().await;
        let waiting = waits.clone();
        tokio::spawn(async move { waiting.acquire(target("u1/a1")).await.map(drop) });
        until_waiting(&waits, 1).await;
    });
    drop(elsewhere);
    here.block_on(async {
        let polls = async {
            while database.locks().await > 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(GENEROUS, polls).await.expect("the dead one still waits");
    });
}

#[tokio::test]
async fn two_clients_exclude_each_other() {
    let Some(database) = Database::new().await else { return };
    let (one, two) = (database.connect().await, database.connect().await);
    let guard = one.acquire(target("u1/a1")).await.unwrap();
    let waiter = tokio::spawn({
        let two = two.clone();
        async move { two.acquire(target("u1/a1/r1")).await.unwrap().release().await }
    });
    until_waiting(&two, 1).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
    until_free(&one, "u1").await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let error = Hierlock::connect("postgres://me:secret@127.0.0.1:1/x").await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("127.0.0.1:1") && !message.contains("secret"), "{message}");
    assert!(!error.is_usage(), "{error}");
    let error = Hierlock::connect("postgres://127.0.0.1:port/x").await.unwrap_err();
    assert!(error.is_usage(), "{error}");
}
