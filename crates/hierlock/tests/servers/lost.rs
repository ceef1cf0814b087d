//! A lock that is lost is told, and never taken again behind its guard's back; and who waits on a network
//! that has failed is not left waiting for ever.

use crate::support::{Database, GENEROUS, Setup, in_order, on_each_engine, on_every_setup, target};
use hierlock::{Error, Guard, Hierlock, Result};
use hierlock_conformance::{is_free, until_free, until_waiting};
use hierlock_sandbox::proxy::{NetworkMode, Proxy};
use std::time::{Duration, Instant};

const KEEP_ALIVE: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_millis(1000);
/// As parameters of a URL.
const QUICK: &str = "keep_alive_ms=100&silence_ms=1000";
/// What a machine that also compiles may add.
const SLACK: Duration = Duration::from_secs(10);

on_every_setup!(a_killed_session_is_a_lost_lock, connections_that_died_in_their_sleep_are_replaced);
on_each_engine!(
    a_network_that_fails_is_a_lost_lock,
    a_hold_that_the_network_forgets_is_ended_on_the_server,
    a_release_that_never_arrives_is_ended_on_the_server,
    a_wait_on_a_network_that_fails_ends,
    a_try_on_a_network_that_stalls_ends,
    an_extension_on_a_network_that_stalls_is_a_lost_lock,
    a_hold_that_is_lost_while_more_is_waited_for_ends_the_wait,
    only_one_lost_answer_is_no_silence,
    an_idle_connection_that_is_half_open_is_replaced,
    a_grant_that_never_arrives_is_given_back,
    a_wait_on_a_new_connection_that_is_half_open_begins_anew,
    a_wait_outlives_a_reset,
);

/// A network before a server, and a client behind it.
async fn behind(database: &Database, parameters: &str) -> (Proxy, Hierlock) {
    let proxy = Proxy::before(&database.url).await;
    let locks = Hierlock::connect(&format!("{}&{parameters}", proxy.url)).await.unwrap();
    (proxy, locks)
}

/// The guard knows within what was promised.
async fn is_told(guard: &Guard) {
    let begun = Instant::now();
    let error = tokio::time::timeout(GENEROUS, guard.lost()).await.expect("it was never told");
    let took = begun.elapsed();
    println!("lost after {took:?}");
    assert!(took < KEEP_ALIVE + SILENCE + SLACK, "{took:?}");
    assert!(error.is_lost() && error.to_string().contains("`u1"), "{error}");
}

/// It does not connect again behind its owner's back, though it could.
async fn stays_lost(mut guard: Guard) {
    assert!(guard.extend([target("u2")]).await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
}

async fn a_killed_session_is_a_lost_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with(QUICK).await;
    let mut outside = database.outside().await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    assert!(tokio::time::timeout(3 * KEEP_ALIVE, guard.lost()).await.is_err(), "not lost yet");
    let holder = outside.the_busy_one().await;
    outside.kill(holder).await;
    is_told(&guard).await;
    stays_lost(guard).await;
    // Others go on, and so does this client, on new connections.
    drop(database.connect().await.acquire(target("u1")).await.unwrap());
    drop(locks.acquire(target("u1")).await.unwrap());
}

/// A server restart, or a firewall that forgets, must not fail the next acquire.
async fn connections_that_died_in_their_sleep_are_replaced(setup: Setup) {
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
        assert!(outside.sessions().await.is_disjoint(&sessions), "a killed one lives");
    }
}

async fn a_network_that_fails_is_a_lost_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    for mode in [
        NetworkMode::Stalls,
        NetworkMode::Drops,
        NetworkMode::HalfClosesToClient,
        NetworkMode::HalfClosesToServer,
    ] {
        let (proxy, locks) = behind(&database, QUICK).await;
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        println!("{mode:?}");
        proxy.set_mode(mode);
        is_told(&guard).await;
        // Behind a network that stalls the server cannot know: the lock is free only when it hears that
        // the connection was closed.
        proxy.set_mode(NetworkMode::Passes);
        until_free(&others, "u1").await;
        stays_lost(guard).await;
    }
}

/// The client knows that it has lost its lock; the server, which hears nothing, would keep it for hours.
async fn a_hold_that_the_network_forgets_is_ended_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = behind(&database, QUICK).await;
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    proxy.stall_opened();
    is_told(&guard).await;
    until_free(&others, "u1").await;
    stays_lost(guard).await;
}

