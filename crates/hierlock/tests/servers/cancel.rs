//! Whoever gives up leaves nothing on the server: no statement that waits, no lock, no open transaction,
//! and a connection that is clean and used again. All of it is read from the server.

use crate::support::{
    Database, GENEROUS, Outside, Setup, in_order, on_each_engine, on_every_setup, target,
};
use hierlock::Target;
use hierlock::sql::Strategy;
use hierlock_conformance::{until_free, until_idle, until_waiting};
use hierlock_sandbox::Engine;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Within 200 ms on a machine with nothing else to do, and usually within 10; a machine that also
/// compiles gets more.
const SOON: Duration = Duration::from_secs(2);

on_every_setup!(
    a_dropped_or_late_wait_is_gone_from_the_server,
    an_unnoticed_extension_is_given_back
);
on_each_engine!(
    cancelling_at_every_poll_leaves_the_server_clean,
    hundreds_of_cancelled_waits_on_one_connection,
    a_cancelled_extension_is_gone_from_the_server,
);

fn several() -> [Target; 3] {
    ["u1/a1/r1", "u1/a1/r9", "u2"].map(target)
}

/// Waits until only the holder is left; says how long that took, and that it was soon.
async fn gone_soon(outside: &mut Outside, left: usize, what: &str) {
    let took = outside.until_busy(left).await;
    println!("{what}: gone from the server after {took:?}");
    assert!(took < SOON, "{what}: {took:?}");
}

/// A waiter that is dropped must not get the lock when its turn comes; nor keep what it had taken.
async fn a_dropped_or_late_wait_is_gone_from_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let mut outside = database.outside().await;
    let held = others.acquire(target("u1/a1/r9")).await.unwrap();
    outside.until_busy(1).await;

    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_all(several()).await }
    });
    until_waiting(&locks, 1).await;
    assert!(outside.busy().await.len() >= 2, "the server does not know of the wait");
    waiting.abort();
    gone_soon(&mut outside, 1, "dropped").await;

    // Too late: nothing is left when it says so, no need to wait for it.
    let within = Duration::from_millis(60);
    let late = locks.request_all(several()).within(within).acquire().await;
    assert!(late.unwrap_err().is_timeout());
    gone_soon(&mut outside, 1, "too late").await;

    // The connection it used is still good, and free of anything.
    drop(locks.acquire(target("u2")).await.unwrap());
    held.release().await.unwrap();
    drop(locks.acquire(target("u1")).await.unwrap());
    outside.until_busy(0).await;
}

/// Every await point of an acquire is a place where it may be dropped.
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
                let mut acquire = pin!(locks.acquire_all(several()));
                for poll in 0..polls {
                    if acquire.as_mut().poll(&mut context).is_ready() {
                        assert!(!is_held, "granted beside the holder");
                        break;
                    }
                    // Different moments of its work: none, some, much.
                    if poll % 3 == 2 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            slowest = slowest.max(outside.until_busy(usize::from(is_held)).await);
        }
        println!("dropped after any poll, held {is_held}: gone after {slowest:?} at most");
        assert!(slowest < SOON, "{slowest:?}");
        if let Some(held) = held {
            held.release().await.unwrap();
        }
    }
    until_idle(&locks).await;
    drop(locks.acquire(target("u1")).await.unwrap());
}

/// One connection, five hundred acquires that are dropped at every moment there is: it is the same one
/// in the end, never ended by force, and clean.
async fn hundreds_of_cancelled_waits_on_one_connection(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with("connections=1").await;
    let others = database.connect().await;
    let mut outside = database.outside().await;
    let guard = locks.acquire(target("u2")).await.unwrap();
    let before = outside.the_busy_one().await;
    guard.release().await.unwrap();
    let held = others.acquire(target("u1/a1/r9")).await.unwrap();
    let begun = Instant::now();
    for round in 0..500_u64 {
        if round % 2 == 0 {
            // The connection is free, so this one gets as far as the server.
            until_idle(&locks).await;
        }
        let acquire = async {
            // Some find everything free, and are dropped with it in hand or on its way.
            match round % 5 {
                0 => drop(locks.acquire(target("u3/a1")).await.unwrap()),
                _ => drop(locks.acquire_all(several()).await.unwrap()),
            }
        };
        let moment = Duration::from_micros(round % 40 * 100);
        let _ = tokio::time::timeout(moment, acquire).await;
    }
    // The next one works.
    let guard = locks.acquire(target("u2")).await.unwrap();
    println!("500 cancelled acquires in {:?}", begun.elapsed());
    outside.until_busy(2).await;
    guard.release().await.unwrap();
    held.release().await.unwrap();
    outside.until_busy(0).await;
    // None was ended by force: it is still the connection of the beginning.
    let _guard = locks.acquire(target("u1")).await.unwrap();
    assert_eq!(outside.the_busy_one().await, before);
}

/// A guard whose extension is dropped while it waits keeps what it had, and nothing else.
async fn a_cancelled_extension_is_gone_from_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, others) = (database.connect().await, database.connect().await);
    let mut outside = database.outside().await;
    // Higher slots than the guard's own, for only in order does an extension wait everywhere.
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
            gone_soon(&mut outside, 2, "an extension").await;
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

/// An extension that is granted when nobody waits for it any more: the guard must not keep it.
async fn an_unnoticed_extension_is_given_back(setup: Setup) {
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
                done = &mut extend => panic!("beside the holder: {done:?}"),
                () = until_waiting(&locks, 1) => {}
            }
            // From here on nobody looks at it.
            other.release().await.unwrap();
            // Not free although the other is gone: then the extension has it.
            while let Some(stolen) = others.try_acquire(second.clone()).await.unwrap() {
                stolen.release().await.unwrap();
            }
        }
        until_free(&others, &second.to_string()).await;
        assert_eq!((guard.modes(), guard.targets().len()), (before, 1));
        assert!(others.try_acquire(first.clone()).await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

/// An idle connection on PostgreSQL may be in the next transaction already, which nobody should have to
/// wonder about for long.
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
            assert!(begun.elapsed() < GENEROUS, "it stays in a transaction");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
