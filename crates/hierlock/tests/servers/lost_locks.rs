//! A lost lock is reported, and never acquired again for its guard. A wait on a failed network ends.

use crate::support::{
    Database, Setup, TEST_LIMIT, in_order, on_each_engine, on_every_setup, target,
};
use hierlock::{Error, Guard, Hierlock, Result};
use hierlock_conformance::{is_free, until_free, until_waiting};
use hierlock_sandbox::proxy::{NetworkMode, Proxy};
use std::time::{Duration, Instant};

const KEEP_ALIVE: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_millis(1000);
/// [`KEEP_ALIVE`] and [`SILENCE`] as parameters of a URL.
const URL_PARAMETERS: &str = "keep_alive_ms=100&silence_ms=1000";
/// The delay that a busy machine may add.
const MAX_REPORT_DELAY: Duration = Duration::from_secs(10);
const WAIT_DOES_NOT_END: &str = "the acquire did not return within the limit";

on_every_setup!(a_killed_session_loses_its_lock, killed_idle_connections_are_replaced);
on_each_engine!(
    a_network_failure_loses_the_lock,
    a_half_open_hold_is_ended_on_the_server,
    a_release_without_a_response_ends_the_session,
    a_network_failure_ends_a_wait,
    a_stalled_network_ends_a_try,
    a_stalled_extension_loses_the_lock,
    a_lost_hold_ends_its_waiting_extension,
    a_dead_control_connection_does_not_end_a_wait,
    a_half_open_idle_connection_is_replaced,
    a_grant_that_never_arrives_is_released,
    a_wait_on_a_half_open_connection_starts_again,
    a_wait_survives_a_reset,
);

/// Connects a client through a proxy.
async fn connect_through_proxy(database: &Database, parameters: &str) -> (Proxy, Hierlock) {
    let proxy = Proxy::start(&database.url).await;
    let locks = Hierlock::connect(&format!("{}&{parameters}", proxy.url)).await.unwrap();
    (proxy, locks)
}

/// Checks that the guard reports its loss in time.
async fn assert_loss_is_reported(guard: &Guard) {
    let begun = Instant::now();
    let error =
        tokio::time::timeout(TEST_LIMIT, guard.lost()).await.expect("the loss was never reported");
    let took = begun.elapsed();
    println!("lost after {took:?}");
    assert!(took < KEEP_ALIVE + SILENCE + MAX_REPORT_DELAY, "{took:?}");
    assert!(error.is_lost() && error.to_string().contains("`u1"), "{error}");
}

/// Checks that the guard does not reconnect, although it could.
async fn assert_stays_lost(mut guard: Guard) {
    assert!(guard.extend([target("u2")]).await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
}

async fn a_killed_session_loses_its_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with(URL_PARAMETERS).await;
    let mut outside = database.outside().await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    assert!(
        tokio::time::timeout(3 * KEEP_ALIVE, guard.lost()).await.is_err(),
        "a loss was reported although the session is alive"
    );
    let holder = outside.busy_session().await;
    outside.kill(holder).await;
    assert_loss_is_reported(&guard).await;
    assert_stays_lost(guard).await;
    // Others can lock, and so can this client, on new connections.
    drop(database.connect().await.acquire(target("u1")).await.unwrap());
    drop(locks.acquire(target("u1")).await.unwrap());
}

/// A server restart, or a firewall that drops idle connections, must not fail the next acquire.
async fn killed_idle_connections_are_replaced(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect().await;
    let mut outside = database.outside().await;
    for is_try in [false, true, false] {
        locks.acquire(target("u1")).await.unwrap().release().await.unwrap();
        let sessions = outside.sessions().await;
        assert!(!sessions.is_empty());
        for session in &sessions {
            outside.kill(*session).await;
        }
        let guard = if is_try {
            locks.try_acquire(target("u1")).await.unwrap().unwrap()
        } else {
            locks.acquire(target("u1")).await.unwrap()
        };
        guard.release().await.unwrap();
        assert!(outside.sessions().await.is_disjoint(&sessions), "a killed session still exists");
    }
}

async fn a_network_failure_loses_the_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    for mode in [
        NetworkMode::Stalls,
        NetworkMode::Drops,
        NetworkMode::HalfClosesToClient,
        NetworkMode::HalfClosesToServer,
    ] {
        let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        println!("{mode:?}");
        proxy.set_mode(mode);
        assert_loss_is_reported(&guard).await;
        // Behind a stalled network the server releases the lock only when it sees that the connection is closed.
        proxy.set_mode(NetworkMode::Passes);
        until_free(&others, "u1").await;
        assert_stays_lost(guard).await;
    }
}

/// Only the client notices the loss. The server would keep the lock for hours.
async fn a_half_open_hold_is_ended_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    proxy.stall_opened();
    assert_loss_is_reported(&guard).await;
    until_free(&others, "u1").await;
    assert_stays_lost(guard).await;
}

