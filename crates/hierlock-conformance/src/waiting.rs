//! Timeouts, attempts without waiting, cancellation, dropped guards, lists of waiters.

use crate::{
    MAX_WAIT, is_free, is_granted, spawn_acquire, spawn_request, target, until, until_free,
    until_idle, until_waiting,
};
use hierlock::backend::Backend;
use hierlock::{Blocker, Guard, Hierlock, Mode, Request, Result, Target};
use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SHORT_WAIT: Duration = Duration::from_millis(20);

/// Acquires with longer and longer deadlines, until a timeout was caused by a blocker: on a busy machine a short deadline
/// can pass before the request reaches the server.
async fn acquire_until_blocked<'a, B: Backend>(
    request: impl Fn() -> Request<&'a Hierlock<B>>,
) -> Result<Guard<B::Hold>> {
    let mut wait = SHORT_WAIT;
    loop {
        match request().within(wait).acquire().await {
            Err(error) if error.blocker() == Some(Blocker::Nobody) && wait < MAX_WAIT => wait *= 2,
            result => return result,
        }
    }
}

pub async fn a_timeout_ends_the_wait_and_releases_everything<B: Backend>(locks: Hierlock<B>) {
    let held = locks.acquire(target("u1/a1/r2")).await.unwrap();
    let several = ["u1/a1/r1", "u1/a1/r2", "u1/a1/r3", "u2"].map(target);
    let timeout = locks.request_all(several).within(SHORT_WAIT).acquire().await;
    assert!(timeout.unwrap_err().is_timeout());
    for path in ["u1/a1/r1", "u1/a1/r3", "u2"] {
        assert!(is_free(&locks, path).await, "{path} is still held");
    }
    held.release().await.unwrap();
    assert!(is_free(&locks, "u1").await);
    until_idle(&locks).await;

    // A lock that is released in time is no error.
    let held = locks.acquire(target("u1")).await.unwrap();
    let waiter = spawn_request(&locks, |locks| locks.request(target("u1/a1")).within(MAX_WAIT));
    until_waiting(&locks, 1).await;
    drop(held);
    drop(waiter.await.unwrap().unwrap());
}

pub async fn a_timeout_names_the_blocked_node<B: Backend>(locks: Hierlock<B>) {
    // If rows are created on demand, create them before the timeout starts.
    locks.acquire(target("u1/a1/r1")).await.unwrap().release().await.unwrap();
    let _held = locks.acquire(target("u1/a1")).await.unwrap();
    let timeout = acquire_until_blocked(|| locks.request(target("u1/a1/r1"))).await;
    let message = timeout.unwrap_err().to_string();
    assert!(message.contains("`u1/a1`") && message.contains("`u1/a1/r1`"), "{message}");
}

/// The failure this prevents: an error reported a node as locked although another client only waited for it.
pub async fn a_node_that_is_only_waited_for_is_not_reported_as_locked<B: Backend>(
    locks: Hierlock<B>,
) {
    // If rows are created on demand, create them before the timeout starts.
    locks.acquire(target("u1/a1/r1")).await.unwrap().release().await.unwrap();
    let below = locks.acquire(target("u1/a1/r9")).await.unwrap();
    let waiter = spawn_acquire(&locks, "u1");
    until_waiting(&locks, 1).await;
    let request = async |may_wait: bool| {
        let request = || locks.request(target("u1/a1/r1"));
        if may_wait {
            acquire_until_blocked(request).await
        } else {
            request().no_wait().acquire().await
        }
    };
    for may_wait in [false, true] {
        // Some backends let compatible requests overtake waiters.
        let Err(error) = request(may_wait).await else { continue };
        assert!(error.is_would_block() || error.is_timeout(), "{error}");
        assert_eq!(error.blocked_on(), Some(&target("u1")), "{error}");
        // MariaDB cannot always distinguish holders from waiters.
        assert_ne!(error.blocker(), Some(Blocker::Holder), "{error}");
        assert!(error.to_string().contains("already waiting"), "{error}");
    }
    below.release().await.unwrap();
    let _held = waiter.await.unwrap().unwrap();
    for may_wait in [false, true] {
        let error = request(may_wait).await.unwrap_err();
        assert_eq!(error.blocked_on(), Some(&target("u1")), "{error}");
        assert_ne!(error.blocker(), Some(Blocker::Waiter), "{error}");
        assert!(error.to_string().contains("locked"), "{error}");
    }
}

