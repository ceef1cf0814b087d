//! Adding jobs, and the order in which they are claimed.

use super::{LONG, add, claim_one, payloads, provision_queue, states};
use crate::support::{Store, TestEngine, eventually, on_every_engine};
use hierlock::queue::{EnqueueOutcome, Job, Queue};
use std::time::{Duration, SystemTime};

on_every_engine! {
    jobs_are_claimed_by_priority_then_age,
    a_scheduled_job_waits_until_it_is_due,
    a_unique_key_is_in_the_queue_once,
    a_unique_key_is_added_once_by_concurrent_clients,
    a_duplicate_does_not_abort_the_transaction,
    a_job_exists_only_if_its_transaction_commits,
    many_jobs_are_added_in_order,
    a_transaction_of_sqlx_can_enqueue,
    jobs_are_counted_by_state_and_queue,
    a_missing_table_and_invalid_arguments_are_errors,
    concurrent_provisioning_works,
}

async fn jobs_are_claimed_by_priority_then_age(store: Store) {
    let queue = provision_queue(&store).await;
    for (payload, priority) in [("c", 100), ("a", -3), ("d", 100), ("b", 7), ("e", i64::MAX)] {
        queue.enqueue(Job::new(payload).priority(priority)).await.unwrap();
    }
    let first = queue.claim("w", 2, LONG).await.unwrap();
    assert_eq!(first.iter().map(|job| job.payload()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(payloads(&queue).await, ["c", "d", "e"]);
}

async fn a_scheduled_job_waits_until_it_is_due(store: Store) {
    let queue = provision_queue(&store).await;
    let now = SystemTime::now();
    for job in [
        Job::new("past").run_at(now - LONG),
        Job::new("at once").run_in(Duration::ZERO),
        Job::new("soon").run_in(Duration::from_millis(20)),
        Job::new("later").run_in(LONG),
        Job::new("later too").run_at(now + LONG),
    ] {
        queue.enqueue(job).await.unwrap();
    }
    assert_eq!(states(&queue).await, [2, 3, 0, 0]);
    assert_eq!(payloads(&queue).await, ["past", "at once"]);
    eventually("the job is due", async || queue.promote().await.unwrap().ready == 1).await;
    assert_eq!(payloads(&queue).await, ["soon"]);
    store.run("UPDATE hier_jobs SET due_ms = 0 WHERE state = 1").await;
    assert_eq!(queue.promote().await.unwrap().ready, 2);
    assert_eq!(payloads(&queue).await, ["later", "later too"]);
}

async fn a_unique_key_is_in_the_queue_once(store: Store) {
    let queue = provision_queue(&store).await;
    let other = Queue::new(store.database.clone(), "other").unwrap();
    let job = || Job::new("x").unique("it's ?").max_attempts(1);
    let first = queue.enqueue(job()).await.unwrap();
    assert!(first.is_added() && other.enqueue(job()).await.unwrap().is_added());
    assert_eq!(queue.enqueue(job()).await.unwrap(), EnqueueOutcome::Duplicate(first.id()));
    // As long as the job exists: claimed, dead, ready again; but not when it is done.
    claim_one(&queue, "w").await.fail("no").await.unwrap();
    assert_eq!(states(&queue).await, [0, 0, 0, 1]);
    assert!(!queue.enqueue(job()).await.unwrap().is_added());
    queue.retry_dead(hierlock::queue::DeadJobFilter::All).await.unwrap();
    let claimed = claim_one(&queue, "w").await;
    assert_eq!(claimed.unique_key(), Some("it's ?"));
    assert!(!queue.enqueue(job()).await.unwrap().is_added());
    claimed.complete().await.unwrap();
    assert!(queue.enqueue(job()).await.unwrap().is_added());
}

async fn a_unique_key_is_added_once_by_concurrent_clients(store: Store) {
    let queue = provision_queue(&store).await;
    for round in 0..10 {
        let adds = (0..8).map(|_| {
            let (queue, job) = (queue.clone(), Job::new("x").unique(format!("k{round}")));
            tokio::spawn(async move { queue.enqueue(job).await.unwrap() })
        });
        let mut ids = Vec::new();
        let mut added = 0;
        for add in adds.collect::<Vec<_>>() {
            let enqueued = add.await.unwrap();
            added += u32::from(enqueued.is_added());
            ids.push(enqueued.id());
        }
        ids.dedup();
        assert_eq!((added, ids.len()), (1, 1));
    }
}

async fn a_duplicate_does_not_abort_the_transaction(store: Store) {
    let queue = provision_queue(&store).await;
    let job = || Job::new("x").unique("k");
    let first = queue.enqueue(job()).await.unwrap().id();
    let mut tx = store.database.begin().await.unwrap();
    queue.enqueue_in(&mut tx, Job::new("before")).await.unwrap();
    assert_eq!(queue.enqueue_in(&mut tx, job()).await.unwrap(), EnqueueOutcome::Duplicate(first));
    let jobs = [Job::new("a"), job(), Job::new("b"), Job::new("c")];
    let added = queue.enqueue_all_in(&mut tx, jobs).await.unwrap();
    let is_added: Vec<bool> = added.iter().map(|enqueued| enqueued.is_added()).collect();
    assert_eq!(is_added, [true, false, true, true]);
    tx.commit().await.unwrap();
    assert_eq!(payloads(&queue).await, ["x", "before", "a", "b", "c"]);
}

async fn a_job_exists_only_if_its_transaction_commits(store: Store) {
    let queue = provision_queue(&store).await;
    for end in ["roll back", "drop", "commit"] {
        let mut tx = store.database.begin().await.unwrap();
        let added = queue.enqueue_in(&mut tx, Job::new(end).unique("k")).await.unwrap();
        assert!(added.is_added(), "{end}");
        if let TestEngine::Server(_) = store.engine {
            assert_eq!(payloads(&queue).await, [""; 0], "the job is visible before the commit");
        }
        match end {
            "commit" => tx.commit().await.unwrap(),
            "roll back" => tx.rollback().await.unwrap(),
            _ => drop(tx),
        }
    }
    assert_eq!(payloads(&queue).await, ["commit"]);
}

async fn many_jobs_are_added_in_order(store: Store) {
    let queue = provision_queue(&store).await;
    let job = |number: usize| match number % 400 {
        0 => Job::new(number.to_string()).unique(number.to_string()),
        _ => Job::new(number.to_string()),
    };
    let added = queue.enqueue_all((0..1203).map(job)).await.unwrap();
    assert!(added.iter().all(|enqueued| enqueued.is_added()));
    let claimed = queue.claim("w", 5000, LONG).await.unwrap();
    assert_eq!(claimed.len(), 1203);
    for (number, (job, enqueued)) in claimed.iter().zip(&added).enumerate() {
        assert_eq!((job.payload(), job.id()), (number.to_string().as_str(), enqueued.id()));
    }
    // Large payloads are not sent in one packet.
    let large = (0..5).map(|_| Job::new("ü".repeat(300_000)));
    assert_eq!(queue.enqueue_all(large).await.unwrap().len(), 5);
    assert_eq!(payloads(&queue).await, vec!["ü".repeat(300_000); 5]);
    assert_eq!(queue.enqueue_all([]).await.unwrap(), []);
}

/// The caller's own pool, at any isolation level.
async fn a_transaction_of_sqlx_can_enqueue(store: Store) {
    let queue = provision_queue(&store).await;
    macro_rules! in_a_transaction {
        ($pool:ty, $level:expr) => {{
            let pool = <$pool>::connect(&store.url.replacen("mariadb", "mysql", 1)).await.unwrap();
            let mut tx = pool.begin_with($level).await.unwrap();
            sqlx::query("SELECT COUNT(*) FROM hier_jobs").fetch_all(&mut *tx).await.unwrap();
            // On a server this job is added after the snapshot, if there is one.
            let first = match store.engine {
                TestEngine::Server(_) => {
                    queue.enqueue(Job::new("first").unique("k")).await.unwrap()
                }
                TestEngine::Sqlite => {
                    queue.enqueue_in(&mut tx, Job::new("first").unique("k")).await.unwrap()
                }
            };
            let again = queue.enqueue_in(&mut tx, Job::new("again").unique("k")).await.unwrap();
            assert_eq!(again, EnqueueOutcome::Duplicate(first.id()));
            queue.enqueue_in(&mut tx, Job::new("second")).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(payloads(&queue).await, ["first", "second"]);
            // A transaction of another engine is refused.
            let other = queue_of_another_engine(store.engine).await;
            let mut tx = pool.begin().await.unwrap();
            let error = other.enqueue_in(&mut tx, Job::new("x")).await.unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("the queue is in"), "{error}");
        }};
    }
    match store.url.split(':').next().unwrap() {
        "postgres" | "postgresql" => in_a_transaction!(sqlx::PgPool, "BEGIN"),
        "sqlite" => in_a_transaction!(sqlx::SqlitePool, "BEGIN IMMEDIATE"),
        _ => in_a_transaction!(sqlx::MySqlPool, "START TRANSACTION"),
    }
}

/// Returns a queue in a database of another engine, without a connection.
async fn queue_of_another_engine(engine: TestEngine) -> Queue {
    match engine {
        TestEngine::Server(_) => {
            Queue::new(sqlx::SqlitePool::connect_lazy("sqlite::memory:").unwrap(), "mail").unwrap()
        }
        TestEngine::Sqlite => {
            Queue::new(sqlx::PgPool::connect_lazy("postgres://nobody@localhost/x").unwrap(), "mail")
                .unwrap()
        }
    }
}

async fn jobs_are_counted_by_state_and_queue(store: Store) {
    let queue = provision_queue(&store).await;
    assert_eq!(states(&queue).await, [0; 4]);
    assert_eq!(queue.stats().await.unwrap().oldest_ready, None);
    let other = Queue::new(store.database.clone(), "a-other").unwrap();
    add(&other, ["z"]).await;
    add(&queue, ["claimed", "ready", "ready"]).await;
    queue.claim("w", 1, LONG).await.unwrap();
    queue.enqueue(Job::new("dies").priority(1).max_attempts(1)).await.unwrap();
    queue.claim("w", 1, LONG).await.unwrap()[0].fail("no").await.unwrap();
    queue.enqueue(Job::new("later").run_in(LONG)).await.unwrap();
    assert_eq!(states(&queue).await, [2, 1, 1, 1]);
    store.run("UPDATE hier_jobs SET due_ms = due_ms - 60000 WHERE state = 0").await;
    let all = Queue::all_stats(&store.database).await.unwrap();
    assert_eq!(all.iter().map(|stats| &*stats.queue).collect::<Vec<_>>(), ["a-other", "mail"]);
    let oldest = all[1].oldest_ready.unwrap();
    assert!(oldest >= Duration::from_secs(60) && oldest < Duration::from_secs(120), "{oldest:?}");
}

async fn a_missing_table_and_invalid_arguments_are_errors(store: Store) {
    let queue = Queue::new(store.database.clone(), "mail").unwrap();
    let errors = [
        queue.enqueue(Job::new("x")).await.unwrap_err(),
        queue.claim("w", 1, LONG).await.unwrap_err(),
        queue.promote().await.unwrap_err(),
        queue.stats().await.unwrap_err(),
        queue.dead(1).await.unwrap_err(),
        queue.worker("w").run(|_| async { Ok::<_, String>(()) }).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_not_provisioned(), "{error}");
        assert!(error.to_string().contains("hierlock queue provision"), "{error}");
    }
    // The script creates the tables too.
    for statement in queue.script().split(";\n").filter(|text| !text.is_empty()) {
        store.run(statement).await;
    }
    assert!(queue.enqueue(Job::new("x")).await.unwrap().is_added());
    // Invalid arguments are refused before the database is used.
    for error in [
        Queue::new(store.database.clone(), "a b").unwrap_err(),
        queue.claim("a'b", 1, LONG).await.unwrap_err(),
        queue.claim("w", 1, Duration::ZERO).await.unwrap_err(),
        queue.enqueue(Job::new("a\0b")).await.unwrap_err(),
        queue.worker("").run(|_| async { Ok::<_, String>(()) }).await.unwrap_err(),
    ] {
        assert!(error.is_usage(), "{error}");
    }
    assert_eq!(queue.claim("w", 0, LONG).await.unwrap().len(), 0);
}

async fn concurrent_provisioning_works(store: Store) {
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let queue = Queue::new(store.other().await, "mail").unwrap();
        tasks.push(tokio::spawn(async move { queue.provision().await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let queue = provision_queue(&store).await;
    add(&queue, ["x"]).await;
    assert_eq!(payloads(&queue).await, ["x"]);
}
