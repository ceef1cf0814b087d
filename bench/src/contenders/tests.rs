//! A comparison with something that does not lock, or does not forget, would be worth nothing.

use super::*;
use std::pin::pin;
use std::task::{Context, Waker};

fn path<'a>(user: &'a str, resource: &'a str) -> Path<'a> {
    Path { user, account: "a1", resource }
}

/// What a future has come to, polled once.
fn now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

fn locks_and_forgets<C: Contender>() {
    let contender = now(C::new()).expect("nothing to wait for");
    let held = now(contender.acquire(path("u1", "r1"))).expect("free");
    assert!(!contender.is_idle());
    // Each of these waits is cancelled at once.
    assert!(now(contender.acquire(path("u1", "r1"))).is_none());
    let several = ["r9", "r1", "r9", "r10"].map(String::from);
    assert!(now(contender.acquire_resources("u1", "a1", &several)).is_none());
    assert_eq!(now(contender.acquire(path("u1", "r2"))).is_some(), C::SHARES_ANCESTORS);
    assert!(now(contender.acquire(path("u2", "r1"))).is_some());
    drop(held);
    assert!(contender.is_idle());

    let held = now(contender.acquire_resources("u1", "a1", &several)).expect("free");
    for resource in ["r1", "r9", "r10"] {
        assert!(now(contender.acquire(path("u1", resource))).is_none());
    }
    drop(held);
    assert!(contender.is_idle());
}

#[test]
fn hierlock() {
    locks_and_forgets::<Memory>();
}

#[test]
fn rwlock_map() {
    locks_and_forgets::<RwLockMap>();
}

#[test]
fn lockable() {
    locks_and_forgets::<Pool>();
}