/// The same, if that is noticed first by giving it back, or by a COMMIT.
async fn a_release_that_never_arrives_is_ended_on_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    for commits in [false, true] {
        let seldom = "keep_alive_ms=3600000&silence_ms=1000";
        let (proxy, locks) = behind(&database, seldom).await;
        let locks = locks.as_sql().unwrap();
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        proxy.stall_opened();
        let ended = if commits { guard.commit().await } else { guard.release().await };
        let error = ended.unwrap_err();
        assert!(error.to_string().contains("no answer"), "{error}");
        // Whoever reads "the server failed" would think that nothing was done, and repeat the work. A COMMIT that
        // was not answered has words of its own.
        assert_eq!(error.is_lost(), !commits, "{error}");
        until_free(&others, "u1").await;
    }
}

/// How an acquire ended, and how long that took from now on.
async fn ends<T>(acquire: impl Future<Output = Result<T>>) -> (Error, Duration) {
    let begun = Instant::now();
    let ended = tokio::time::timeout(GENEROUS, acquire).await.expect("it waits for ever");
    (ended.err().expect("it cannot have been granted"), begun.elapsed())
}

async fn a_wait_on_a_network_that_fails_ends(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let short = Some(Duration::from_millis(300));
    for mode in [NetworkMode::Stalls, NetworkMode::Drops] {
        // Without a deadline, after as long as it was told to; or at once.
        for (within, reconnect) in [(None, SILENCE), (None, Duration::ZERO), (short, 60 * SILENCE)]
        {
            let quick = format!("{QUICK}&reconnect_ms={}", reconnect.as_millis());
            let (proxy, locks) = behind(&database, &quick).await;
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
            let (error, took) = ends(async { waiting.await.unwrap() }).await;
            println!("{mode:?}, within {within:?}: ended after {took:?}: {error}");
            assert!(took < Duration::from_secs(1) + 4 * SILENCE + SLACK, "{took:?}");
            assert!(!error.is_usage() && !error.is_lost(), "{error}");
            // What is left of it on the server goes when the server hears of it, at the latest when
            // it would answer.
            drop(proxy);
            held.release().await.unwrap();
            until_free(&others, "u1").await;
        }
    }
}

async fn a_try_on_a_network_that_stalls_ends(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (proxy, locks) = behind(&database, QUICK).await;
    drop(locks.acquire(target("u1")).await.unwrap());
    until_free(&locks, "u1").await;
    proxy.set_mode(NetworkMode::Stalls);
    let (error, took) = ends(locks.try_acquire(target("u1"))).await;
    println!("a try ended after {took:?}: {error}");
    assert!(took < 3 * SILENCE + SLACK, "{took:?}");
}

/// More for a guard, on a network that stalls: the extension ends, and so the guard knows that it is lost.
async fn an_extension_on_a_network_that_stalls_is_a_lost_lock(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = behind(&database, QUICK).await;
    let (first, second) = in_order(&locks);
    let held = others.acquire(second.clone()).await.unwrap();
    let mut guard = locks.acquire(first.clone()).await.unwrap();
    let stalls = async {
        until_waiting(&locks, 1).await;
        proxy.set_mode(NetworkMode::Stalls);
    };
    let ((error, took), ()) = tokio::join!(ends(guard.extend([second.clone()])), stalls);
    println!("an extension ended after {took:?}: {error}");
    let error = tokio::time::timeout(GENEROUS, guard.lost()).await.unwrap();
    assert!(error.is_lost(), "{error}");
    drop(proxy);
    held.release().await.unwrap();
    until_free(&others, &first.to_string()).await;
    until_free(&others, &second.to_string()).await;
}

/// An extension may wait for hours. If the hold is lost meanwhile, whoever extends must not learn it only
/// when it is granted; and nothing of it is left on the server.
async fn a_hold_that_is_lost_while_more_is_waited_for_ends_the_wait(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_with(QUICK).await;
    let others = database.connect().await;
    let mut outside = database.outside().await;
    let (first, second) = in_order(&locks);
    let held = others.acquire(second.clone()).await.unwrap();
    let of_others = outside.the_busy_one().await;
    let mut guard = locks.acquire(first).await.unwrap();
    outside.until_busy(2).await;
    let mut own = outside.busy().await;
    own.remove(&of_others);
    let kills = async {
        until_waiting(&locks, 1).await;
        for session in own {
            outside.kill(session).await;
        }
    };
    let ((error, took), ()) = tokio::join!(ends(guard.extend([second])), kills);
    println!("an extension ended after {took:?}: {error}");
    assert!(error.is_lost(), "{error}");
    assert!(guard.lost().await.is_lost());
    outside.until_busy(1).await;
    held.release().await.unwrap();
    until_free(&others, "u1").await;
    until_free(&others, "u2").await;
}

