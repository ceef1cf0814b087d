//! Provisioning, locks, and locks in transactions, under one setting.

use crate::server::{Client, TestDatabase};
use crate::{LONGER_THAN_LIMIT, ProgramPool};
use hierlock::optimistic::{Changes, UpdateOutcome, VersionedTable};
use hierlock::retry::{RetryPolicy, retry};
use hierlock::sql::{Provision, SqlBackend};
use hierlock::{Buckets, Hierarchy, Hierlock, Target};
use hierlock_conformance::{is_free, spawn_acquire, until_free, until_waiting};
use hierlock_sandbox::Engine;
use sqlx::{MySqlConnection, PgConnection};

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Runs all checks in an empty database.
pub(crate) async fn exercise(test_database: &TestDatabase, is_limit: bool) {
    let mut outside = test_database.outside().await;
    let url = test_database.with("strategy=striped&connections=3");
    provision(&url, &mut outside).await;
    let locks = Hierlock::connect_sql(&url).await.unwrap();
    hold(&locks, is_limit).await;
    work(&locks, test_database, &mut outside).await;
    acquire_in(&locks, test_database, &mut outside).await;
    drop(locks);
    // The setting may allow only few connections.
    outside.until_no_user_sessions().await;
    rebucket(&url, &mut outside).await;
    if test_database.engine == Engine::Postgres {
        let locks =
            Hierlock::connect_sql(&test_database.with("table=keys&connections=3")).await.unwrap();
        hold(&locks, is_limit).await;
    }
    on_demand(test_database, &mut outside).await;
}

/// Returns levels whose names need quoting.
fn levels() -> Hierarchy {
    Hierarchy::new(["user's", r"acc\ount", "resource"]).unwrap()
}

async fn provision(url: &str, outside: &mut Client) {
    let provision =
        Provision::connect(&format!("{url}&buckets=40"), Hierarchy::default()).await.unwrap();
    let provision = provision.connections(1);
    let report = provision.run(|_| ()).await.unwrap();
    assert_eq!((report.rows, report.inserted), (120, 120));
    assert_eq!(outside.number("SELECT COUNT(*) FROM hier_lock_buckets").await, 120);
    let state = "SELECT state FROM hier_lock_meta WHERE buckets = 40";
    assert_eq!(outside.text(state).await, "ready");
    assert!(provision.check(|_| ()).await.unwrap().is_clean());
    let odd = format!("{url}&table=odd&buckets=4");
    Provision::connect(&odd, levels()).await.unwrap().run(|_| ()).await.unwrap();
    let stored = "SELECT levels FROM hier_lock_meta WHERE space = 'odd'";
    assert_eq!(outside.text(stored).await, r"user's/acc\ount/resource");
    assert_eq!(outside.number("SELECT COUNT(*) FROM odd").await, 12);
    Hierlock::connect_with(&odd, levels()).await.unwrap();
}

async fn hold(locks: &Hierlock<SqlBackend>, is_limit: bool) {
    let mut guard = locks.acquire(target("u1/a1")).await.unwrap();
    assert!(!is_free(locks, "u1/a1/r1").await);
    guard.extend([target("u1/a2")]).await.unwrap();
    assert!(!is_free(locks, "u1/a2").await);
    guard.token().await.unwrap();
    let waits = spawn_acquire(locks, "u1/a1/r1");
    until_waiting(locks, 1).await;
    if is_limit {
        // The server's time limit ends neither the wait nor the idle session.
        tokio::time::sleep(LONGER_THAN_LIMIT).await;
    }
    assert!(!waits.is_finished(), "the wait ended before the release");
    guard.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    until_free(locks, "u1").await;
    let many = (0..30).map(|number| target(&format!("u2/a{number}")));
    locks.acquire_all(many).await.unwrap().release().await.unwrap();
}

