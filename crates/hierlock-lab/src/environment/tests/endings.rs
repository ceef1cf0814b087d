//! How it all ends: cancelled, closed, dropped, or with the server.

use super::*;
use hierlock_sandbox::Sandbox;
use std::time::Instant;

on_all!(
    closing_leaves_nothing,
    dropping_leaves_nothing,
    what_a_dead_process_left_is_swept,
    what_was_prepared_is_rolled_back,
    what_cannot_be_removed_is_told,
    a_server_that_dies_is_told_in_a_sentence;
    on numbers:
    a_wait_is_cancelled,
    a_cancel_at_once_is_not_lost,
    a_session_that_is_not_there_is_named,
);

/// What of the lab is on the server: databases, schemas, and connections to them.
async fn left(server: &Arc<TestServer>) -> usize {
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let mark = &server.prefix;
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
        left += connection.query(&question).await.unwrap().len();
    }
    connection.close().await;
    left
}

/// Which connections are still there, of some.
async fn connected(server: &Arc<TestServer>, ids: &[i64]) -> usize {
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let list = match server.engine() {
        Engine::Postgres => "select pid from pg_stat_activity",
        _ => "select id from information_schema.processlist",
    };
    let rows = connection.query(list).await.unwrap();
    connection.close().await;
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

async fn a_wait_is_cancelled(db: &OpenDatabase) {
    db.all("A", &["begin", TAKE]).await;
    db.all("B", &["begin"]).await;
    let reply = db.start("B", TAKE);
    db.blocked("B").await;
    db.cancel(&name("B")).await.unwrap();
    assert_eq!(failed(reply).await, FailureKind::Cancelled);
    // It goes on, and what was idle is not touched.
    db.all("B", &["rollback", "select 1"]).await;
    db.cancel(&name("A")).await.unwrap();
    db.all("A", &["select 1"]).await;
}

async fn a_cancel_at_once_is_not_lost(db: &OpenDatabase) {
    db.all("A", &["begin", TAKE]).await;
    for _ in 0..20 {
        let reply = db.start("B", TAKE);
        db.cancel(&name("B")).await.unwrap();
        assert_eq!(failed(reply).await, FailureKind::Cancelled);
    }
}

async fn closing_leaves_nothing(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    case.teardown.push(statement("drop table numbers"));
    let db = OpenDatabase::open(&server, &case).await;
    assert!(left(&server).await > 0);
    let ids = db.pids();
    assert_eq!((ids.len(), connected(&server, &ids).await), (4, 4));
    // With one that waits, and one that holds.
    db.all("A", &["begin", TAKE]).await;
    let reply = db.start("B", TAKE);
    db.blocked("B").await;
    db.close().await;
    assert_eq!(failed(reply).await, FailureKind::Cancelled);
    until("nothing is left", async || left(&server).await == 0).await;
    until("all are gone", async || connected(&server, &ids).await == 0).await;
    let mut case = numbers(server.engine());
    case.teardown.push(statement("drop table nowhere"));
    let db = OpenDatabase::open(&server, &case).await;
    let error = db.database.close().await.unwrap_err().to_string();
    assert!(error.contains("teardown") && error.contains("nowhere"), "{error}");
    until("nothing is left", async || left(&server).await == 0).await;
}

async fn dropping_leaves_nothing(server: Arc<TestServer>) {
    let mut advisory = numbers(server.engine());
    will_run(&mut advisory, "select pg_advisory_lock(1)");
    for case in [numbers(server.engine()), advisory] {
        let db = OpenDatabase::open(&server, &case).await;
        let ids = db.pids();
        db.all("A", &["begin", TAKE]).await;
        let _reply = db.start("B", TAKE);
        db.blocked("B").await;
        drop(db);
        until("nothing is left", async || left(&server).await == 0).await;
        until("all are gone", async || connected(&server, &ids).await == 0).await;
    }
}

async fn what_a_dead_process_left_is_swept(server: Arc<TestServer>) {
    // A name that no connection stands for.
    let mark = format!("hierlock_lab_1_{}", server.prefix.rsplit('_').next().unwrap());
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let make = match server.engine() {
        Engine::Postgres => "create schema",
        _ => "create database",
    };
    connection.query(&format!("{make} {mark}_0")).await.unwrap();
    let db = OpenDatabase::numbers(&server).await;
    // Another process does it; of those who live nothing is taken.
    let other = TestServer::connect(server.engine(), &server.url).await.unwrap();
    let swept = other.sweep().await.unwrap();
    assert_eq!(swept, Vec::<String>::new(), "it was done when it connected");
    let list = match server.engine() {
        Engine::Postgres => format!("select 1 from pg_namespace where nspname = '{mark}_0'"),
        _ => format!("show databases like '{mark}_0'"),
    };
    assert_eq!(connection.query(&list).await.unwrap().len(), 0);
    db.all("A", &[TAKE]).await;
    db.close().await;
}

/// What is prepared on the server, by the names that begin so.
async fn prepared(server: &Arc<TestServer>, begins: &str) -> usize {
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let (list, column) = match server.engine() {
        Engine::Postgres => ("select gid from pg_prepared_xacts", 0),
        _ => ("xa recover", 3),
    };
    let rows = connection.query(list).await.unwrap();
    connection.close().await;
    rows.iter()
        .filter(|row| row[column].as_ref().is_some_and(|name| name.starts_with(begins)))
        .count()
}

/// What prepares a transaction that has changed a row.
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
async fn what_was_prepared_is_rolled_back(server: Arc<TestServer>) {
    let engine = server.engine();
    let name = format!("lab{}", server.prefix.rsplit('_').next().unwrap());
    let change = "update numbers set value = 0 where id = 1";
    // Somebody else's stays.
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
    for advisory in [false, true] {
        let mut case = numbers(engine);
        for sql in preparing(engine, &format!("{name}setup"), change) {
            case.setup.push(statement(&sql));
        }
        if advisory {
            // In a database of its own, on PostgreSQL.
            will_run(&mut case, "select pg_advisory_lock(1)");
        }
        let mine = preparing(engine, &format!("{name}mine"), &change.replace("= 1", "= 2"));
        let mine: Vec<&str> = mine.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let db = OpenDatabase::open(&server, &case).await;
        db.all("A", &mine).await;
        // Whoever prepared it has the locks.
        let _reply = db.start("B", "update numbers set value = 1 where id = 2");
        assert_eq!(by(&db.blocked("B").await), "A");
        let notes = db.database.close().await.unwrap();
        assert_eq!(notes.len(), 2, "{notes:?}");
        let is_told = |which: &str| {
            let told = format!("transaction '{name}{which}'");
            notes.iter().any(|note| note.contains(&told) && note.contains("rolled back"))
        };
        assert!(is_told("setup") && is_told("mine"), "{notes:?}");
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert_eq!((left(&server).await, prepared(&server, &name).await), (0, 1));
        // The same when it is dropped.
        let db = OpenDatabase::open(&server, &case).await;
        db.all("A", &mine).await;
        drop(db);
        until("nothing is left", async || left(&server).await == 0).await;
        until("nothing is prepared", async || prepared(&server, &name).await == 1).await;
        // What the teardown ends is left to it.
        let end = match engine {
            Engine::Postgres => "commit prepared",
            _ => "xa commit",
        };
        let both = if engine == Engine::Postgres { "" } else { ",'b'" };
        case.teardown = vec![
            statement(&format!("{end} '{name}setup'{both};")),
            statement("drop table numbers"),
        ];
        let db = OpenDatabase::open(&server, &case).await;
        assert_eq!(db.database.close().await.unwrap(), Vec::<String>::new());
    }
    let end = match engine {
        Engine::Postgres => format!("rollback prepared '{name}other'"),
        _ => format!("xa rollback '{name}other', 'b'"),
    };
    other.query(&end).await.unwrap();
}

/// The failure this prevents: what could not be removed was tried again without end, and later runs failed.
async fn what_cannot_be_removed_is_told(server: Arc<TestServer>) {
    let engine = server.engine();
    let db = OpenDatabase::numbers(&server).await;
    let home = db.namespace().to_owned();
    let mut other = LabConnection::open(&server.address).await.unwrap();
    other.query("begin").await.unwrap();
    other.query(&format!("select * from {home}.numbers")).await.unwrap();
    let error = db.database.close().await.unwrap_err().to_string();
    assert!(error.contains(&home) && error.contains("prepared transaction"), "{error}");
    // Once nobody is in the way, what was tried again succeeds.
    other.query("rollback").await.unwrap();
    until("nothing is left", async || left(&server).await == 0).await;
    // What a dead process left, and somebody has a lock in.
    let mark = format!("hierlock_lab_2_{}", server.prefix.rsplit('_').next().unwrap());
    let home = format!("{mark}_0");
    let make = if engine == Engine::Postgres { "create schema" } else { "create database" };
    for sql in [format!("{make} {home}"), format!("create table {home}.t (id int)")] {
        other.query(&sql).await.unwrap();
    }
    other.query("begin").await.unwrap();
    other.query(&format!("select * from {home}.t")).await.unwrap();
    let later = TestServer::connect(engine, &server.url).await.unwrap();
    assert!(later.leftovers().iter().any(|left| left.contains(&home)), "{:?}", later.leftovers());
    let db = OpenDatabase::numbers(&later).await;
    db.all("A", &[TAKE]).await;
    db.close().await;
    other.query("rollback").await.unwrap();
    until("it is swept", async || {
        later.sweep().await.unwrap();
        later.leftovers().is_empty()
    })
    .await;
}

async fn a_server_that_dies_is_told_in_a_sentence(server: Arc<TestServer>) {
    let engine = server.engine();
    drop(server);
    let start = move || Sandbox::for_tests(engine.server().unwrap());
    let Some(sandbox) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let server = TestServer::connect(engine, sandbox.url()).await.unwrap();
    let db = OpenDatabase::numbers(&server).await;
    db.all("A", &["begin", TAKE]).await;
    let reply = db.start("B", TAKE);
    db.blocked("B").await;
    drop(sandbox);
    let failure = match end(reply).await {
        Err(failure) => failure,
        // It ended A first, and then B had what it waited for, for a moment.
        Ok(_) => end(db.start("B", TAKE)).await.unwrap_err(),
    };
    assert!(matches!(failure.kind, FailureKind::Other), "{failure:?}");
    let error = db.waits().await.unwrap_err().to_string();
    assert!(error.contains(engine.name()) && error.contains("lost"), "{error}");
    let begun = Instant::now();
    assert!(db.cancel(&name("A")).await.is_ok(), "it does nothing");
    db.database.close().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

async fn a_session_that_is_not_there_is_named(db: &OpenDatabase) {
    let failure = end(db.start("Z", "select 1")).await.unwrap_err();
    assert!(failure.message.contains("no session Z"), "{failure:?}");
}
