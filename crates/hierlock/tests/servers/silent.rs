//! A client that is not heard of any more, though its connection looks whole: its host has vanished, or it is
//! stopped. Nobody but the server can free what it holds.

use crate::support::{Database, GENEROUS, Setup, on_each_engine, target};
use hierlock::Hierlock;
use hierlock::sql::Strategy;
use hierlock_conformance::is_free;
use hierlock_sandbox::Engine;
use sqlx::{PgConnection, Row};
use std::sync::mpsc;
use std::thread;

/// Long enough for a busy machine to be heard in time.
const LIMIT: &str = "keep_alive_ms=200&client_silence_ms=5000";

on_each_engine!(a_client_that_is_not_heard_of_is_ended_by_the_server);

async fn a_client_that_is_not_heard_of_is_ended_by_the_server(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    one_goes_silent(&database, LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn also_on_a_connection_that_guards_share() {
    let setup = Setup { engine: Engine::Postgres, strategy: Strategy::Advisory };
    let Some(database) = Database::new(setup).await else { return };
    one_goes_silent(&database, &format!("{LIMIT}&scope=session")).await;
}

/// Of two clients one says nothing any more: its lock goes to others, and it knows when it wakes. The other one
/// has nothing to do either, but is heard, and keeps what it has.
async fn one_goes_silent(database: &Database, parameters: &str) {
    let others = database.connect().await;
    let heard = database.connect_with(parameters).await;
    let kept = heard.acquire(target("u2")).await.unwrap();
    let (holds, until_it_holds) = mpsc::channel();
    let (wake, until_woken) = mpsc::channel();
    let url = format!("{}&{parameters}", database.url);
    // Its runtime runs only while it is asked to: between two questions nothing is said.
    let silent = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            Hierlock::connect(&url).await.unwrap().acquire(target("u1")).await.unwrap()
        });
        holds.send(()).unwrap();
        until_woken.recv().unwrap();
        runtime.block_on(async {
            let lost = tokio::time::timeout(GENEROUS, guard.lost()).await.expect("never told");
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

/// No test can take a host away from a server; but it is the server's kernel that notices, if it was told to.
#[tokio::test]
async fn postgres_looks_for_hosts_that_have_vanished() {
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
