//! Leases and queues under one setting, on connections of hierlock and on a pool of the program.

use crate::ProgramPool;
use crate::server::{Client, TestDatabase};
use hierlock::database::Database;
use hierlock::lease::{LeaseFilter, LeaseRequest, Leases};
use hierlock::queue::{Job, Queue};
use hierlock_sandbox::Engine;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

/// Runs all checks of the toolbox.
pub(crate) async fn exercise(test_database: &TestDatabase, skips_program_pools: bool) {
    let mut outside = test_database.outside().await;
    for is_program_pool in [false, true] {
        let database = if !is_program_pool {
            Database::connect(&test_database.url).await.unwrap()
        } else if skips_program_pools {
            continue;
        } else {
            match ProgramPool::connect(test_database).await {
                ProgramPool::Innodb(pool) => Database::from(pool),
                ProgramPool::Postgres(pool) => Database::from(pool),
            }
        };
        transaction(&database, &mut outside).await;
        lease(&database, &mut outside).await;
        queue(&database, &mut outside).await;
        database.close().await;
    }
}

async fn transaction(database: &Database, outside: &mut Client) {
    let mut tx = database.begin().await.unwrap();
    tx.execute("UPDATE seats SET version = version + ? WHERE id = ?", [5.into(), 7.into()])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let version = outside.number("SELECT version FROM seats").await;
    let read = database.query("SELECT version FROM seats", []).await.unwrap();
    assert_eq!(read[0].int(0).unwrap(), version);
    outside.run("UPDATE seats SET version = version + 1").await;
    // The connection does not read an old snapshot.
    let read = database.query("SELECT version FROM seats", []).await.unwrap();
    assert_eq!(read[0].int(0).unwrap(), version + 1);
}

async fn lease(database: &Database, outside: &mut Client) {
    let count = "SELECT COUNT(*) FROM hier_leases";
    let leases = Leases::new(database.clone());
    leases.provision().await.unwrap();
    assert_eq!(outside.number(count).await, 0);
    let request = |path: &str, owner| LeaseRequest::new(path.parse().unwrap(), owner).ttl(LONG);
    let mut lease = leases.acquire(request("u1/a1", r"a'd\a")).await.unwrap();
    assert_eq!(outside.number(count).await, 1);
    assert_eq!(outside.text("SELECT owner FROM hier_leases").await, r"a'd\a");
    assert!(leases.acquire(request("u1", "bob")).await.is_err());
    let expires = "SELECT expires_ms FROM hier_leases";
    let before = outside.number(expires).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    lease.renew().await.unwrap();
    assert!(outside.number(expires).await > before);
    let mut tx = database.begin().await.unwrap();
    lease.check_in(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(lease.release().await.unwrap());
    assert_eq!(outside.number(count).await, 0);
    let lease = leases.acquire(request("u1", r"a'd\a")).await.unwrap();
    assert!(leases.force_release(lease.token(), "root", "test").await.unwrap().is_some());
    assert_eq!(outside.number(count).await, 0);
    assert_eq!(leases.list(LeaseFilter::default()).await.unwrap(), []);
    leases.sweep().await.unwrap();
}

async fn queue(database: &Database, outside: &mut Client) {
    let count = "SELECT COUNT(*) FROM hier_jobs";
    let claimed = "SELECT COUNT(*) FROM hier_jobs WHERE state = 2";
    // A failed job does not become ready during the test.
    let queue = Queue::new(database.clone(), "mail").unwrap().pauses(LONG, LONG);
    queue.provision().await.unwrap();
    let payload = r#"{"it's": "\ ?"}"#;
    queue.enqueue_all((0..4).map(|_| Job::new(payload))).await.unwrap();
    assert_eq!(outside.number(count).await, 4);
    let jobs = queue.claim("w", 2, LONG).await.unwrap();
    assert_eq!((jobs.len(), jobs[0].payload()), (2, payload));
    assert_eq!(outside.number(claimed).await, 2);
    assert_eq!(queue.heartbeat(&jobs, LONG).await.unwrap(), [0; 0]);
    jobs[0].complete().await.unwrap();
    assert_eq!(outside.number(count).await, 3);
    jobs[1].fail(r"n't \ ").await.unwrap();
    assert_eq!(outside.number(claimed).await, 0);
    assert_eq!(queue.stats().await.unwrap().ready, 2);
    let jobs = queue.claim("w", 1, LONG).await.unwrap();
    jobs[0].give_back().await.unwrap();
    assert_eq!(outside.number(claimed).await, 0);
    let worked = queue.worker("w").until_empty().run(|_| async { Ok::<_, String>(()) });
    assert_eq!(worked.await.unwrap().done, 2);
    queue.promote().await.unwrap();
    // One job has failed and is scheduled.
    assert_eq!(outside.number(count).await, 1);
    outside.run("DELETE FROM hier_jobs").await;
}

/// The failure this prevents: a payload at the documented limit failed with an error of the server, which ended the caller's
/// transaction.
pub(crate) async fn payloads(test_database: &TestDatabase) {
    let database = Database::connect(&test_database.url).await.unwrap();
    let mut outside = test_database.outside().await;
    let queue = Queue::new(database.clone(), "large").unwrap();
    queue.provision().await.unwrap();
    let documented_limit = (1 << 24) - 1;
    let limit = match test_database.engine {
        Engine::Postgres => documented_limit,
        _ => {
            let sql = "SELECT CAST(@@max_allowed_packet AS SIGNED)";
            let packet = database.query(sql, []).await.unwrap()[0].int(0).unwrap();
            documented_limit.min(usize::try_from(packet).unwrap() - 4096)
        }
    };
    let mut tx = database.begin().await.unwrap();
    if limit < documented_limit {
        for bytes in [limit + 1, documented_limit] {
            let error = queue.enqueue_in(&mut tx, Job::new("x".repeat(bytes))).await.unwrap_err();
            let message = error.to_string();
            assert!(error.is_usage() && message.contains("max_allowed_packet"), "{message}");
            assert!(message.contains(&format!("at most {limit}")), "{message}");
        }
        let jobs = [Job::new("small"), Job::new("x".repeat(limit + 1))];
        assert!(queue.enqueue_all_in(&mut tx, jobs).await.unwrap_err().is_usage());
    }
    // The transaction is still usable.
    queue.enqueue_in(&mut tx, Job::new("x".repeat(limit)).max_attempts(1)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(outside.number("SELECT COUNT(*) FROM hier_jobs WHERE queue = 'large'").await, 1);
    let job = queue.claim("w", 1, LONG).await.unwrap().pop().unwrap();
    assert_eq!(job.payload().len(), limit);
    job.fail("席".repeat(10_000)).await.unwrap();
    assert_eq!(queue.dead(10).await.unwrap().len(), 1);
    outside.run("DELETE FROM hier_jobs").await;
    // Each job fits into a packet, but all together do not: because of the payloads, the other columns, and the text of the
    // statement.
    let mut count = 0;
    for (jobs, bytes) in [(40, 9_000), (500, 130), (500, 2), (600, 2_090)] {
        queue.enqueue_all((0..jobs).map(|_| Job::new("x".repeat(limit.min(bytes))))).await.unwrap();
        count += jobs;
    }
    let sql = "SELECT COUNT(*) FROM hier_jobs WHERE queue = 'large'";
    assert_eq!(outside.number(sql).await, count);
    let error = queue.enqueue(Job::new("a\0b")).await.unwrap_err();
    assert!(error.is_usage() && !error.to_string().contains("PostgreSQL"), "{error}");
    outside.run("DELETE FROM hier_jobs").await;
    database.close().await;
}
