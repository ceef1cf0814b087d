//! A cancelled acquire leaves nothing on the server: no waiting statement, no lock, no open transaction. Its
//! connection is clean and used again. All of this is read from the server.

use crate::support::{
    Database, OutsideSession, Setup, TEST_LIMIT, in_order, on_each_engine, on_every_setup, target,
};
use hierlock::Target;
use hierlock::sql::Strategy;
use hierlock_conformance::{until_free, until_idle, until_waiting};
use hierlock_sandbox::Engine;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// The limit for cleaning up. It takes less than 200 ms on an idle machine, usually less than 10.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(2);

on_every_setup!(
    a_dropped_or_timed_out_wait_ends_on_the_server,
    an_extension_granted_after_its_drop_is_released
);
on_each_engine!(
    cancelling_at_every_poll_leaves_the_server_clean,
    many_cancelled_waits_leave_the_connection_clean,
    a_cancelled_extension_ends_on_the_server,
);

fn three_targets() -> [Target; 3] {
    ["u1/a1/r1", "u1/a1/r9", "u2"].map(target)
}

/// Waits until only `left` sessions are busy, and checks that this did not take long.
async fn assert_cleaned_up(outside: &mut OutsideSession, left: usize, case: &str) {
    let took = outside.until_busy(left).await;
    println!("{case}: gone from the server after {took:?}");
    assert!(took < CLEAN_UP_TIMEOUT, "{case}: cleaning up took {took:?}");
}

/// A dropped waiter must not get the lock later, nor keep the locks that it had taken.
async fn a_dropped_or_timed_out_wait_ends_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let mut outside = database.outside().await;
    let held = others.acquire(target("u1/a1/r9")).await.unwrap();
    outside.until_busy(1).await;

    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_all(three_targets()).await }
    });
    until_waiting(&locks, 1).await;
    assert!(outside.busy().await.len() >= 2, "the server does not report the wait");
    waiting.abort();
    assert_cleaned_up(&mut outside, 1, "dropped").await;

    // When an acquire returns a timeout, nothing is left on the server.
    let within = Duration::from_millis(60);
    let late = locks.request_all(three_targets()).within(within).acquire().await;
    assert!(late.unwrap_err().is_timeout());
    assert_cleaned_up(&mut outside, 1, "timed out").await;

    // The connection is still usable and clean.
    drop(locks.acquire(target("u2")).await.unwrap());
    held.release().await.unwrap();
    drop(locks.acquire(target("u1")).await.unwrap());
    outside.until_busy(0).await;
}

