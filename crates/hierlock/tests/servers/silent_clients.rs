//! A client that sends nothing on an open connection: its host is gone, or its process is stopped. Only the server can
//! release its locks.

use crate::support::{Database, Setup, TEST_LIMIT, on_each_engine, target};
use hierlock::Hierlock;
use hierlock::sql::Strategy;
use hierlock_conformance::is_free;
use hierlock_sandbox::Engine;
use sqlx::{PgConnection, Row};
use std::sync::mpsc;
use std::thread;

/// The silence is long enough for the keep-alives of a busy machine.
const URL_PARAMETERS: &str = "keep_alive_ms=200&client_silence_ms=5000";

on_each_engine!(the_server_ends_a_silent_client);

async fn the_server_ends_a_silent_client(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    check_silent_client(&database, URL_PARAMETERS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_ends_a_silent_shared_connection() {
    let setup = Setup { engine: Engine::Postgres, strategy: Strategy::Advisory };
    let Some(database) = Database::new(setup).await else { return };
    check_silent_client(&database, &format!("{URL_PARAMETERS}&scope=session")).await;
}

/// One of two clients becomes silent: others get its lock, and its guard reports the loss when the client continues. The
/// other client is idle too, but sends keep-alives, and keeps its lock.
async fn check_silent_client(database: &Database, parameters: &str) {
    let others = database.connect().await;
    let idle_client = database.connect_with(parameters).await;
    let idle_guard = idle_client.acquire(target("u2")).await.unwrap();
    let (send_acquired, acquired) = mpsc::channel();
    let (send_wake, wake) = mpsc::channel();
    let url = format!("{}&{parameters}", database.url);
    // The client's runtime runs only inside `block_on`. In between it sends nothing.
    let silent = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            Hierlock::connect(&url).await.unwrap().acquire(target("u1")).await.unwrap()
        });
        send_acquired.send(()).unwrap();
        wake.recv().unwrap();
        runtime.block_on(async {
            let lost = tokio::time::timeout(TEST_LIMIT, guard.lost())
                .await
                .expect("the loss was never reported");
            assert!(lost.is_lost(), "{lost}");
        });
    });
    tokio::task::block_in_place(|| acquired.recv()).unwrap();
    assert!(!is_free(&others, "u1").await);
    let next = others.request(target("u1")).within(TEST_LIMIT).acquire().await.unwrap();
    next.release().await.unwrap();
    send_wake.send(()).unwrap();
    tokio::task::block_in_place(|| silent.join()).unwrap();
    assert!(!is_free(&others, "u2").await);
    idle_guard.release().await.unwrap();
}

/// TCP keep-alive of the server's kernel notices a host that is gone. A test cannot remove a host, so it checks the settings.
#[tokio::test]
async fn postgres_sessions_have_tcp_keep_alive() {
    let setup = Setup { engine: Engine::Postgres, strategy: Strategy::Advisory };
    let Some(database) = Database::new(setup).await else { return };
    let locks = database.connect_sql().await;
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    let mut work = guard.transaction::<PgConnection>().await.unwrap();
    let settings = "SELECT current_setting('tcp_keepalives_idle')::int + \
                    current_setting('tcp_keepalives_interval')::int * \
                    current_setting('tcp_keepalives_count')::int";
    let seconds: i32 = sqlx::query(settings).fetch_one(&mut *work).await.unwrap().get(0);
    assert_eq!(seconds, 30);
}