/// A second updater waits for the held node, and holds nothing after it has given up.
pub async fn a_second_updater_waits_for_the_held_node<B: Backend>(locks: Hierlock<B>) {
    let several = ["u1/a1/r1", "u1/a1/r2", "u1/a1/r3"].map(target);
    // If rows are created on demand, create them before the timeout starts.
    locks.acquire_all(several.clone()).await.unwrap().release().await.unwrap();
    let [first, second, third] = several;
    let held = locks.request(second.clone()).mode(Mode::Update).acquire().await.unwrap();
    fn request<B: Backend>(locks: &Hierlock<B>) -> Request<&Hierlock<B>> {
        let request = locks.request(target("u1/a1/r1")).mode(Mode::Update);
        let request = request.and(target("u1/a1/r2"), Mode::Update);
        request.and(target("u1/a1/r3"), Mode::Exclusive)
    }
    assert!(!is_granted(request(&locks)).await);
    let timeout = acquire_until_blocked(|| request(&locks)).await.unwrap_err();
    assert!(timeout.to_string().contains("waiting for `u1/a1/r2`"), "{timeout}");
    let waiter = spawn_request(&locks, request);
    until_waiting(&locks, 1).await;
    let waits = locks.holders().into_iter().find_map(|holder| holder.waits).unwrap();
    assert_eq!(waits.target, second);
    waiter.abort();
    until_waiting(&locks, 0).await;
    for free in [&first, &third] {
        assert!(is_free(&locks, &free.to_string()).await, "{free} is still held");
    }
    held.release().await.unwrap();
    request(&locks).acquire().await.unwrap().release().await.unwrap();
    until_idle(&locks).await;
}

pub async fn try_never_waits<B: Backend>(locks: Hierlock<B>) {
    let held = locks.acquire(target("u1/a1")).await.unwrap();
    assert!(!is_free(&locks, "u1/a1/r1").await);
    assert!(!is_granted(locks.request_all(["u2", "u1"].map(target))).await);
    assert!(is_free(&locks, "u2").await, "a refused try holds nothing");
    drop(held);
    until_free(&locks, "u1/a1/r1").await;
}

pub async fn a_cancelled_wait_holds_nothing<B: Backend>(locks: Hierlock<B>) {
    let held = locks.acquire(target("u1/a1/r2")).await.unwrap();
    let several: Vec<Target> = (1..=9).map(|i| target(&format!("u1/a1/r{i}"))).collect();
    for _ in 0..20 {
        let several = several.clone();
        let waiter = spawn_request(&locks, |locks| locks.request_all(several));
        until_waiting(&locks, 1).await;
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        until_waiting(&locks, 0).await;
        for i in [1, 3, 4, 5, 6, 7, 8, 9] {
            assert!(is_free(&locks, &format!("u1/a1/r{i}")).await, "r{i} is still held");
        }
    }
    drop(held);
    until_free(&locks, "u1").await;
    until_idle(&locks).await;
}

/// Polls an acquire n times and drops it, for every n until it is granted, while a holder locks and releases.
pub async fn an_acquire_cancelled_at_any_poll_holds_nothing<B: Backend>(locks: Hierlock<B>) {
    let mut context = Context::from_waker(Waker::noop());
    for polls in 0..6 {
        let mut held = Some(locks.acquire(target("u1/a1")).await.unwrap());
        {
            let both = [target("u1/a1/r1"), target("u2")];
            let mut acquire = pin!(locks.acquire_all(both));
            for poll in 0..polls {
                if poll == 3 {
                    held = None;
                }
                if let Poll::Ready(done) = acquire.as_mut().poll(&mut context) {
                    assert!(held.is_none(), "granted while another client held the lock");
                    drop(done.unwrap());
                    break;
                }
            }
        }
        drop(held);
        until_idle(&locks).await;
        assert!(is_free(&locks, "u1").await && is_free(&locks, "u2").await);
    }
}

