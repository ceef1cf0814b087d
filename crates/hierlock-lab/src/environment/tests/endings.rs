//! How sessions and databases end: cancelled, closed, dropped, or with the server.

use super::*;
use crate::environment::namespace::Namespace;
use hierlock_engine::{cell, number_cell};
use hierlock_sandbox::Sandbox;
use std::time::Instant;

on_all!(
    closing_leaves_nothing,
    dropping_leaves_nothing,
    databases_of_a_dead_process_are_removed,
    prepared_transactions_are_rolled_back,
    a_database_that_cannot_be_removed_is_reported,
    a_server_that_dies_is_reported;
    on numbers:
    a_wait_can_be_cancelled,
    an_immediate_cancel_is_not_lost,
    an_unknown_session_is_named,
);

/// Returns the number of the lab's databases, schemas and connections on the server.
async fn count_leftovers(server: &Arc<TestServer>) -> usize {
    let queries = server.either(
        [
            "select nspname from pg_namespace where nspname like",
            "select datname from pg_database where datname like",
        ],
        ["show databases like", "select id from information_schema.processlist where db like"],
    );
    let mut count = 0;
    for query in queries {
        count += server.query(&format!("{query} '{}%'", server.prefix)).await.len();
    }
    count
}

/// Returns the number of those connections that still exist.
pub(super) async fn count_connected(server: &Arc<TestServer>, ids: &[i64]) -> usize {
    let list = server.either(
        "select pid from pg_stat_activity",
        "select id from information_schema.processlist",
    );
    let is_listed = |row: &&CellRow| ids.contains(&number_cell(row, 0).unwrap());
    server.query(list).await.iter().filter(is_listed).count()
}

/// Waits until the condition holds: a server takes a moment to notice a closed connection.
pub(super) async fn wait_until(text: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < LONG, "timed out waiting until {text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_wait_can_be_cancelled(db: &TestDatabase) {
    db.run_all("A", &["begin", LOCK_ROW]).await;
    db.run_all("B", &["begin"]).await;
    let reply = db.start("B", LOCK_ROW);
    db.blocked("B").await;
    db.cancel(&name("B")).await.unwrap();
    assert_eq!(failure_kind(reply).await, FailureKind::Cancelled);
    // The session goes on. A cancel of an idle session does nothing.
    db.run_all("B", &["rollback", "select 1"]).await;
    db.cancel(&name("A")).await.unwrap();
    db.run_all("A", &["select 1"]).await;
}

async fn an_immediate_cancel_is_not_lost(db: &TestDatabase) {
    db.run_all("A", &["begin", LOCK_ROW]).await;
    for _ in 0..20 {
        let reply = db.start("B", LOCK_ROW);
        db.cancel(&name("B")).await.unwrap();
        assert_eq!(failure_kind(reply).await, FailureKind::Cancelled);
    }
}

async fn closing_leaves_nothing(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    case.teardown.push(statement("drop table numbers"));
    let db = open(&server, &case).await;
    assert!(count_leftovers(&server).await > 0);
    let ids = db.pids();
    assert_eq!((ids.len(), count_connected(&server, &ids).await), (4, 4));
    // One session waits and one holds a lock.
    let reply = db.block_b().await;
    db.close().await.unwrap();
    assert_eq!(failure_kind(reply).await, FailureKind::Cancelled);
    wait_until("nothing is left", async || count_leftovers(&server).await == 0).await;
    wait_until("all are gone", async || count_connected(&server, &ids).await == 0).await;
    let mut case = numbers(server.engine());
    case.teardown.push(statement("drop table nowhere"));
    let db = open(&server, &case).await;
    let error = db.close().await.unwrap_err().to_string();
    assert!(error.contains("teardown") && error.contains("nowhere"), "{error}");
    wait_until("nothing is left", async || count_leftovers(&server).await == 0).await;
}

