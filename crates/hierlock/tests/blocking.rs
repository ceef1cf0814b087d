//! The blocking twin, and named managers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::{Hierarchy, Mode, SlotMode, Target, blocking::Hierlock};
use std::time::Duration;

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

#[test]
fn threads_wait_for_each_other() {
    let locks = Hierlock::connect("memory:").unwrap();
    let guard = locks.acquire(target("u1")).unwrap();
    let waiter = std::thread::spawn({
        let locks = locks.clone();
        move || locks.acquire(target("u1/a1")).unwrap().modes()
    });
    while !locks.holders().iter().any(|holder| holder.waits.is_some()) {
        std::thread::yield_now();
    }
    guard.release().unwrap();
    assert_eq!(waiter.join().unwrap()[&target("u1/a1")], SlotMode::Exclusive);
}

#[test]
fn the_whole_surface() {
    let locks = Hierlock::connect_with("memory:", Hierarchy::default()).unwrap();
    let mut guard = locks.acquire_children(&target("u1/a1"), ["r2", "r1"]).unwrap();
    guard.extend([target("u2")]).unwrap();
    assert!(guard.request(target("u3")).mode(Mode::Shared).try_acquire().unwrap());
    guard.request(target("u4")).within(Duration::from_secs(9)).acquire().unwrap();
    guard.upgrade().unwrap();
    assert_eq!(guard.targets().len(), 5);
    assert_eq!(locks.holders()[0].id, guard.id());
    assert!(guard.lost(Duration::from_millis(1)).is_none());
    let late = locks.request(target("u2")).within(Duration::from_millis(5)).acquire();
    assert!(late.unwrap_err().is_timeout());
    assert!(locks.request(target("u2")).no_wait().acquire().unwrap_err().is_would_block());
    drop(guard);
    let both = locks.request_all([target("u1"), target("u2")]).named("both");
    drop(both.and(target("u3"), Mode::Shared).acquire().unwrap());
    assert_eq!(locks.plan([target("u1/a1")], Mode::Shared).unwrap().steps().len(), 2);
    assert_eq!(locks.hierarchy().len(), 3);
}

/// It blocks a worker, as any blocking call does, but neither panics nor deadlocks with the runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_inside_a_runtime() {
    let locks = Hierlock::connect("memory:").unwrap();
    let guard = locks.acquire(target("u1")).unwrap();
    let late = locks.request(target("u1")).within(Duration::from_millis(5)).acquire();
    assert!(late.unwrap_err().is_timeout());
    let locks2 = locks.clone();
    let waiter = tokio::task::spawn_blocking(move || locks2.acquire(target("u1")).unwrap());
    drop(guard);
    drop(waiter.await.unwrap());
}

#[test]
fn a_name_is_shared_and_none_is_not() {
    let one = Hierlock::connect("memory:shared-by-name").unwrap();
    let two = Hierlock::connect("memory:shared-by-name").unwrap();
    let guard = one.acquire(target("u1")).unwrap();
    assert!(two.try_acquire(target("u1")).unwrap().is_none());
    let alone = Hierlock::connect("memory:").unwrap();
    assert!(alone.try_acquire(target("u1")).unwrap().is_some());

    let other = Hierarchy::new(["org", "team"]).unwrap();
    let error = Hierlock::connect_with("memory:shared-by-name", other.clone()).unwrap_err();
    assert!(error.to_string().contains("user/account/resource"), "{error}");
    drop((guard, one, two));
    // Nobody has it any more, so the name is free.
    Hierlock::connect_with("memory:shared-by-name", other).unwrap();
}

#[test]
fn a_url_that_leads_nowhere_says_what_would() {
    for url in ["", "memory", "redis://x", "u1/a1"] {
        let error = Hierlock::connect(url).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("file:PATH"), "{error}");
    }
    assert!(Hierlock::connect("file:").unwrap_err().to_string().contains("names no file"));
}
