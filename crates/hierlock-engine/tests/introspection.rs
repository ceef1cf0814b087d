//! Introspection of real servers. If a server is not installed the test prints that and is skipped, except in CI.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_engine::introspection::{
    DeadlockReport, Introspection, IntrospectionScope, LockKind, LockWait, list_sessions,
};
use hierlock_engine::sqlx::postgres::PgDatabaseError;
use hierlock_engine::{ErrorClass, ServerAddress, Session, sqlx};
use hierlock_sandbox::{Engine, Server, on_each_server};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longer than any query here takes on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

on_each_server!(a_lock_wait_is_listed, a_deadlock_is_reported);

async fn connect(server: &Server) -> Session {
    let address = ServerAddress::from_url(&server.url().parse().unwrap()).unwrap();
    Session::connect_alone(&address, ANSWER_LIMIT).await.unwrap()
}

/// Creates a table with the rows 1 and 2.
async fn make_table(session: &mut Session, name: &str) {
    session.run(&format!("CREATE TABLE {name} (id INT PRIMARY KEY)")).await.unwrap();
    session.run(&format!("INSERT INTO {name} VALUES (1), (2)")).await.unwrap();
}

fn lock(table: &str, id: u32) -> String {
    format!("SELECT id FROM {table} WHERE id = {id} FOR UPDATE")
}

/// Runs a statement that waits, then ends its transaction.
fn begin(mut session: Session, sql: String) -> JoinHandle<Result<(), sqlx::Error>> {
    tokio::spawn(async move {
        let result = session.as_ref().run_unlimited(sql, Vec::new()).await;
        session.run("ROLLBACK").await?;
        result.map(|_| ())
    })
}

async fn a_lock_wait_is_listed(engine: Engine) {
    let Some(server) = Server::for_tests(engine) else { return };
    let table = "introspection_wait";
    let (mut observer, mut holder, mut waiter) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    make_table(&mut observer, table).await;
    for session in [&mut holder, &mut waiter] {
        session.run("BEGIN").await.unwrap();
    }
    holder.rows(&lock(table, 1)).await.unwrap();
    let (holder_pid, waiter_pid) = (holder.id.pid, waiter.id.pid);
    let waiting = begin(waiter, lock(table, 1));

    let mut introspection = Introspection::default();
    introspection.check_permission(&mut observer.as_ref()).await.unwrap();
    let all_sessions = IntrospectionScope::default();
    let wait: LockWait = loop {
        let waits = introspection.lock_waits(&mut observer.as_ref(), &all_sessions).await.unwrap();
        match waits.into_iter().find(|wait| wait.waiter == waiter_pid) {
            Some(wait) => break wait,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(wait.blockers, [holder_pid]);
    let wanted = wait.wanted.unwrap();
    assert_eq!((wanted.kind, wanted.object.as_str()), (LockKind::Row, table));
    assert!(wanted.schema.is_some());

    let only_holder = IntrospectionScope::of_sessions([holder_pid]);
    let waits = introspection.lock_waits(&mut observer.as_ref(), &only_holder).await.unwrap();
    assert_eq!(waits, [], "a wait of a session outside of the scope is listed");
    let list = introspection.locks(&mut observer.as_ref(), &only_holder).await.unwrap();
    assert!(list.locks.iter().all(|lock| lock.session == holder_pid && lock.granted));
    // MariaDB lists none unless an administrator has enabled the lock output, and reports that.
    assert!(!list.locks.is_empty() || engine == Engine::Mariadb && !list.incomplete.is_empty());

    let all = list_sessions(&mut observer.as_ref(), &all_sessions).await.unwrap().sessions;
    let statement =
        all.iter().find(|session| session.pid == waiter_pid).unwrap().statement.clone().unwrap();
    assert_eq!(statement, lock(table, 1));
    assert!(all.iter().any(|session| session.pid == holder_pid && session.in_state_for.is_some()));
    // InnoDB reports times a little later.
    let waiter = loop {
        let list = list_sessions(&mut observer.as_ref(), &all_sessions).await.unwrap();
        assert_eq!(list.missing, []);
        let waiter = list.sessions.into_iter().find(|session| session.pid == waiter_pid).unwrap();
        if waiter.waiting_for.is_some() && waiter.in_transaction_for.is_some() {
            break waiter;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    };
    assert!(waiter.waiting_for <= waiter.in_transaction_for && waiter.user.is_some());
    assert!(
        waiter.in_transaction_for < Some(ANSWER_LIMIT),
        "the time zone of the server is ignored"
    );
    assert!(all.iter().all(|session| session.pid != observer.id.pid));
    let one = list_sessions(&mut observer.as_ref(), &only_holder).await.unwrap().sessions;
    assert_eq!(one.iter().map(|session| session.pid).collect::<Vec<_>>(), [holder_pid]);

    holder.run("ROLLBACK").await.unwrap();
    waiting.await.unwrap().unwrap();
    observer.run(&format!("DROP TABLE {table}")).await.unwrap();
}

async fn a_deadlock_is_reported(engine: Engine) {
    let Some(server) = Server::for_tests(engine) else { return };
    let table = "introspection_deadlock";
    let (mut observer, mut one, mut two) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    make_table(&mut observer, table).await;
    let mut introspection = Introspection::default();
    let before = introspection.deadlock_count(&mut observer.as_ref()).await.unwrap().unwrap();
    for (session, id) in [(&mut one, 1), (&mut two, 2)] {
        session.run("BEGIN").await.unwrap();
        session.rows(&lock(table, id)).await.unwrap();
    }
    let mut pids = [one.id.pid, two.id.pid];
    pids.sort_unstable();
    let victims = [one.id.pid, two.id.pid];
    let ends = [begin(one, lock(table, 2)), begin(two, lock(table, 1))];
    let mut failures = Vec::new();
    for (victim, end) in victims.into_iter().zip(ends) {
        if let Err(error) = end.await.unwrap() {
            failures.push((victim, error));
        }
    }
    let [(victim, error)] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(ErrorClass::of(error), ErrorClass::Deadlock);

    let session = &mut observer.as_ref();
    // Other tests may cause deadlocks on the same server.
    while introspection.deadlock_count(session).await.unwrap().unwrap() <= before {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let report: DeadlockReport = if engine == Engine::Postgres {
        let database_error = error.as_database_error().unwrap();
        let database_error = database_error.downcast_ref::<PgDatabaseError>();
        let detail = [database_error.detail(), database_error.r#where()]
            .map(Option::unwrap_or_default)
            .join("\n");
        let schema = Some("public".to_owned());
        let scope = IntrospectionScope { schema, ..IntrospectionScope::default() };
        assert_eq!(introspection.last_deadlock(session).await.unwrap(), None);
        introspection.deadlock_of_victim(session, &scope, *victim, &detail).await.unwrap().unwrap()
    } else {
        introspection.last_deadlock(session).await.unwrap().unwrap()
    };
    let mut waiters: Vec<i64> = report.waits.iter().map(|wait| wait.waiter).collect();
    waiters.sort_unstable();
    assert_eq!(waiters, pids);
    for wait in &report.waits {
        assert!(wait.waiter != wait.holder && pids.contains(&wait.holder));
        let wanted = wait.wanted.as_ref().unwrap();
        let record = if wait.waiter == victims[0] { "2" } else { "1" };
        // The other session only waits for a transaction.
        if engine != Engine::Postgres || wait.waiter == *victim {
            assert_eq!((wanted.object.as_str(), wanted.record.as_deref()), (table, Some(record)));
        }
    }
    observer.run(&format!("DROP TABLE {table}")).await.unwrap();
}
