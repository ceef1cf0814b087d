//! Deadlines, attempts that do not wait, cancellation, dropped guards, lists of waiters.

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

pub async fn a_deadline_ends_the_wait_and_nothing_is_held<B: Backend>(locks: Hierlock<B>) {
    let held = locks.acquire(target("u1/a1/r2")).await.unwrap();
    let several = ["u1/a1/r1", "u1/a1/r2", "u1/a1/r3", "u2"].map(target);
    let late = locks.request_all(several).within(SHORT_WAIT).acquire().await;
    assert!(late.unwrap_err().is_timeout());
    for path in ["u1/a1/r1", "u1/a1/r3", "u2"] {
        assert!(is_free(&locks, path).await, "{path} is still held");
    }
    held.release().await.unwrap();
    assert!(is_free(&locks, "u1").await);
    until_idle(&locks).await;

    // Free in time: no error.
    let held = locks.acquire(target("u1")).await.unwrap();
    let waiter = spawn_request(&locks, |locks| locks.request(target("u1/a1")).within(MAX_WAIT));
    until_waiting(&locks, 1).await;
    drop(held);
    drop(waiter.await.unwrap().unwrap());
}

pub async fn a_deadline_names_what_was_in_the_way<B: Backend>(locks: Hierlock<B>) {
    // Where rows are made on demand, make them before the time limit counts.
    locks.acquire(target("u1/a1/r1")).await.unwrap().release().await.unwrap();
    let _held = locks.acquire(target("u1/a1")).await.unwrap();
    let late = locks.request(target("u1/a1/r1")).within(SHORT_WAIT).acquire().await;
    let message = late.unwrap_err().to_string();
    assert!(message.contains("`u1/a1`") && message.contains("`u1/a1/r1`"), "{message}");
}

/// The failure this prevents: an error called a node locked although another client only waited for it.
pub async fn a_node_that_is_only_waited_for_is_not_called_locked<B: Backend>(locks: Hierlock<B>) {
    // Where rows are made on demand, make them before the time limit counts.
    locks.acquire(target("u1/a1/r1")).await.unwrap().release().await.unwrap();
    let below = locks.acquire(target("u1/a1/r9")).await.unwrap();
    let waiter = spawn_acquire(&locks, "u1");
    until_waiting(&locks, 1).await;
    let wanted = |waits: bool| {
        let request = locks.request(target("u1/a1/r1"));
        if waits { request.within(SHORT_WAIT) } else { request.no_wait() }
    };
    for waits in [false, true] {
        // Some backends let compatible requests overtake waiters.
        let Err(error) = wanted(waits).acquire().await else { continue };
        if error.blocker() == Some(Blocker::Nobody) {
            continue;
        }
        assert!(error.is_would_block() || error.is_timeout(), "{error}");
        assert_eq!(error.blocked_on(), Some(&target("u1")), "{error}");
        // MariaDB cannot always tell.
        assert_ne!(error.blocker(), Some(Blocker::Holder), "{error}");
        assert!(error.to_string().contains("is waiting"), "{error}");
    }
    below.release().await.unwrap();
    let _held = waiter.await.unwrap().unwrap();
    for waits in [false, true] {
        let error = wanted(waits).acquire().await.unwrap_err();
        assert_eq!(error.blocked_on(), Some(&target("u1")), "{error}");
        assert_ne!(error.blocker(), Some(Blocker::Waiter), "{error}");
        assert!(error.to_string().contains("locked"), "{error}");
    }
}

/// A second updater learns which node it waits for, and holds nothing after it has given up.
pub async fn a_second_updater_is_told_where_it_waits<B: Backend>(locks: Hierlock<B>) {
    let several = ["u1/a1/r1", "u1/a1/r2", "u1/a1/r3"].map(target);
    // Where rows are made on demand, make them before the time limit counts.
    locks.acquire_all(several.clone()).await.unwrap().release().await.unwrap();
    let [first, second, third] = several;
    let held = locks.request(second.clone()).mode(Mode::Update).acquire().await.unwrap();
    fn request<B: Backend>(locks: &Hierlock<B>) -> Request<&Hierlock<B>> {
        let request = locks.request(target("u1/a1/r1")).mode(Mode::Update);
        let request = request.and(target("u1/a1/r2"), Mode::Update);
        request.and(target("u1/a1/r3"), Mode::Exclusive)
    }
    assert!(!is_granted(request(&locks)).await);
    let late = request(&locks).within(SHORT_WAIT).acquire().await.unwrap_err();
    assert!(late.to_string().contains("waiting for `u1/a1/r2`"), "{late}");
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

pub async fn a_cancelled_wait_leaves_nothing<B: Backend>(locks: Hierlock<B>) {
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
pub async fn cancelling_at_every_poll_leaves_nothing<B: Backend>(locks: Hierlock<B>) {
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
                    assert!(held.is_none(), "granted beside the holder");
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

pub async fn dropping_frees<B: Backend>(locks: Hierlock<B>) {
    let guard = locks.acquire_children(&target("u1/a1"), ["r2", "r1", "r2"]).await.unwrap();
    assert_eq!(guard.targets().len(), 2);
    let waiter = spawn_acquire(&locks, "u1/a1/r1");
    until_waiting(&locks, 1).await;
    drop(guard);
    drop(waiter.await.unwrap().unwrap());
    until_free(&locks, "u1").await;
}

pub async fn a_panic_frees<B: Backend>(locks: Hierlock<B>) {
    let inside = locks.clone();
    let panicking = tokio::spawn(async move {
        let _guard = inside.acquire(target("u1")).await.unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    until_free(&locks, "u1").await;
}

pub async fn bad_requests_are_refused_with_a_sentence<B: Backend>(locks: Hierlock<B>) {
    let refused = |result: Result<Guard<B::Hold>>, says: &str| {
        let error = result.unwrap_err();
        assert!(error.is_usage() && !error.is_retryable(), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(locks.acquire(target("u1/a1/r1/x1")).await, "u1/a1/r1/x1");
    refused(locks.acquire_all([]).await, "no target");
    refused(locks.acquire_children(&target("u1/a1"), ["r1", ""]).await, "level 2");
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
pub async fn who_waits_behind_a_waiter_is_told<B: Backend>(locks: Hierlock<B>) {
    for path in ["u1", "u2/a1/r1"] {
        // Makes the rows that are made on demand.
        assert!(is_free(&locks, path).await);
    }
    let first = locks.acquire(target("u2/a1/r1")).await.unwrap();
    let both = [target("u1"), target("u2/a1/r1")];
    let waiter = spawn_request(&locks, |locks| locks.request_all(both).named("both"));
    until_waiting(&locks, 1).await;
    let behind = spawn_acquire(&locks, "u1/a1");
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
    drop(behind.await.unwrap().unwrap());
    until_idle(&locks).await;
}
