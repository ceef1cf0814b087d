//! A program that ends leaves nothing on the server: `close` waits for what is still being given back. Each program here is
//! a runtime of its own, which is gone with everything in it when the program is over.

use crate::support::{Database, GENEROUS, Outside, Setup, in_order, on_each_engine, target};
use hierlock::sql::Strategy;
use hierlock::{Hierlock, blocking};
use hierlock_conformance::{is_free, until_free, until_waiting};
use hierlock_sandbox::Engine;
use hierlock_sandbox::proxy::{Fault, FaultTrigger, NetworkMode, Proxy};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const QUICK: &str = "keep_alive_ms=100&silence_ms=1000";
const SELDOM: &str = "keep_alive_ms=3600000&silence_ms=1000";

on_each_engine!(
    a_lost_session_is_ended_before_the_program,
    a_dropped_guard_of_a_lost_connection_is_ended_before_the_program,
    a_dropped_wait_is_cancelled_before_the_program_ends,
    a_server_that_is_away_is_waited_for_no_longer_than_told,
    guards_stay_held_and_the_client_goes_on,
);

/// Runs a program to its end.
async fn program<W: Future<Output = ()>>(work: impl FnOnce() -> W + Send + 'static) {
    let run = move || Builder::new_current_thread().enable_all().build().unwrap().block_on(work());
    tokio::task::spawn_blocking(run).await.unwrap();
}

async fn connect(url: &str, parameters: &str) -> Hierlock {
    Hierlock::connect(&format!("{url}&{parameters}")).await.unwrap()
}

/// No session of ours is left, but for so many.
async fn until_sessions(outside: &mut Outside, count: usize) {
    let begun = Instant::now();
    loop {
        let sessions = outside.sessions().await;
        if sessions.len() == count {
            return;
        }
        assert!(begun.elapsed() < GENEROUS, "there are {sessions:?}, not {count}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The program ended on `lost()`, before its old session was ended: a reset that only it had heard of. The server kept
/// the lock until its own network gave up.
async fn a_lost_session_is_ended_before_the_program(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (others, mut outside) = (database.connect().await, database.outside().await);
    let before = outside.sessions().await.len();
    // It outlives the program: else the server would hear of its end.
    let proxy = Arc::new(Proxy::before(&database.url).await);
    let network = proxy.clone();
    program(move || async move {
        let locks = connect(&network.url, QUICK).await;
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        network.reset_clients();
        let lost = tokio::time::timeout(GENEROUS, guard.lost()).await.expect("it was never told");
        assert!(lost.is_lost(), "{lost}");
        locks.close(GENEROUS).await.unwrap();
    })
    .await;
    until_free(&others, "u1").await;
    until_sessions(&mut outside, before).await;
}

/// The same, if the loss is noticed by the task that gives back what a dropped guard has.
async fn a_dropped_guard_of_a_lost_connection_is_ended_before_the_program(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (others, mut outside) = (database.connect().await, database.outside().await);
    let before = outside.sessions().await.len();
    let proxy = Arc::new(Proxy::before(&database.url).await);
    let (network, url) = (proxy.clone(), format!("{}&{SELDOM}", proxy.url));
    tokio::task::spawn_blocking(move || {
        // Blocking programs have it too.
        let locks = blocking::Hierlock::connect(&url).unwrap();
        let guard = locks.acquire(target("u1/a1")).unwrap();
        network.reset_clients();
        drop(guard);
        locks.close(GENEROUS).unwrap();
    })
    .await
    .unwrap();
    until_free(&others, "u1").await;
    until_sessions(&mut outside, before).await;
}

/// InnoDB does not notice that the client of a waiting statement has gone: it would wait on, and block others, until it is
/// granted.
async fn a_dropped_wait_is_cancelled_before_the_program_ends(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (others, mut outside) = (database.connect().await, database.outside().await);
    let held = others.acquire(target("u1/a1")).await.unwrap();
    let url = database.url.clone();
    program(move || async move {
        let locks = connect(&url, SELDOM).await;
        tokio::select! {
            _ = locks.acquire(target("u1")) => panic!("beside the holder"),
            () = until_waiting(&locks, 1) => {}
        }
        locks.close(GENEROUS).await.unwrap();
    })
    .await;
    assert_eq!(outside.busy().await.len(), 1, "the wait is still there");
    held.release().await.unwrap();
}

async fn a_server_that_is_away_is_waited_for_no_longer_than_told(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let proxy = Proxy::before(&database.url).await;
    let locks = connect(&proxy.url, QUICK).await;
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    proxy.set_mode(NetworkMode::Stalls);
    tokio::time::timeout(GENEROUS, guard.lost()).await.expect("it was never told");
    let begun = Instant::now();
    let error = locks.close(Duration::from_millis(100)).await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("could not be told"), "{error}");
    assert!(begun.elapsed() < GENEROUS / 2, "{:?}", begun.elapsed());
    // Called again, it goes on waiting.
    proxy.set_mode(NetworkMode::Passes);
    locks.close(GENEROUS).await.unwrap();
    // One that is gone has no sessions: nobody waits for ever.
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    proxy.set_mode(NetworkMode::Drops);
    tokio::time::timeout(GENEROUS, guard.lost()).await.expect("it was never told");
    drop(proxy);
    locks.close(GENEROUS).await.unwrap();
}

async fn guards_stay_held_and_the_client_goes_on(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let (locks, mut outside) = (database.connect().await, database.outside().await);
    let guard = locks.acquire(target("u1")).await.unwrap();
    drop(locks.acquire(target("u2")).await.unwrap());
    locks.close(GENEROUS).await.unwrap();
    until_sessions(&mut outside, 1).await;
    assert!(locks.try_acquire(target("u1")).await.unwrap().is_none());
    drop(locks.acquire(target("u2")).await.unwrap());
    guard.release().await.unwrap();
    locks.close(GENEROUS).await.unwrap();
    until_sessions(&mut outside, 0).await;
}

/// The connection on which an extension makes the rows that are missing was dropped without a word when it failed: its
/// session stayed, idle, on a server that had not heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_makes_rows_for_an_extension_is_ended() {
    for (engine, fault) in [
        (Engine::Postgres, Fault::ResetClient),
        (Engine::Postgres, Fault::LoseAnswers),
        (Engine::Mysql, Fault::ResetClient),
        (Engine::Mariadb, Fault::ResetClient),
    ] {
        let setup = Setup { engine, strategy: Strategy::OnDemand };
        let Some(database) = Database::new(setup).await else { continue };
        let mut outside = database.outside().await;
        let proxy = Proxy::before(&database.url).await;
        // The network must be able to read what is said.
        let plain = match engine {
            Engine::Postgres => "sslmode=disable",
            Engine::Mysql | Engine::Mariadb => "ssl-mode=disabled",
        };
        let locks = connect(&proxy.url, &format!("{SELDOM}&{plain}")).await;
        let (first, second) = in_order(&locks);
        let mut guard = locks.acquire(first.clone()).await.unwrap();
        proxy.inject(FaultTrigger::Says("INSERT"), fault);
        let error = guard.extend([second]).await.unwrap_err();
        assert!(proxy.has_injected() && !error.is_lost(), "{engine} {fault:?}: {error}");
        // The hold is another connection's.
        assert!(!is_free(&database.connect().await, &first.to_string()).await);
        guard.release().await.unwrap();
        locks.close(GENEROUS).await.unwrap();
        until_sessions(&mut outside, 0).await;
    }
}
