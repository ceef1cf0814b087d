//! What can only be tried on a server of one's own: it becomes read-only, it is killed with -9, and it comes
//! back with what it had.

use crate::support::{GENEROUS, Outside, target};
use hierlock::Hierlock;
use hierlock_conformance::{is_free, until_waiting};
use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

on_each_server!(a_server_goes_read_only_and_dies);

async fn a_server_goes_read_only_and_dies(engine: Engine) {
    // What is committed is to outlive the server: those of the sandbox write it down once a second.
    let durable: &[&str] = match engine {
        Engine::Postgres => &[],
        _ => &["--innodb-flush-log-at-trx-commit=1"],
    };
    let Some(mut server) = Sandbox::for_tests_with(engine, durable) else { return };
    let strategy = if engine == Engine::Postgres { "advisory" } else { "on-demand" };
    let url = format!("{}?strategy={strategy}&keep_alive_ms=100", server.url());
    let locks = Hierlock::connect(&url).await.unwrap();

    // A server that follows another does not share that one's locks.
    if engine != Engine::Postgres {
        let mut outside = Outside::connect(server.url()).await;
        outside.run("SET GLOBAL read_only = 1").await;
        let error = Hierlock::connect(&url).await.unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
        assert!(!error.is_usage() && !error.is_retryable(), "{error}");
        outside.run("SET GLOBAL read_only = 0").await;
    }

    // Killed: whoever holds is told, whoever waits does not wait for ever.
    let guard = locks.acquire(target("u1/a1")).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(target("u1/a1/r1")).await }
    });
    until_waiting(&locks, 1).await;
    let pid = i32::try_from(server.pid().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let begun = Instant::now();
    let error = tokio::time::timeout(GENEROUS, guard.lost()).await.expect("it was never told");
    println!("{engine}: lost {:?} after kill -9: {error}", begun.elapsed());
    assert!(error.is_lost() && begun.elapsed() < Duration::from_secs(6), "{error}");
    assert!(guard.release().await.unwrap_err().is_lost());
    // Who does not wait is told at once.
    let error = locks.try_acquire(target("u1")).await.unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
    assert!(!waiting.is_finished());

    // Whoever waits holds nothing that could be lost: it ended with an error when the server was restarted. It goes on
    // when the server is back, on a new connection.
    server.restart().unwrap();
    let waited = tokio::time::timeout(GENEROUS, waiting).await.expect("it waits for ever");
    let guard = waited.unwrap().unwrap();
    println!("{engine}: the wait was granted {:?} after kill -9", begun.elapsed());
    assert!(guard.statistics().reconnects > 0);
    assert!(!is_free(&Hierlock::connect(&url).await.unwrap(), "u1/a1/r1").await);
    guard.release().await.unwrap();

    // Nothing is held, new clients lock, and so does the old one, on new connections.
    let others = Hierlock::connect(&url).await.unwrap();
    let guard = others.acquire(target("u1/a1")).await.unwrap();
    assert!(!is_free(&locks, "u1").await);
    guard.release().await.unwrap();
    locks.acquire(target("u1/a1/r1")).await.unwrap().release().await.unwrap();
}
