//! A program that ends leaves nothing on the server: `close` waits until everything is released. Each program here
//! is a runtime of its own, which is dropped when the program ends.

use crate::support::{
    Database, OutsideSession, Setup, TEST_LIMIT, in_order, on_each_engine, target,
};
use hierlock::sql::Strategy;
use hierlock::{Hierlock, blocking};
use hierlock_conformance::{is_free, until_free, until_waiting};
use hierlock_sandbox::Engine;
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};

const SHORT_KEEP_ALIVE: &str = "keep_alive_ms=100&silence_ms=1000";
const LONG_KEEP_ALIVE: &str = "keep_alive_ms=3600000&silence_ms=1000";

on_each_engine!(
    close_ends_a_lost_session,
    close_ends_the_session_of_a_dropped_guard,
    close_cancels_a_dropped_wait,
    close_times_out_if_the_server_is_unreachable,
    close_keeps_guards_and_the_client_usable,
);

/// Runs a program in its own runtime until it ends.
async fn run_program<W: Future<Output = ()>>(work: impl FnOnce() -> W + Send + 'static) {
    let run = move || Builder::new_current_thread().enable_all().build().unwrap().block_on(work());
    tokio::task::spawn_blocking(run).await.unwrap();
}

async fn connect(url: &str, parameters: &str) -> Hierlock {
    crate::support::connect(&format!("{url}&{parameters}")).await
}

/// Waits until the database has exactly `count` other sessions.
async fn wait_for_sessions(outside: &mut OutsideSession, count: usize) {
    let begun = Instant::now();
    loop {
        let sessions = outside.sessions().await;
        if sessions.len() == count {
            return;
        }
        assert!(
            begun.elapsed() < TEST_LIMIT,
            "expected {count} sessions within the limit, found {sessions:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The failure this prevents: the program ended on `lost()`, before its old session was ended. Only the client had
/// seen the reset, so the server kept the lock until its own network timeout.
async fn close_ends_a_lost_session(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (others, mut outside) = (database.connect().await, database.outside().await);
    let before = outside.sessions().await.len();
    // The proxy outlives the program, so that the server does not see the end of the connection.
    let proxy = Arc::new(Proxy::start(&database.url).await);
    let network = proxy.clone();
    run_program(move || async move {
        let locks = connect(&network.url, SHORT_KEEP_ALIVE).await;
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        network.reset_clients().await;
        let lost = tokio::time::timeout(TEST_LIMIT, guard.lost())
            .await
            .expect("the loss was never reported");
        assert!(lost.is_lost(), "{lost}");
        locks.close(TEST_LIMIT).await.unwrap();
    })
    .await;
    until_free(&others, "u1").await;
    wait_for_sessions(&mut outside, before).await;
}

/// The task that releases a dropped guard notices the loss, and `close` waits until the old session is ended.
async fn close_ends_the_session_of_a_dropped_guard(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (others, mut outside) = (database.connect().await, database.outside().await);
    let before = outside.sessions().await.len();
    let proxy = Arc::new(Proxy::start(&database.url).await);
    let (network, url) = (proxy.clone(), format!("{}&{LONG_KEEP_ALIVE}", proxy.url));
    tokio::task::spawn_blocking(move || {
        // The blocking API has `close` too.
        let locks = blocking::Hierlock::connect(&url).unwrap();
        let guard = locks.acquire(target("u1/a1")).unwrap();
        Handle::current().block_on(network.reset_clients());
        drop(guard);
        locks.close(TEST_LIMIT).unwrap();
    })
    .await
    .unwrap();
    until_free(&others, "u1").await;
    wait_for_sessions(&mut outside, before).await;
}

/// InnoDB does not notice that the client of a waiting statement has gone. It would continue to wait, and block
/// others, until it is granted.
async fn close_cancels_a_dropped_wait(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (others, mut outside) = (database.connect().await, database.outside().await);
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let url = database.url.clone();
    run_program(move || async move {
        let locks = connect(&url, LONG_KEEP_ALIVE).await;
        tokio::select! {
            _ = locks.acquire(target("u1")) => panic!("granted although the node is held"),
            () = until_waiting(&locks, 1) => {}
        }
        locks.close(TEST_LIMIT).await.unwrap();
    })
    .await;
    // Only the holder is left; a session that has just been closed may be seen ending.
    outside.busy_session().await;
    held.release().await.unwrap();
}

async fn close_times_out_if_the_server_is_unreachable(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let proxy = Proxy::start(&database.url).await;
    let locks = connect(&proxy.url, SHORT_KEEP_ALIVE).await;
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    proxy.set_mode(NetworkMode::Stalls);
    tokio::time::timeout(TEST_LIMIT, guard.lost()).await.expect("the loss was never reported");
    let begun = Instant::now();
    let error = locks.close(Duration::from_millis(100)).await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("could not be ended"), "{error}");
    assert!(begun.elapsed() < TEST_LIMIT / 2, "close took {:?}", begun.elapsed());
    // A second call waits again.
    proxy.set_mode(NetworkMode::Passes);
    locks.close(TEST_LIMIT).await.unwrap();
    // A stopped server has no sessions, so `close` does not wait for them.
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    proxy.set_mode(NetworkMode::Drops);
    tokio::time::timeout(TEST_LIMIT, guard.lost()).await.expect("the loss was never reported");
    drop(proxy);
    locks.close(TEST_LIMIT).await.unwrap();
}

async fn close_keeps_guards_and_the_client_usable(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, mut outside) = (database.connect().await, database.outside().await);
    let guard = locks.acquire(target("u1")).await.unwrap();
    drop(locks.acquire(target("u2")).await.unwrap());
    locks.close(TEST_LIMIT).await.unwrap();
    wait_for_sessions(&mut outside, 1).await;
    assert!(locks.try_acquire(target("u1")).await.unwrap().is_none());
    drop(locks.acquire(target("u2")).await.unwrap());
    guard.release().await.unwrap();
    locks.close(TEST_LIMIT).await.unwrap();
    wait_for_sessions(&mut outside, 0).await;
}

/// The failure this prevents: the connection on which an extension inserts missing rows was dropped silently when
/// it failed, and its session stayed on a server that had not noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_ends_the_session_that_inserts_rows() {
    for (engine, fault) in [
        (Engine::Postgres, Fault::ResetClient),
        (Engine::Postgres, Fault::LoseAnswers),
        (Engine::Mysql, Fault::ResetClient),
        (Engine::Mariadb, Fault::ResetClient),
    ] {
        let setup = Setup { engine, strategy: Strategy::OnDemand };
        let Some(database) = Database::new(setup).await else { continue };
        let mut outside = database.outside().await;
        let proxy = Proxy::start(&database.url).await;
        // Without TLS, because the proxy has to read the traffic.
        let plain = match engine {
            Engine::Postgres => "sslmode=disable",
            Engine::Mysql | Engine::Mariadb => "ssl-mode=disabled",
        };
        let locks = connect(&proxy.url, &format!("{LONG_KEEP_ALIVE}&{plain}")).await;
        let (first, second) = in_order(&locks);
        let mut guard = locks.acquire(first.clone()).await.unwrap();
        proxy.inject(FaultTrigger::Contains("INSERT"), fault);
        let error = guard.extend([second]).await.unwrap_err();
        assert!(proxy.has_injected() && !error.is_lost(), "{engine} {fault:?}: {error}");
        // The hold is on another connection.
        assert!(!is_free(&database.connect().await, &first.to_string()).await);
        guard.release().await.unwrap();
        locks.close(TEST_LIMIT).await.unwrap();
        wait_for_sessions(&mut outside, 0).await;
    }
}