/// An acquire may be dropped at every await point.
async fn cancelling_at_every_poll_leaves_the_server_clean(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let mut outside = database.outside().await;
    let mut context = Context::from_waker(Waker::noop());
    for is_held in [true, false] {
        let mut slowest = Duration::ZERO;
        let held =
            if is_held { Some(others.acquire(target("u1/a1/r9")).await.unwrap()) } else { None };
        for polls in 0..24 {
            {
                let mut acquire = pin!(locks.acquire_all(three_targets()));
                for poll in 0..polls {
                    if acquire.as_mut().poll(&mut context).is_ready() {
                        assert!(!is_held, "granted although the node is held");
                        break;
                    }
                    // Dropped at different points: before, during and after its work.
                    if poll % 3 == 2 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            slowest = slowest.max(outside.until_busy(usize::from(is_held)).await);
        }
        println!("dropped after any poll, held {is_held}: gone after {slowest:?} at most");
        assert!(slowest < CLEAN_UP_TIMEOUT, "cleaning up took {slowest:?}");
        if let Some(held) = held {
            held.release().await.unwrap();
        }
    }
    until_idle(&locks).await;
    drop(locks.acquire(target("u1")).await.unwrap());
}

/// Five hundred acquires on one connection are dropped at different moments. The connection must survive all of them, and be
/// clean.
async fn many_cancelled_waits_leave_the_connection_clean(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("connections=1").await;
    let others = database.connect().await;
    let mut outside = database.outside().await;
    let guard = locks.acquire(target("u2")).await.unwrap();
    let before = outside.busy_session().await;
    guard.release().await.unwrap();
    let held = others.acquire(target("u1/a1/r9")).await.unwrap();
    let begun = Instant::now();
    for round in 0..500_u64 {
        if round % 2 == 0 {
            // The connection is free, so this acquire reaches the server.
            until_idle(&locks).await;
        }
        let acquire = async {
            // Every fifth finds its node free, and is dropped while it holds the lock or just before.
            match round % 5 {
                0 => drop(locks.acquire(target("u3/a1")).await.unwrap()),
                _ => drop(locks.acquire_all(three_targets()).await.unwrap()),
            }
        };
        let moment = Duration::from_micros(round % 40 * 100);
        let _ = tokio::time::timeout(moment, acquire).await;
    }
    // The next acquire works.
    let guard = locks.acquire(target("u2")).await.unwrap();
    println!("500 cancelled acquires in {:?}", begun.elapsed());
    outside.until_busy(2).await;
    guard.release().await.unwrap();
    held.release().await.unwrap();
    outside.until_busy(0).await;
    // The session was never killed: its process id has not changed.
    let _guard = locks.acquire(target("u1")).await.unwrap();
    assert_eq!(outside.busy_session().await, before);
}

/// A guard whose waiting extension is dropped holds exactly what it held before.
async fn a_cancelled_extension_ends_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let mut outside = database.outside().await;
    // The extension wants a higher slot than the guard's, because only then it waits on every backend.
    let (first, second) = in_order(&locks);
    let held = others.acquire(second.clone()).await.unwrap();
    let mut guard = locks.acquire(first.clone()).await.unwrap();
    for late in [false, true] {
        for _ in 0..5 {
            {
                let within = Duration::from_millis(if late { 40 } else { 60_000 });
                let extend = guard.request(second.clone()).within(within).acquire();
                let extend = async { extend.await.unwrap_err() };
                let waits = async {
                    if late { std::future::pending().await } else { until_waiting(&locks, 1).await }
                };
                tokio::select! {
                    error = extend => assert!(late && error.is_timeout(), "{error}"),
                    () = waits => {}
                }
            }
            assert_cleaned_up(&mut outside, 2, "an extension").await;
            assert!(guard.targets().into_keys().eq([first.clone()]));
            assert!(others.try_acquire(first.clone()).await.unwrap().is_none());
        }
    }
    held.release().await.unwrap();
    guard.extend([second.clone()]).await.unwrap();
    assert!(others.try_acquire(second).await.unwrap().is_none());
    guard.release().await.unwrap();
    outside.until_busy(0).await;
}

/// An extension that is granted after its future was dropped must be released.
async fn an_extension_granted_after_its_drop_is_released(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let (first, second) = in_order(&locks);
    for _ in 0..3 {
        let other = others.acquire(second.clone()).await.unwrap();
        let mut guard = locks.acquire(first.clone()).await.unwrap();
        let before = guard.modes();
        {
            let mut extend = pin!(guard.extend([second.clone()]));
            tokio::select! {
                biased;
                done = &mut extend => panic!("granted although the node is held: {done:?}"),
                () = until_waiting(&locks, 1) => {}
            }
            // From here on the future is not polled.
            other.release().await.unwrap();
            // If the node is locked although the other guard is released, the extension was granted.
            while let Some(guard) = others.try_acquire(second.clone()).await.unwrap() {
                guard.release().await.unwrap();
            }
        }
        until_free(&others, &second.to_string()).await;
        assert_eq!((guard.modes(), guard.targets().len()), (before, 1));
        assert!(others.try_acquire(first.clone()).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

/// An idle connection on PostgreSQL may have begun the next transaction. It must end that soon.
#[tokio::test]
async fn an_idle_connection_leaves_its_transaction() {
    let setup = Setup { engine: Engine::Postgres, strategy: Strategy::Advisory };
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("keep_alive_ms=50").await;
    let mut outside = database.outside().await;
    for _ in 0..3 {
        locks.acquire(target("u1")).await.unwrap().release().await.unwrap();
        let idle = "SELECT count(*)::text FROM pg_stat_activity WHERE state LIKE 'idle in%' AND \
                    datname = current_database()";
        let begun = Instant::now();
        while outside.number(idle).await > 0 {
            assert!(begun.elapsed() < TEST_LIMIT, "the idle session did not end its transaction");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
