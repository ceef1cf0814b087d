//! A client that sends nothing although its connection looks open: its host is gone, or it is stopped. Only the
//! server can free what it holds.

use crate::support::{Database, GENEROUS, Setup, on_each_engine, target};
use hierlock::Hierlock;
use hierlock::sql::Strategy;
use hierlock_conformance::is_free;
use hierlock_sandbox::Engine;
use sqlx::{PgConnection, Row};
use std::sync::mpsc;
use std::thread;

/// Long enough for the keep-alive of a busy machine.
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

/// One of two clients goes silent: others get its lock, and it learns of the loss when it continues. The other one
/// is idle too, but sends keep-alives, and keeps its lock.
async fn check_silent_client(database: &Database, parameters: &str) {
    let others = database.connect().await;
    let heard = database.connect_with(parameters).await;
    let kept = heard.acquire(target("u2")).await.unwrap();
    let (holds, until_it_holds) = mpsc::channel();
    let (wake, until_woken) = mpsc::channel();
    let url = format!("{}&{parameters}", database.url);
    // Its runtime runs only inside `block_on`: in between nothing is sent.
    let silent = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            Hierlock::connect(&url).await.unwrap().acquire(target("u1")).await.unwrap()
        });
        holds.send(()).unwrap();
        until_woken.recv().unwrap();
        runtime.block_on(async {
            let lost = tokio::time::timeout(GENEROUS, guard.lost())
                .await
                .expect("the loss was never reported");
            assert!(lost.is_lost(), "{lost}");
        });
    });
    tokio::task::block_in_place(|| until_it_holds.recv()).unwrap();
    assert!(!is_free(&others, "u1").await);
    let next = others.request(target("u1")).within(GENEROUS).acquire().await.unwrap();
    next.release().await.unwrap();
    wake.send(()).unwrap();
    tokio::task::block_in_place(|| silent.join()).unwrap();
    assert!(!is_free(&others, "u2").await);
    kept.release().await.unwrap();
}

/// A test cannot remove a host. But TCP keep-alive of the server's kernel notices that, if it is configured.
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