/// The release or a COMMIT notices the loss first, and the session is ended on the server.
async fn a_release_without_a_response_ends_the_session(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    for commits in [false, true] {
        let long_keep_alive = "keep_alive_ms=3600000&silence_ms=1000";
        let (proxy, locks) = connect_through_proxy(&database, long_keep_alive).await;
        let locks = locks.as_sql().unwrap();
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        proxy.stall_opened();
        let ended = if commits { guard.commit().await } else { guard.release().await };
        let error = ended.unwrap_err();
        assert!(error.to_string().contains("no answer"), "{error}");
        // A COMMIT without a response may have succeeded, so it has its own error: a caller must not simply repeat the
        // work.
        assert_eq!(error.is_lost(), !commits, "{error}");
        until_free(&others, "u1").await;
    }
}

/// Returns the error of an acquire, and the time until it failed.
async fn expect_failure<T>(acquire: impl Future<Output = Result<T>>) -> (Error, Duration) {
    let begun = Instant::now();
    let ended = tokio::time::timeout(TEST_LIMIT, acquire).await.expect(WAIT_DOES_NOT_END);
    (ended.err().expect("the acquire succeeded, but must fail"), begun.elapsed())
}

async fn a_network_failure_ends_a_wait(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let short = Some(Duration::from_millis(300));
    for mode in [NetworkMode::Stalls, NetworkMode::Drops] {
        // Without a deadline it ends after `reconnect_ms`, which may be zero.
        for (within, reconnect) in [(None, SILENCE), (None, Duration::ZERO), (short, 60 * SILENCE)]
        {
            let quick = format!("{URL_PARAMETERS}&reconnect_ms={}", reconnect.as_millis());
            let (proxy, locks) = connect_through_proxy(&database, &quick).await;
            let held = others.acquire(target("u1/a1")).await.unwrap();
            let waiting = tokio::spawn({
                let locks = locks.clone();
                async move {
                    let request = locks.request(target("u1/a1/r1"));
                    match within {
                        Some(within) => request.within(within).acquire().await,
                        None => request.acquire().await,
                    }
                }
            });
            until_waiting(&locks, 1).await;
            proxy.set_mode(mode);
            let (error, took) = expect_failure(async { waiting.await.unwrap() }).await;
            println!("{mode:?}, within {within:?}: ended after {took:?}: {error}");
            assert!(took < Duration::from_secs(1) + 4 * SILENCE + MAX_REPORT_DELAY, "{took:?}");
            assert!(!error.is_usage() && !error.is_lost(), "{error}");
            // A statement left on the server ends when the server notices the end of its client, at the latest when it
            // responds.
            drop(proxy);
            held.release().await.unwrap();
            until_free(&others, "u1").await;
        }
    }
}

async fn a_stalled_network_ends_a_try(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
    drop(locks.acquire(target("u1")).await.unwrap());
    until_free(&locks, "u1").await;
    proxy.set_mode(NetworkMode::Stalls);
    let (error, took) = expect_failure(locks.try_acquire(target("u1"))).await;
    println!("a try ended after {took:?}: {error}");
    assert!(took < 3 * SILENCE + MAX_REPORT_DELAY, "{took:?}");
}

/// On a stalled network an extension fails, and the guard reports its loss.
async fn a_stalled_extension_loses_the_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
    let (first, second) = in_order(&locks);
    let held = others.acquire(second.clone()).await.unwrap();
    let mut guard = locks.acquire(first.clone()).await.unwrap();
    let stalls = async {
        until_waiting(&locks, 1).await;
        proxy.set_mode(NetworkMode::Stalls);
    };
    let ((error, took), ()) = tokio::join!(expect_failure(guard.extend([second.clone()])), stalls);
    println!("an extension ended after {took:?}: {error}");
    let error = tokio::time::timeout(TEST_LIMIT, guard.lost()).await.unwrap();
    assert!(error.is_lost(), "{error}");
    drop(proxy);
    held.release().await.unwrap();
    until_free(&others, &first.to_string()).await;
    until_free(&others, &second.to_string()).await;
}

/// An extension may wait for hours. If the hold is lost meanwhile, the extension must fail at once, and leave
/// nothing on the server.
async fn a_lost_hold_ends_its_waiting_extension(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with(URL_PARAMETERS).await;
    let others = database.connect().await;
    let mut outside = database.outside().await;
    let (first, second) = in_order(&locks);
    let held = others.acquire(second.clone()).await.unwrap();
    let other_session = outside.busy_session().await;
    let mut guard = locks.acquire(first).await.unwrap();
    outside.until_busy(2).await;
    let mut guard_sessions = outside.busy().await;
    guard_sessions.remove(&other_session);
    let kill_guard = async {
        until_waiting(&locks, 1).await;
        for session in guard_sessions {
            outside.kill(session).await;
        }
    };
    let ((error, took), ()) = tokio::join!(expect_failure(guard.extend([second])), kill_guard);
    println!("an extension ended after {took:?}: {error}");
    assert!(error.is_lost(), "{error}");
    assert!(guard.lost().await.is_lost());
    outside.until_busy(1).await;
    held.release().await.unwrap();
    until_free(&others, "u1").await;
    until_free(&others, "u2").await;
}

