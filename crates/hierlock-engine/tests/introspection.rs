//! What real servers report about their sessions. If a server is not installed the test says so and is skipped,
//! except in CI.
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

/// Longer than anything here takes on a busy machine.
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

/// Runs a statement that waits, and then ends its transaction.
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
    let (mut asking, mut holder, mut waiter) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    make_table(&mut asking, table).await;
    for session in [&mut holder, &mut waiter] {
        session.run("BEGIN").await.unwrap();
    }
    holder.rows(&lock(table, 1)).await.unwrap();
    let (held_by, waited_by) = (holder.id.pid, waiter.id.pid);
    let waiting = begin(waiter, lock(table, 1));

    let mut introspection = Introspection::default();
    introspection.check_permission(&mut asking.as_ref()).await.unwrap();
    let everybody = IntrospectionScope::default();
    let wait: LockWait = loop {
        let waits = introspection.lock_waits(&mut asking.as_ref(), &everybody).await.unwrap();
        match waits.into_iter().find(|wait| wait.waiter == waited_by) {
            Some(wait) => break wait,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(wait.blockers, [held_by]);
    let wanted = wait.wanted.unwrap();
    assert_eq!((wanted.kind, wanted.object.as_str()), (LockKind::Row, table));
    assert!(wanted.schema.is_some());

    let only_holder = IntrospectionScope::of_sessions([held_by]);
    let waits = introspection.lock_waits(&mut asking.as_ref(), &only_holder).await.unwrap();
    assert_eq!(waits, [], "who was not asked about waits unseen");
    let list = introspection.locks(&mut asking.as_ref(), &only_holder).await.unwrap();
    assert!(list.locks.iter().all(|lock| lock.session == held_by && lock.granted));
    // MariaDB lists none unless an administrator has enabled that, and says so.
    assert!(!list.locks.is_empty() || engine == Engine::Mariadb && !list.incomplete.is_empty());

    let all = list_sessions(&mut asking.as_ref(), &everybody).await.unwrap();
    let statement = all.iter().find(|it| it.pid == waited_by).unwrap().statement.clone().unwrap();
    assert_eq!(statement, lock(table, 1));
    assert!(all.iter().any(|it| it.pid == held_by && it.in_state_for.is_some()));
    assert!(all.iter().all(|it| it.pid != asking.id.pid));
    let one = list_sessions(&mut asking.as_ref(), &only_holder).await.unwrap();
    assert_eq!(one.iter().map(|it| it.pid).collect::<Vec<_>>(), [held_by]);

    holder.run("ROLLBACK").await.unwrap();
    waiting.await.unwrap().unwrap();
    asking.run(&format!("DROP TABLE {table}")).await.unwrap();
}

async fn a_deadlock_is_reported(engine: Engine) {
    let Some(server) = Server::for_tests(engine) else { return };
    let table = "introspection_deadlock";
    let (mut asking, mut one, mut two) =
        (connect(&server).await, connect(&server).await, connect(&server).await);
    make_table(&mut asking, table).await;
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

    let mut introspection = Introspection::default();
    let session = &mut asking.as_ref();
    let report: DeadlockReport = if engine == Engine::Postgres {
        let refusal = error.as_database_error().unwrap();
        let refusal = refusal.downcast_ref::<PgDatabaseError>();
        let detail =
            [refusal.detail(), refusal.r#where()].map(Option::unwrap_or_default).join("\n");
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
    asking.run(&format!("DROP TABLE {table}")).await.unwrap();
}
