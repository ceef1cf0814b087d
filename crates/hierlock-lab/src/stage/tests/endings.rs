//! How it all ends: cancelled, closed, dropped, or with the server.

use super::*;
use hierlock_sandbox::Sandbox;
use std::time::Instant;

on_all!(
    a_wait_is_cancelled,
    a_cancel_at_once_is_not_lost,
    closing_leaves_nothing,
    dropping_leaves_nothing,
    what_a_dead_process_left_is_swept,
    a_server_that_dies_is_told_in_a_sentence,
    only_statements_are_played,
);

/// What of the lab is on the server: databases, schemas, and connections to them.
async fn left(server: &Server) -> usize {
    let mut wire = server.inner.address.connect().await.unwrap();
    let mark = server.inner.mark();
    let questions = match server.engine() {
        Engine::Postgres => [
            format!("select nspname from pg_namespace where nspname like '{mark}%'"),
            format!("select datname from pg_database where datname like '{mark}%'"),
        ],
        _ => [
            format!("show databases like '{mark}%'"),
            format!("select id from information_schema.processlist where db like '{mark}%'"),
        ],
    };
    let mut left = 0;
    for question in questions {
        left += wire.ask(&question).await.unwrap().len();
    }
    wire.close().await;
    left
}

/// Which connections are still there, of some.
async fn connected(server: &Server, ids: &[i64]) -> usize {
    let mut wire = server.inner.address.connect().await.unwrap();
    let list = match server.engine() {
        Engine::Postgres => "select pid from pg_stat_activity",
        _ => "select id from information_schema.processlist",
    };
    let rows = wire.ask(list).await.unwrap();
    wire.close().await;
    let is_there = |row: &&Vec<Option<String>>| {
        row[0].as_ref().is_some_and(|id| ids.contains(&id.parse().unwrap()))
    };
    rows.iter().filter(is_there).count()
}

/// A server takes a moment to see that a connection is closed.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < LONG, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const TAKE: &str = "select * from numbers where id = 1 for update";

async fn a_wait_is_cancelled(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", TAKE]).await;
    play.all("B", &["begin"]).await;
    let reply = play.begin("B", TAKE);
    play.blocked("B").await;
    play.stage.cancel(&name("B")).await.unwrap();
    assert_eq!(failed(reply).await, FailureKind::Cancelled);
    // It goes on, and what was idle is not touched.
    play.all("B", &["rollback", "select 1"]).await;
    play.stage.cancel(&name("A")).await.unwrap();
    play.all("A", &["select 1"]).await;
    play.close().await;
}

async fn a_cancel_at_once_is_not_lost(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", TAKE]).await;
    for _ in 0..20 {
        let reply = play.begin("B", TAKE);
        play.stage.cancel(&name("B")).await.unwrap();
        assert_eq!(failed(reply).await, FailureKind::Cancelled);
    }
    play.close().await;
}

async fn closing_leaves_nothing(server: Server) {
    let mut case = numbers(server.engine());
    case.teardown.push("drop table numbers".to_owned());
    let play = Play::open(server.clone(), &case).await;
    assert!(left(&server).await > 0);
    let ids = play.stage.connections();
    assert_eq!((ids.len(), connected(&server, &ids).await), (4, 4));
    // With one that waits, and one that holds.
    play.all("A", &["begin", TAKE]).await;
    let reply = play.begin("B", TAKE);
    play.blocked("B").await;
    play.close().await;
    assert_eq!(failed(reply).await, FailureKind::Cancelled);
    until("nothing is left", async || left(&server).await == 0).await;
    until("all are gone", async || connected(&server, &ids).await == 0).await;
    let mut case = numbers(server.engine());
    case.teardown.push("drop table nowhere".to_owned());
    let play = Play::open(server.clone(), &case).await;
    let error = play.stage.close().await.unwrap_err().to_string();
    assert!(error.contains("teardown") && error.contains("nowhere"), "{error}");
    until("nothing is left", async || left(&server).await == 0).await;
}

async fn dropping_leaves_nothing(server: Server) {
    let mut advisory = numbers(server.engine());
    will_run(&mut advisory, "select pg_advisory_lock(1)");
    for case in [numbers(server.engine()), advisory] {
        let play = Play::open(server.clone(), &case).await;
        let ids = play.stage.connections();
        play.all("A", &["begin", TAKE]).await;
        let _reply = play.begin("B", TAKE);
        play.blocked("B").await;
        drop(play);
        until("nothing is left", async || left(&server).await == 0).await;
        until("all are gone", async || connected(&server, &ids).await == 0).await;
    }
}

async fn what_a_dead_process_left_is_swept(server: Server) {
    // A name that no connection stands for.
    let mark = format!("hierlock_lab_1_{}", server.inner.mark().rsplit('_').next().unwrap());
    let mut wire = server.inner.address.connect().await.unwrap();
    let make = match server.engine() {
        Engine::Postgres => "create schema",
        _ => "create database",
    };
    wire.ask(&format!("{make} {mark}_0")).await.unwrap();
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    // Another process does it; of those who live nothing is taken.
    let other = Server::connect(server.engine(), &server.inner.url).await.unwrap();
    let swept = other.sweep().await.unwrap();
    assert_eq!(swept, Vec::<String>::new(), "it was done when it connected");
    let list = match server.engine() {
        Engine::Postgres => format!("select 1 from pg_namespace where nspname = '{mark}_0'"),
        _ => format!("show databases like '{mark}_0'"),
    };
    assert_eq!(wire.ask(&list).await.unwrap().len(), 0);
    play.all("A", &[TAKE]).await;
    play.close().await;
}

async fn a_server_that_dies_is_told_in_a_sentence(server: Server) {
    let engine = server.engine();
    drop(server);
    let start = move || Sandbox::for_tests(engine.server().unwrap());
    let Some(sandbox) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let server = Server::connect(engine, sandbox.url()).await.unwrap();
    let play = Play::open(server, &numbers(engine)).await;
    play.all("A", &["begin", TAKE]).await;
    let reply = play.begin("B", TAKE);
    play.blocked("B").await;
    drop(sandbox);
    let failure = match end(reply).await {
        Err(failure) => failure,
        // It ended A first, and then B had what it waited for, for a moment.
        Ok(_) => end(play.begin("B", TAKE)).await.unwrap_err(),
    };
    assert!(matches!(failure.kind, FailureKind::Other), "{failure:?}");
    let error = play.stage.waits().await.unwrap_err().to_string();
    assert!(error.contains(engine.name()) && error.contains("lost"), "{error}");
    let begun = Instant::now();
    assert!(play.stage.cancel(&name("A")).await.is_ok(), "it does nothing");
    play.stage.close().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

async fn only_statements_are_played(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let failure = end(play.stage.begin(&name("A"), &CaseDeed::Look)).await.unwrap_err();
    assert!(failure.message.contains("statements"), "{failure:?}");
    let failure = end(play.begin("Z", "select 1")).await.unwrap_err();
    assert!(failure.message.contains("no session Z"), "{failure:?}");
    play.close().await;
}
