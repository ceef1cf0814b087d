//! Tests that need their own server: it becomes read-only, it is killed, and it restarts with its data.

use crate::support::{OutsideSession, TEST_LIMIT, target};
use hierlock::Hierlock;
use hierlock_conformance::{is_free, until_waiting};
use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

on_each_server!(read_only_mode_and_a_killed_server_are_handled);

async fn read_only_mode_and_a_killed_server_are_handled(engine: Engine) {
    // Commits must survive the kill; by default a sandbox flushes them once a second.
    let durable: &[&str] = match engine {
        Engine::Postgres => &[],
        _ => &["--innodb-flush-log-at-trx-commit=1"],
    };
    let Some(mut server) = Sandbox::for_tests_with(engine, durable) else { return };
    let strategy = if engine == Engine::Postgres { "advisory" } else { "on-demand" };
    let url = format!("{}?strategy={strategy}&keep_alive_ms=100", server.url());
    let locks = Hierlock::connect(&url).await.unwrap();

    // A replica does not share the locks of its primary.
    if engine != Engine::Postgres {
        let mut outside = OutsideSession::connect(server.url()).await;
        outside.run("SET GLOBAL read_only = 1").await;
        let error = Hierlock::connect(&url).await.unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
        assert!(!error.is_usage() && !error.is_retryable(), "{error}");
        outside.run("SET GLOBAL read_only = 0").await;
    }

    // After a kill the guard reports its loss, and the waiter continues to wait for the server.
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1/a1/r1")).await }
    });
    until_waiting(&locks, 1).await;
    let pid = i32::try_from(server.pid().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let begun = Instant::now();
    let error =
        tokio::time::timeout(TEST_LIMIT, guard.lost()).await.expect("the loss was never reported");
    println!("{engine}: lost {:?} after kill -9: {error}", begun.elapsed());
    assert!(error.is_lost() && begun.elapsed() < Duration::from_secs(6), "{error}");
    assert!(guard.release().await.unwrap_err().is_lost());
    // A `try` fails at once.
    let error = locks.try_acquire(target("u1")).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
    assert!(!waiting.is_finished());

    // The waiter holds nothing that could be lost, so it continues on a new connection when the server is back. The failure
    // this prevents: it ended with an error when the server restarted.
    server.restart().unwrap();
    let waited = tokio::time::timeout(TEST_LIMIT, waiting)
        .await
        .expect("the acquire did not return within the limit");
    let guard = waited.unwrap().unwrap();
    println!("{engine}: the wait was granted {:?} after kill -9", begun.elapsed());
    assert!(guard.statistics().reconnects > 0);
    assert!(!is_free(&Hierlock::connect(&url).await.unwrap(), "u1/a1/r1").await);
    guard.release().await.unwrap();

    // Nothing is held: new clients can lock, and so can the old one, on new connections.
    let others = Hierlock::connect(&url).await.unwrap();
    let guard = others.acquire(target("u1/a1")).await.unwrap();
    assert!(!is_free(&locks, "u1").await);
    guard.release().await.unwrap();
    locks.acquire(target("u1/a1/r1")).await.unwrap().release().await.unwrap();
}