async fn dropping_leaves_nothing(server: Arc<TestServer>) {
    for case in numbers_in_each_namespace(server.engine()) {
        let db = open(&server, &case).await;
        let ids = db.pids();
        let _reply = db.block_b().await;
        drop(db);
        wait_until("nothing is left", async || count_leftovers(&server).await == 0).await;
        wait_until("all are gone", async || count_connected(&server, &ids).await == 0).await;
    }
}

async fn databases_of_a_dead_process_are_removed(server: Arc<TestServer>) {
    // A name that belongs to no connection.
    let prefix = format!("hierlock_lab_1_{}", server.prefix.rsplit('_').next().unwrap());
    let make = server.either("create schema", "create database");
    server.query(&format!("{make} {prefix}_0")).await;
    let db = open_numbers(&server).await;
    // Another process removes it, and leaves the databases of processes that still run.
    let other = TestServer::connect(server.engine(), server.url.as_str()).await.unwrap();
    let (swept, _) = Namespace::sweep(&mut *other.control.lock().await).await.unwrap();
    assert_eq!(swept, Vec::<String>::new(), "the connect did not remove all leftovers");
    let list =
        server.either("select 1 from pg_namespace where nspname like", "show databases like");
    assert_eq!(server.query(&format!("{list} '{prefix}_0'")).await.len(), 0);
    db.run_all("A", &[LOCK_ROW]).await;
    db.close().await.unwrap();
}

/// Returns the number of prepared transactions on the server whose names begin with `prefix`.
async fn count_prepared(server: &Arc<TestServer>, prefix: &str) -> usize {
    let (list, column) = server.either(("select gid from pg_prepared_xacts", 0), ("xa recover", 3));
    let has_prefix = |row: &&CellRow| cell(row, column).starts_with(prefix);
    server.query(list).await.iter().filter(has_prefix).count()
}

/// Returns statements that prepare a transaction which has changed a row.
fn preparing(engine: Engine, name: &str, change: &str) -> Vec<String> {
    match engine {
        Engine::Postgres => {
            vec!["begin".to_owned(), change.to_owned(), format!("prepare transaction '{name}'")]
        }
        _ => vec![
            format!("xa start '{name}', 'b'"),
            change.to_owned(),
            format!("xa end '{name}', 'b'"),
            format!("XA PREPARE '{name}', 'b'"),
        ],
    }
}

/// The failure this prevents: a transaction that was left prepared kept its locks, and every later run failed.
async fn prepared_transactions_are_rolled_back(server: Arc<TestServer>) {
    let engine = server.engine();
    let name = format!("lab{}", server.prefix.rsplit('_').next().unwrap());
    let change = "update numbers set value = 0 where id = 1";
    // A transaction of another client, which must stay.
    let mut other = LabConnection::open(&server.address).await.unwrap();
    if engine == Engine::Postgres {
        let allowed = other.query("show max_prepared_transactions").await.unwrap();
        if allowed[0][0].as_deref() == Some("0") {
            eprintln!("skipped: this server allows no prepared transactions");
            return;
        }
    }
    for sql in preparing(engine, &format!("{name}other"), "select 1") {
        other.query(&sql).await.unwrap();
    }
    for mut case in numbers_in_each_namespace(engine) {
        for sql in preparing(engine, &format!("{name}setup"), change) {
            case.setup.push(statement(&sql));
        }
        let mine = preparing(engine, &format!("{name}mine"), &change.replace("= 1", "= 2"));
        let mine: Vec<&str> = mine.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let db = open(&server, &case).await;
        db.run_all("A", &mine).await;
        // The session that prepared the transaction counts as the holder.
        let _reply = db.start("B", "update numbers set value = 1 where id = 2");
        assert_eq!(blocker_names(&db.blocked("B").await), "A");
        let notes = db.close().await.unwrap();
        assert_eq!(notes.len(), 2, "{notes:?}");
        let is_reported = |which: &str| {
            let text = format!("transaction '{name}{which}'");
            notes.iter().any(|note| note.contains(&text) && note.contains("rolled back"))
        };
        assert!(is_reported("setup") && is_reported("mine"), "{notes:?}");
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert_eq!((count_leftovers(&server).await, count_prepared(&server, &name).await), (0, 1));
        // The same when the database is dropped.
        let db = open(&server, &case).await;
        db.run_all("A", &mine).await;
        drop(db);
        wait_until("nothing is left", async || count_leftovers(&server).await == 0).await;
        wait_until("nothing is prepared", async || count_prepared(&server, &name).await == 1).await;
        // A transaction that the teardown ends is not rolled back before.
        let (command, branch) = server.either(("commit prepared", ""), ("xa commit", ",'b'"));
        case.teardown = vec![
            statement(&format!("{command} '{name}setup'{branch};")),
            statement("drop table numbers"),
        ];
        let db = open(&server, &case).await;
        assert_eq!(db.close().await.unwrap(), Vec::<String>::new());
    }
    let (command, branch) = server.either(("rollback prepared", ""), ("xa rollback", ", 'b'"));
    other.query(&format!("{command} '{name}other'{branch}")).await.unwrap();
}

