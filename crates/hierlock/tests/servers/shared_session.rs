//! Guards that share one connection (`scope=session`, advisory keys on PostgreSQL).

use crate::support::{Database, OutsideSession, Setup, TEST_LIMIT, target};
use hierlock::sql::Strategy;
use hierlock::{Guard, Hierlock, Mode};
use hierlock_conformance::{is_free, until_free, until_waiting};
use hierlock_sandbox::proxy::Proxy;
use hierlock_sandbox::{Engine, Sandbox};
use std::time::{Duration, Instant};

async fn database() -> Option<Database> {
    Database::new(Setup { engine: Engine::Postgres, strategy: Strategy::Advisory }).await
}

async fn hold_many(locks: &Hierlock, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.acquire(target(&format!("u1/a1/r{number}"))).await.unwrap());
    }
    guards
}

/// The conformance suite without the two tests in which an extension must wait: on a shared session it never waits.
mod conformance {
    use hierlock_conformance::conformance;

    conformance!(async || match super::database().await {
            Some(database) => Some(database.connect_with("scope=session").await),
            None => None,
        }; extensions never wait);
}

#[tokio::test]
async fn many_guards_share_one_connection() {
    let Some(database) = database().await else { return };
    let mut outside = database.outside().await;
    let locks = database.connect_with("scope=session").await;
    let others = database.connect().await;
    let guards = hold_many(&locks, 200).await;
    // One session holds all keys.
    let sessions = "SELECT count(DISTINCT pid)::text FROM pg_locks WHERE locktype = 'advisory' AND \
                    database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(outside.number(sessions).await, 1);
    // The guards still exclude each other and other clients.
    assert!(!is_free(&locks, "u1/a1/r7").await && !is_free(&locks, "u1/a1").await);
    assert!(!is_free(&others, "u1/a1/r7").await && is_free(&others, "u1/a2").await);
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert!(is_free(&others, "u1").await);
    assert_eq!(outside.number(sessions).await, 0);
}

/// Two readers share the key on the server, where one release would free it for both.
#[tokio::test]
async fn a_released_reader_does_not_release_another() {
    let Some(database) = database().await else { return };
    let locks = database.connect_with("scope=session").await;
    let others = database.connect().await;
    let node = target("u1/a1/r1");
    let read = || locks.request(node.clone()).mode(Mode::Shared).acquire();
    let (first, second) = (read().await.unwrap(), read().await.unwrap());
    first.release().await.unwrap();
    assert!(!is_free(&others, "u1/a1/r1").await && !is_free(&locks, "u1/a1/r1").await);
    drop(second);
    until_free(&others, "u1").await;
}

#[tokio::test]
async fn a_waiter_uses_a_separate_connection() {
    let Some(database) = database().await else { return };
    let locks = database.connect_with("scope=session").await;
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1/a1/r1")).await }
    });
    until_waiting(&locks, 1).await;
    // The waiter does not block other acquires of the client.
    drop(locks.acquire(target("u2")).await.unwrap());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lost_connection_is_reported_to_all_guards() {
    let Some(database) = database().await else { return };
    let mut outside = database.outside().await;
    let locks = database.connect_with("scope=session&keep_alive_ms=100").await;
    let guards = hold_many(&locks, 5).await;
    let holder = "SELECT DISTINCT pid::text FROM pg_locks WHERE locktype = 'advisory' AND database = \
                  (SELECT oid FROM pg_database WHERE datname = current_database())";
    let session = outside.number(holder).await;
    outside.kill(session).await;
    for guard in guards {
        let lost = tokio::time::timeout(TEST_LIMIT, guard.lost())
            .await
            .expect("the loss was never reported");
        assert!(lost.is_lost(), "{lost}");
        assert!(guard.release().await.unwrap_err().is_lost());
    }
    // The next acquire works on a new connection.
    drop(locks.acquire(target("u1")).await.unwrap());
}

/// Only the client notices the loss. The server would keep all keys for hours.
#[tokio::test]
async fn a_half_open_connection_is_ended_on_the_server() {
    let Some(database) = database().await else { return };
    let others = database.connect().await;
    let proxy = Proxy::start(&database.url).await;
    let url = format!("{}&scope=session&keep_alive_ms=100&silence_ms=1000", proxy.url);
    let locks = Hierlock::connect(&url).await.unwrap();
    let guards = hold_many(&locks, 5).await;
    proxy.stall_opened();
    for guard in guards {
        let lost = tokio::time::timeout(TEST_LIMIT, guard.lost())
            .await
            .expect("the loss was never reported");
        assert!(lost.is_lost(), "{lost}");
    }
    until_free(&others, "u1").await;
}

/// Session-level keys survive a failed statement, so the client must release those that it had taken.
#[tokio::test]
async fn a_statement_that_fails_halfway_leaves_no_key() {
    // A separate server, because this uses up the lock memory of all its sessions.
    let Some(sandbox) = Sandbox::for_tests(Engine::Postgres) else { return };
    let locks = Hierlock::connect(&format!("{}?scope=session", sandbox.url())).await.unwrap();
    let mut outside = OutsideSession::connect(sandbox.url()).await;
    let too_many = (0..100_000).map(|number| target(&format!("u1/a1/r{number}")));
    let error = locks.acquire_all(too_many).await.unwrap_err();
    assert!(error.to_string().contains("shared memory"), "{error}");
    let keys = "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'";
    let begun = Instant::now();
    while outside.number(keys).await > 0 {
        assert!(begun.elapsed() < TEST_LIMIT, "the keys were not released within the limit");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(locks.acquire(target("u1")).await.unwrap());
}

#[tokio::test]
async fn shared_guards_have_no_transaction() {
    let Some(database) = database().await else { return };
    let locks = database.connect_with("scope=session").await.as_sql().unwrap();
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    let error = guard.transaction::<sqlx::PgConnection>().await.map(drop).unwrap_err();
    assert!(error.to_string().contains("scope=session"), "{error}");
    let token = guard.token().await.unwrap();
    assert!(guard.commit().await.unwrap_err().to_string().contains("scope=session"));
    let guard = locks.acquire(target("u1")).await.unwrap();
    assert!(guard.token().await.unwrap() > token);
}