/// Works in the lock's own transaction.
async fn work(locks: &Hierlock<SqlBackend>, test_database: &TestDatabase, outside: &mut Client) {
    outside
        .run("CREATE TABLE seats (id BIGINT PRIMARY KEY, holder VARCHAR(80), version BIGINT NOT NULL)")
        .await;
    if test_database.engine == Engine::Postgres {
        outside.run("GRANT ALL ON seats TO app").await;
    }
    let mut guard = locks.acquire(target("u1")).await.unwrap();
    let insert = "INSERT INTO seats VALUES (7, NULL, 1)";
    match test_database.engine {
        Engine::Postgres => {
            let mut tx = guard.transaction::<PgConnection>().await.unwrap();
            sqlx::query(insert).execute(&mut *tx).await.unwrap();
        }
        _ => {
            let mut tx = guard.transaction::<MySqlConnection>().await.unwrap();
            sqlx::query(insert).execute(&mut *tx).await.unwrap();
        }
    }
    guard.commit().await.unwrap();
    assert_eq!(outside.number("SELECT version FROM seats").await, 1);
}

/// Locks in a transaction of the program.
async fn acquire_in(
    locks: &Hierlock<SqlBackend>,
    test_database: &TestDatabase,
    outside: &mut Client,
) {
    let pool = ProgramPool::connect(test_database).await;
    macro_rules! within {
        ($pool:expr, $begin:expr) => {
            retry(RetryPolicy::default(), |_| async {
                let mut tx = $pool.begin_with($begin).await.unwrap();
                locks.acquire_in(&mut tx, [target("u1/a1"), target("u2")]).await?;
                assert!(!is_free(locks, "u1").await && !is_free(locks, "u2/a2").await);
                let seat = VersionedTable::new("seats", "version").unwrap().row("id", 7).unwrap();
                let sold = Changes::new().set("holder", r#"it's "ada" \ ?"#);
                assert_eq!(seat.update(&mut tx, 1, sold).await?, UpdateOutcome::Updated(2));
                tx.commit().await.unwrap();
                Ok::<_, hierlock::Error>(())
            })
            .await
            .unwrap()
        };
    }
    match &pool {
        // With `sql_mode` ORACLE a plain BEGIN starts a block.
        ProgramPool::Innodb(pool) => within!(pool, "START TRANSACTION READ WRITE"),
        ProgramPool::Postgres(pool) => within!(pool, "BEGIN READ WRITE"),
    }
    pool.close().await;
    assert!(is_free(locks, "u1").await);
    assert_eq!(outside.text("SELECT holder FROM seats").await, r#"it's "ada" \ ?"#);
    assert_eq!(outside.number("SELECT version FROM seats").await, 2);
}

async fn rebucket(url: &str, outside: &mut Client) {
    let provision = Provision::connect(url, Hierarchy::default()).await.unwrap();
    let provision = provision.connections(1);
    for (buckets, rows) in [(50, 150), (30, 90)] {
        provision.rebucket(Buckets::new(buckets).unwrap(), |_| ()).await.unwrap();
        assert_eq!(outside.number("SELECT COUNT(*) FROM hier_lock_buckets").await, rows);
        let stored = format!("SELECT COUNT(*) FROM hier_lock_meta WHERE buckets = {buckets}");
        assert_eq!(outside.number(&stored).await, 1);
        let fence = format!("SELECT COUNT(of_{buckets}) FROM hier_lock_buckets");
        assert_eq!(outside.number(&fence).await, 0);
    }
}

/// Locks with on-demand rows, also in a transaction of the program.
async fn on_demand(test_database: &TestDatabase, outside: &mut Client) {
    let url = test_database.with("strategy=on-demand&table=by_id&connections=3");
    let locks = Hierlock::connect_sql(&url).await.unwrap();
    locks.acquire(target("u1/a1")).await.unwrap().release().await.unwrap();
    assert_eq!(outside.number("SELECT COUNT(*) FROM by_id").await, 2);
    hold(&locks, false).await;
    let pool = ProgramPool::connect(test_database).await;
    macro_rules! within {
        ($pool:expr, $begin:expr) => {{
            let mut tx = $pool.begin_with($begin).await.unwrap();
            locks.acquire_in(&mut tx, [target("u9/組/r")]).await.unwrap();
            assert!(!is_free(&locks, "u9").await);
            tx.rollback().await.unwrap();
        }};
    }
    match &pool {
        ProgramPool::Innodb(pool) => within!(pool, "START TRANSACTION READ WRITE"),
        ProgramPool::Postgres(pool) => within!(pool, "BEGIN READ WRITE"),
    }
    pool.close().await;
    until_free(&locks, "u9").await;
}
