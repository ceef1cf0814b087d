//! Extensions of a guard. Only extensions can deadlock.

use crate::{is_free, is_granted, spawn_acquire, target, until_free, until_idle, until_waiting};
use hierlock::backend::{Backend, FencingHold};
use hierlock::{Guard, Hierlock, Mode, Result, SlotMode};
use std::time::Duration;

/// Each of two guards extends to the node that the other holds: exactly one fails, and the other succeeds after the
/// victim has released.
pub async fn a_deadlock_of_two_extensions_has_one_victim<B: Backend>(locks: Hierlock<B>) {
    for round in 0..50 {
        let first = locks.acquire(target("u1/a1/r1")).await.unwrap();
        let second = locks.acquire(target("u1/a1/r2")).await.unwrap();
        let mut wants = [(first, "u1/a1/r2"), (second, "u1/a1/r1")];
        // Run both orders.
        wants.rotate_left(round % 2);
        let tasks = wants.map(|(mut guard, path)| {
            // The victim releases at once.
            tokio::spawn(async move { guard.extend([target(path)]).await.map(|()| guard) })
        });
        let mut succeeded = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_guard) => succeeded += 1,
                Err(error) => assert!(error.is_deadlock(), "{error}"),
            }
        }
        assert_eq!(succeeded, 1, "round {round}");
        until_idle(&locks).await;
    }
}

pub async fn a_failed_extension_keeps_the_locks_of_the_guard<B: Backend>(locks: Hierlock<B>) {
    let other = locks.acquire(target("u2/a1/r1")).await.unwrap();
    let mut guard = locks.acquire(target("u1/a1/r1")).await.unwrap();
    let before = guard.modes();

    let several = [target("u1/a2"), target("u3"), target("u2/a1/r1")];
    let request = guard.request_all(several.clone()).within(Duration::from_millis(20));
    let error = request.acquire().await.unwrap_err();
    assert!(error.is_timeout() || error.is_deadlock(), "{error}");
    assert_eq!(guard.modes(), before);
    assert!(!guard.request_all(several).try_acquire().await.unwrap());
    assert_eq!(guard.modes(), before);

    for free in ["u1/a2", "u3", "u1/a1/r2"] {
        assert!(is_free(&locks, free).await, "{free} is still held");
    }
    assert!(!is_free(&locks, "u1/a1/r1").await, "the guard lost its lock");
    drop((guard, other));
    until_idle(&locks).await;
    assert!(is_free(&locks, "u1").await);
}

pub async fn a_cancelled_extension_keeps_the_locks_of_the_guard<B: Backend>(locks: Hierlock<B>) {
    // In every backend's order the leaves come after the roots, so this extension may wait.
    let other = locks.acquire(target("u2/a1/r1")).await.unwrap();
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    let before = guard.modes();
    for _ in 0..20 {
        tokio::select! {
            biased;
            done = guard.extend([target("u2/a1/r1")]) => panic!("extended while another client held the lock: {done:?}"),
            () = until_waiting(&locks, 1) => {}
        }
        assert_eq!(guard.modes(), before);
        until_waiting(&locks, 0).await;
        assert!(is_free(&locks, "u2/a1/r2").await && !is_free(&locks, "u1").await);
    }
    drop(other);
    until_free(&locks, "u2").await;
    drop(guard);
    until_idle(&locks).await;
}

pub async fn an_extension_holds_and_is_released_with_the_guard<B: Backend>(locks: Hierlock<B>) {
    let mut guard = locks.acquire(target("u1/a1")).await.unwrap();
    guard.extend([target("u2"), target("u1/a1/r1")]).await.unwrap();
    assert_eq!(guard.targets().len(), 3);
    assert!(!is_free(&locks, "u2/a1").await);
    guard.extend([target("u2")]).await.unwrap();
    guard.release().await.unwrap();
    assert!(is_free(&locks, "u2").await && is_free(&locks, "u1").await);
    assert!(locks.holders().is_empty());
}

pub async fn an_upgrade_excludes_readers<B: Backend>(locks: Hierlock<B>) {
    let mut guard = locks.request(target("u1/a1/r1")).mode(Mode::Shared).acquire().await.unwrap();
    let reader = locks.request(target("u1/a1/r1")).mode(Mode::Shared).acquire().await.unwrap();
    // Another reader prevents the upgrade; the guard keeps its lock.
    assert!(!guard.request(target("u1/a1/r1")).try_acquire().await.unwrap());
    assert_eq!(guard.modes()[&target("u1/a1/r1")], SlotMode::Shared);
    reader.release().await.unwrap();
    guard.upgrade().await.unwrap();
    assert_eq!(guard.modes()[&target("u1/a1/r1")], SlotMode::Exclusive);
    assert_eq!(guard.targets()[&target("u1/a1/r1")], Mode::Exclusive);
    assert!(!is_granted(locks.request(target("u1/a1/r1")).mode(Mode::Shared)).await);
    drop(guard);
    until_free(&locks, "u1").await;
}

/// The token is greater than that of the last holder of the added node, even if the guard is older.
pub async fn a_token_exceeds_that_of_the_last_holder_of_an_added_node<
    B: Backend<Hold: FencingHold>,
>(
    locks: Hierlock<B>,
) {
    let mut guard = locks.acquire(target("u1/a1")).await.unwrap();
    let own = guard.token().await.unwrap();
    let other = locks.acquire(target("u2/a1")).await.unwrap();
    let before = other.token().await.unwrap();
    other.release().await.unwrap();
    assert!(guard.request(target("u2/a1")).try_acquire().await.unwrap());
    let now = guard.token().await.unwrap();
    assert!(now > before && now > own, "{now} after {before} and {own}");
}

/// The purpose of update locks: two clients read and then write, one after the other, without a deadlock victim.
pub async fn two_updaters_cannot_deadlock<B: Backend>(locks: Hierlock<B>) {
    let node = "u1/a1/r1";
    let mut first = locks.request(target(node)).mode(Mode::Update).acquire().await.unwrap();
    let second = locks.clone();
    let second = tokio::spawn(async move {
        let mut guard = second.request(target(node)).mode(Mode::Update).acquire().await?;
        guard.upgrade().await.map(|()| guard)
    });
    until_waiting(&locks, 1).await;
    first.upgrade().await.unwrap();
    assert!(!second.is_finished());
    drop(first);
    let second: Result<Guard<B::Hold>> = second.await.unwrap();
    assert_eq!(second.unwrap().modes()[&target(node)], SlotMode::Exclusive);
    drop(spawn_acquire(&locks, node).await.unwrap().unwrap());
}