/// A control connection that is lost during a wait is replaced.
async fn a_dead_control_connection_does_not_end_a_wait(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let mut outside = database.outside().await;
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let before = outside.sessions().await;
    let locks = database.connect_with(URL_PARAMETERS).await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    until_waiting(&locks, 1).await;
    // Of the two new sessions one waits, and the other is the control session.
    let begun = Instant::now();
    let (control, before) = loop {
        let busy = outside.busy().await;
        let control = &(&outside.sessions().await - &before) - &busy;
        if !control.is_empty() {
            break (control, &before | &busy);
        }
        assert!(begun.elapsed() < TEST_LIMIT, "no control session was opened within the limit");
    };
    for session in &control {
        outside.kill(*session).await;
    }
    // The next request uses a new control session.
    let begun = Instant::now();
    while (&outside.sessions().await - &before).is_subset(&control) {
        assert!(begun.elapsed() < TEST_LIMIT, "the control session was not replaced in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// The index of a connection in the proxy. `connect` opens two: that of the first hold, and the control connection.
const FIRST_CONNECTION: usize = 0;
const THIRD_CONNECTION: usize = 2;

/// A firewall has dropped an idle connection: data that is sent on it does not arrive, and neither side gets an error.
async fn a_half_open_idle_connection_is_replaced(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
    proxy.set_mode(NetworkMode::StallsOne(FIRST_CONNECTION));
    let begun = Instant::now();
    let acquire = tokio::time::timeout(TEST_LIMIT, locks.acquire(target("u1")));
    let guard = acquire.await.expect(WAIT_DOES_NOT_END).unwrap();
    println!("replaced after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(1) + 2 * SILENCE + MAX_REPORT_DELAY);
    guard.release().await.unwrap();
    until_free(&others, "u1").await;
}

/// The server grants a lock, but its response does not arrive. The unused session must not keep the lock, and the client must
/// get the lock on another connection.
async fn a_grant_that_never_arrives_is_released(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    until_waiting(&locks, 1).await;
    proxy.set_mode(NetworkMode::StallsOne(FIRST_CONNECTION));
    held.release().await.unwrap();
    let begun = Instant::now();
    let guard = tokio::time::timeout(TEST_LIMIT, waiting).await.expect(WAIT_DOES_NOT_END);
    println!("granted again after {:?}", begun.elapsed());
    guard.unwrap().unwrap().release().await.unwrap();
    until_free(&others, "u1").await;
}

/// A wait on a new connection that becomes half open. As long as the server lists the wait, the client waits. Then the wait
/// starts again, and its old session does not block it.
async fn a_wait_on_a_half_open_connection_starts_again(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
    let own = locks.acquire(target("u2")).await.unwrap();
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let mut waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    until_waiting(&locks, 1).await;
    proxy.set_mode(NetworkMode::StallsOne(THIRD_CONNECTION));
    assert!(
        tokio::time::timeout(3 * SILENCE, &mut waiting).await.is_err(),
        "the wait ended although the server lists it"
    );
    held.release().await.unwrap();
    let begun = Instant::now();
    let waited = tokio::time::timeout(TEST_LIMIT, waiting).await.expect(WAIT_DOES_NOT_END);
    let guard = waited.unwrap().unwrap();
    println!("granted after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(1) + 3 * SILENCE + MAX_REPORT_DELAY);
    assert_eq!(guard.statistics().reconnects, 1);
    guard.release().await.unwrap();
    own.release().await.unwrap();
    until_free(&others, "u1").await;
}

/// The failure this prevents: waits failed at once when the server or the network was down for a moment.
async fn a_wait_survives_a_reset(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    for within in [None, Some(TEST_LIMIT)] {
        let (proxy, locks) = connect_through_proxy(&database, URL_PARAMETERS).await;
        // This guard uses the idle connection, so the wait uses a new one.
        let own = locks.acquire(target("u3")).await.unwrap();
        let held = others.acquire(target("u1/a1")).await.unwrap();
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move {
                let request = locks.request_all(["u1/a1", "u2"].map(target));
                match within {
                    Some(within) => request.within(within).acquire().await,
                    None => request.acquire().await,
                }
            }
        });
        until_waiting(&locks, 1).await;
        proxy.reset_clients().await;
        held.release().await.unwrap();
        let waited = tokio::time::timeout(TEST_LIMIT, waiting).await.expect(WAIT_DOES_NOT_END);
        let guard = waited.unwrap().unwrap();
        assert!(own.lost().await.is_lost());
        assert!(!is_free(&others, "u2").await && !is_free(&others, "u1").await);
        guard.release().await.unwrap();
        until_free(&others, "u1").await;
    }
}