/// That the connection which asks has died is no reason to give up a wait: it is replaced.
async fn only_one_lost_answer_is_no_silence(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let mut outside = database.outside().await;
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let before = outside.sessions().await;
    let locks = database.connect_with(QUICK).await;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    until_waiting(&locks, 1).await;
    // Of the two that are new one waits, and the other asks now and then.
    let begun = Instant::now();
    let (side, before) = loop {
        let busy = outside.busy().await;
        let side = &(&outside.sessions().await - &before) - &busy;
        if !side.is_empty() {
            break (side, &before | &busy);
        }
        assert!(begun.elapsed() < GENEROUS, "nobody asks");
    };
    for session in &side {
        outside.kill(*session).await;
    }
    // Asked again on a new one.
    let begun = Instant::now();
    while (&outside.sessions().await - &before).is_subset(&side) {
        assert!(begun.elapsed() < GENEROUS, "nobody asks any more");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// The connection of the first hold, and the control connection, are opened when a client connects.
const FIRST: usize = 0;
const THIRD: usize = 2;

/// A firewall has forgotten an idle connection: nothing that is said on it arrives, and nobody says so.
async fn an_idle_connection_that_is_half_open_is_replaced(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = behind(&database, QUICK).await;
    proxy.set_mode(NetworkMode::StallsOne(FIRST));
    let begun = Instant::now();
    let acquire = tokio::time::timeout(GENEROUS, locks.acquire(target("u1")));
    let guard = acquire.await.expect("it waits for ever").unwrap();
    println!("replaced after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(1) + 2 * SILENCE + SLACK);
    guard.release().await.unwrap();
    until_free(&others, "u1").await;
}

/// The server grants what a client waits for, and says so in vain: the lock must not stay with a
/// connection that nobody hears, and the client must not wait for ever.
async fn a_grant_that_never_arrives_is_given_back(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = behind(&database, QUICK).await;
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    until_waiting(&locks, 1).await;
    proxy.set_mode(NetworkMode::StallsOne(FIRST));
    held.release().await.unwrap();
    let begun = Instant::now();
    let guard = tokio::time::timeout(GENEROUS, waiting).await.expect("it waits for ever");
    println!("had again after {:?}", begun.elapsed());
    guard.unwrap().unwrap().release().await.unwrap();
    until_free(&others, "u1").await;
}

/// The same on a connection that was opened for this very wait. While the server says that it waits, it waits; then it
/// begins anew, and its old session is not in its way.
async fn a_wait_on_a_new_connection_that_is_half_open_begins_anew(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    let (proxy, locks) = behind(&database, QUICK).await;
    let own = locks.acquire(target("u2")).await.unwrap();
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let mut waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1")).await }
    });
    until_waiting(&locks, 1).await;
    proxy.set_mode(NetworkMode::StallsOne(THIRD));
    assert!(tokio::time::timeout(3 * SILENCE, &mut waiting).await.is_err(), "it is known to wait");
    held.release().await.unwrap();
    let begun = Instant::now();
    let waited = tokio::time::timeout(GENEROUS, waiting).await.expect("it waits for ever");
    let guard = waited.unwrap().unwrap();
    println!("had after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(1) + 3 * SILENCE + SLACK);
    assert_eq!(guard.statistics().reconnects, 1);
    guard.release().await.unwrap();
    own.release().await.unwrap();
    until_free(&others, "u1").await;
}

/// They ended at once, with an error, when the server or the network was gone for a moment.
async fn a_wait_outlives_a_reset(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let others = database.connect().await;
    for within in [None, Some(GENEROUS)] {
        let (proxy, locks) = behind(&database, QUICK).await;
        // So the wait has a connection that was opened for it, not one that may have died in its sleep.
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
        proxy.reset_clients();
        held.release().await.unwrap();
        let waited = tokio::time::timeout(GENEROUS, waiting).await.expect("it waits for ever");
        let guard = waited.unwrap().unwrap();
        assert!(own.lost().await.is_lost());
        assert!(!is_free(&others, "u2").await && !is_free(&others, "u1").await);
        guard.release().await.unwrap();
        until_free(&others, "u1").await;
    }
}
