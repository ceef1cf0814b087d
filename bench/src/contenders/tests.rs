//! Each contender excludes others, and frees a node after its release. Otherwise the comparison would mean nothing.

use super::*;
use std::pin::pin;
use std::task::{Context, Waker};

fn path<'a>(user: &'a str, resource: &'a str) -> Path<'a> {
    Path { user, account: "a1", resource }
}

/// Polls a future once and returns its output if it is ready.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

fn check_contender<C: Contender>() {
    let contender = poll_once(C::new()).expect("creation does not wait");
    let held = poll_once(contender.acquire(path("u1", "r1"))).expect("nothing is locked");
    assert!(!contender.is_idle());
    // Each of these waits is cancelled at once.
    assert!(poll_once(contender.acquire(path("u1", "r1"))).is_none());
    let several = ["r9", "r1", "r9", "r10"].map(String::from);
    assert!(poll_once(contender.acquire_resources("u1", "a1", &several)).is_none());
    assert_eq!(poll_once(contender.acquire(path("u1", "r2"))).is_some(), C::SHARES_ANCESTORS);
    assert!(poll_once(contender.acquire(path("u2", "r1"))).is_some());
    drop(held);
    assert!(contender.is_idle());

    let held =
        poll_once(contender.acquire_resources("u1", "a1", &several)).expect("nothing is locked");
    for resource in ["r1", "r9", "r10"] {
        assert!(poll_once(contender.acquire(path("u1", resource))).is_none());
    }
    drop(held);
    assert!(contender.is_idle());
}

#[test]
fn hierlock_excludes_and_frees_nodes() {
    check_contender::<Memory>();
}

#[test]
fn rwlock_map_excludes_and_frees_nodes() {
    check_contender::<RwLockMap>();
}

#[test]
fn lockable_excludes_and_frees_nodes() {
    check_contender::<Pool>();
}