/// The failure this prevents: the removal was tried again without end, and later runs failed.
async fn a_database_that_cannot_be_removed_is_reported(server: Arc<TestServer>) {
    let engine = server.engine();
    let db = open_numbers(&server).await;
    let namespace = db.namespace().to_owned();
    let mut other = LabConnection::open(&server.address).await.unwrap();
    other.query("begin").await.unwrap();
    other.query(&format!("select * from {namespace}.numbers")).await.unwrap();
    let error = db.close().await.unwrap_err().to_string();
    assert!(error.contains(&namespace) && error.contains("prepared transaction"), "{error}");
    // Once the lock is released, the second attempt succeeds.
    other.query("rollback").await.unwrap();
    wait_until("nothing is left", async || count_leftovers(&server).await == 0).await;
    // The database of a dead process, in which another session has a lock.
    let namespace = format!("hierlock_lab_2_{}_0", server.prefix.rsplit('_').next().unwrap());
    let make = server.either("create schema NAME", "create database NAME");
    for sql in [make, "create table NAME.t (id int)", "begin", "select * from NAME.t"] {
        other.query(&sql.replace("NAME", &namespace)).await.unwrap();
    }
    let later = TestServer::connect(engine, server.url.as_str()).await.unwrap();
    let leftovers = &later.leftovers;
    assert!(leftovers.iter().any(|message| message.contains(&namespace)), "{leftovers:?}");
    let db = open_numbers(&later).await;
    db.run_all("A", &[LOCK_ROW]).await;
    db.close().await.unwrap();
    other.query("rollback").await.unwrap();
    let is_swept = async || {
        let swept = Namespace::sweep(&mut *later.control.lock().await).await;
        swept.is_ok_and(|(_, left)| left.is_empty())
    };
    wait_until("the leftovers are swept", is_swept).await;
}

async fn a_server_that_dies_is_reported(server: Arc<TestServer>) {
    let engine = server.engine();
    drop(server);
    let start = move || Sandbox::for_tests(engine.server().unwrap());
    let Some(sandbox) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let server = TestServer::connect(engine, sandbox.url()).await.unwrap();
    let db = open_numbers(&server).await;
    let reply = db.block_b().await;
    drop(sandbox);
    let failure = match finish(reply).await {
        Err(failure) => failure,
        // The server ended A first, and for a moment B had the lock.
        Ok(_) => finish(db.start("B", LOCK_ROW)).await.unwrap_err(),
    };
    assert!(matches!(failure.kind, FailureKind::Other), "{failure:?}");
    let error = db.waits().await.unwrap_err().to_string();
    assert!(error.contains(engine.name()) && error.contains("lost"), "{error}");
    let begun = Instant::now();
    assert!(db.cancel(&name("A")).await.is_ok(), "the cancel of an idle session failed");
    db.close().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

async fn an_unknown_session_is_named(db: &TestDatabase) {
    let failure = finish(db.start("Z", "select 1")).await.unwrap_err();
    assert!(failure.message.contains("no session Z"), "{failure:?}");
}