pub async fn dropping_a_guard_releases_its_locks<B: Backend>(locks: Hierlock<B>) {
    let guard = locks.acquire_children(&target("u1/a1"), ["r2", "r1", "r2"]).await.unwrap();
    assert_eq!(guard.targets().len(), 2);
    let waiter = spawn_acquire(&locks, "u1/a1/r1");
    until_waiting(&locks, 1).await;
    drop(guard);
    drop(waiter.await.unwrap().unwrap());
    until_free(&locks, "u1").await;
}

pub async fn a_panic_releases_the_locks<B: Backend>(locks: Hierlock<B>) {
    let clone = locks.clone();
    let panicking = tokio::spawn(async move {
        let _guard = clone.acquire(target("u1")).await.unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    until_free(&locks, "u1").await;
}

pub async fn invalid_requests_are_usage_errors<B: Backend>(locks: Hierlock<B>) {
    let assert_refused = |result: Result<Guard<B::Hold>>, part: &str| {
        let error = result.unwrap_err();
        assert!(error.is_usage() && !error.is_retryable(), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    assert_refused(locks.acquire(target("u1/a1/r1/x1")).await, "u1/a1/r1/x1");
    assert_refused(locks.acquire_all([]).await, "no target");
    assert_refused(locks.acquire_children(&target("u1/a1"), ["r1", ""]).await, "level 2");
    assert!(locks.holders().is_empty());
}

pub async fn holders_are_listed<B: Backend>(locks: Hierlock<B>) {
    let first = locks.request(target("u1/a1")).named("first").acquire().await.unwrap();
    let waiter = spawn_request(&locks, |locks| {
        locks.request(target("u1/a1/r1")).mode(Mode::Shared).named("second")
    });
    until_waiting(&locks, 1).await;
    let holders = locks.holders();
    assert_eq!(holders.len(), 2);
    let find = |name: &str| holders.iter().find(|h| h.name.as_deref() == Some(name)).unwrap();
    assert_eq!(find("first").id, first.id());
    assert_eq!(find("first").holds, first.modes());
    let wait = find("second").waits.as_ref().unwrap();
    assert_eq!((&wait.target, &wait.blocked_by), (&target("u1/a1"), &vec![first.id()]));
    drop(first);
    drop(waiter.await.unwrap());
    until_idle(&locks).await;
}

/// A client that holds one node and waits for a second blocks others that request the first.
pub async fn a_waiter_that_holds_another_node_is_listed_as_blocker<B: Backend>(locks: Hierlock<B>) {
    for path in ["u1", "u2/a1/r1"] {
        // Creates the rows, if they are created on demand.
        assert!(is_free(&locks, path).await);
    }
    let first = locks.acquire(target("u2/a1/r1")).await.unwrap();
    let both = [target("u1"), target("u2/a1/r1")];
    let waiter = spawn_request(&locks, |locks| locks.request_all(both).named("both"));
    until_waiting(&locks, 1).await;
    let next_waiter = spawn_acquire(&locks, "u1/a1");
    let is_blocked_by_both = || {
        let holders = locks.holders();
        let both = holders.iter().find(|holder| holder.name.as_deref() == Some("both"));
        let mut others = holders.iter().filter(|holder| holder.name.is_none());
        let wait = others.find_map(|holder| holder.waits.as_ref());
        wait.zip(both)
            .is_some_and(|(wait, both)| wait.target == target("u1") && wait.blocked_by == [both.id])
    };
    until(|| ready(is_blocked_by_both())).await;
    drop(first);
    drop(waiter.await.unwrap().unwrap());
    drop(next_waiter.await.unwrap().unwrap());
    until_idle(&locks).await;
}
