//! Workers run jobs, record their outcomes, and stop gracefully.

use super::{LONG, add, end_leases, provision_queue, states};
use crate::servers::TEST_LIMIT;
use crate::support::{Store, TestEngine, eventually, on_every_engine};
use hierlock::queue::{ClaimedJob, Job, Queue};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

on_every_engine! {
    every_job_is_run_and_completed,
    errors_and_panics_are_failures,
    a_handler_can_end_its_job_itself,
    a_stopped_worker_finishes_running_jobs_and_gives_back_the_rest,
    jobs_of_a_dropped_worker_become_ready_when_their_lease_ends,
    heartbeats_keep_the_lease_of_a_long_job,
    a_handler_is_notified_of_a_lost_job,
    a_worker_is_woken_in_its_process,
    polling_finds_failed_scheduled_and_abandoned_jobs,
    a_worker_survives_temporary_database_errors,
}

type Runs = Arc<Mutex<BTreeMap<String, u32>>>;

fn count(runs: &Runs, job: &ClaimedJob) {
    *runs.lock().unwrap().entry(job.payload().to_owned()).or_default() += 1;
}

async fn every_job_is_run_and_completed(store: Store) {
    let queue = provision_queue(&store).await;
    for (batch, concurrency) in [(1, 1), (20, 8), (3, 10), (20, 1)] {
        let payloads: Vec<String> = (0..60).map(|number| number.to_string()).collect();
        add(&queue, payloads.iter().map(String::as_str)).await;
        let runs = Runs::default();
        let worker = queue.worker("w").batch(batch).concurrency(concurrency).until_empty();
        let counter = runs.clone();
        let summary = worker.run(move |job| {
            count(&counter, &job);
            async { Ok::<_, String>(()) }
        });
        assert_eq!(summary.await.unwrap().done, 60);
        assert!(
            runs.lock().unwrap().len() == 60
                && runs.lock().unwrap().values().all(|times| *times == 1)
        );
        assert_eq!(states(&queue).await, [0; 4]);
    }
}

async fn errors_and_panics_are_failures(store: Store) {
    let queue = provision_queue(&store).await;
    for payload in ["fails", "panics", "panics early", "works"] {
        queue.enqueue(Job::new(payload).max_attempts(2)).await.unwrap();
    }
    let worker = queue.worker("w").batch(4).concurrency(2).poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let work = tokio::spawn(worker.run(|job| {
        assert_ne!(job.payload(), "panics early", "that is no {}", "good");
        async move {
            match job.payload() {
                "fails" => Err("out of paper".to_owned()),
                "panics" => panic!("out of mind"),
                _ => Ok(()),
            }
        }
    }));
    eventually("three jobs are dead", async || states(&queue).await == [0, 0, 0, 3]).await;
    handle.stop();
    let summary = work.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.failed, summary.lost), (1, 6, 0));
    let mut errors: Vec<(String, String)> = Vec::new();
    for dead in queue.dead(9).await.unwrap() {
        assert_eq!(dead.attempts, 2);
        errors.push((dead.payload, dead.last_error.unwrap()));
    }
    errors.sort();
    assert_eq!(errors[0], ("fails".to_owned(), "out of paper".to_owned()));
    assert_eq!(errors[1], ("panics".to_owned(), "panicked: out of mind".to_owned()));
    assert!(errors[2].1.contains("that is no good"), "{errors:?}");
}

async fn a_handler_can_end_its_job_itself(store: Store) {
    let queue = provision_queue(&store).await;
    store.run("CREATE TABLE effects (id BIGINT)").await;
    for payload in ["in", "in, but fails", "in, rolled back", "complete", "give back", "fail"] {
        queue.enqueue(Job::new(payload).max_attempts(1)).await.unwrap();
    }
    let database = store.database.clone();
    let worker = queue.worker("w").batch(9).concurrency(1);
    let handle = worker.handle();
    let stop = handle.clone();
    let summary = worker.run(move |job: ClaimedJob| {
        let (database, stop) = (database.clone(), stop.clone());
        async move {
            if job.payload().starts_with("in") {
                let mut tx = database.begin().await?;
                tx.execute("INSERT INTO effects VALUES (1)", []).await?;
                job.complete_in(&mut tx).await?;
                if job.payload() == "in, rolled back" {
                    tx.rollback().await?;
                    return Err("nothing came of it".into());
                }
                tx.commit().await?;
            }
            match job.payload() {
                "in, but fails" => return Err("too late to fail".into()),
                "complete" => job.complete().await?,
                "give back" => {
                    stop.stop();
                    job.give_back().await?;
                }
                "fail" => drop(job.fail("by itself").await?),
                _ => {}
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        }
    });
    let summary = summary.await.unwrap();
    // "fail" was not started when the worker was stopped.
    let counts = [summary.done, summary.failed, summary.given_back, summary.lost];
    assert_eq!(counts, [3, 1, 2, 0]);
    assert_eq!(store.number("SELECT COUNT(*) FROM effects").await, 2);
    assert_eq!(states(&queue).await, [2, 0, 0, 1]);
}

async fn a_stopped_worker_finishes_running_jobs_and_gives_back_the_rest(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"; 30]).await;
    let (started, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let worker = queue.worker("w").batch(20).concurrency(4).poll_every(LONG);
    let handle = worker.handle();
    let (counter, open) = (started.clone(), gate.clone());
    let work = tokio::spawn(worker.run(move |_| {
        let (counter, open) = (counter.clone(), open.clone());
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            open.acquire().await.map(|permit| permit.forget())
        }
    }));
    eventually("four jobs are running", async || started.load(Ordering::SeqCst) == 4).await;
    handle.stop();
    eventually("the other jobs are ready", async || states(&queue).await == [26, 0, 4, 0]).await;
    assert!(!work.is_finished());
    gate.add_permits(100);
    let summary = work.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.given_back, summary.failed), (4, 16, 0));
    assert_eq!((started.load(Ordering::SeqCst), states(&queue).await), (4, [26, 0, 0, 0]));
    assert_eq!(store.number("SELECT MAX(attempts) FROM hier_jobs").await, 0);
    // A handle can stop its worker before it starts.
    let worker = queue.worker("w");
    worker.handle().stop();
    let summary = worker.run(|_| async { Ok::<_, String>(()) }).await.unwrap();
    assert_eq!(summary.done, 0);
}

async fn jobs_of_a_dropped_worker_become_ready_when_their_lease_ends(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"; 3]).await;
    let started = Arc::new(AtomicUsize::new(0));
    let worker = queue.worker("w").batch(3).concurrency(3).lease(Duration::from_secs(2));
    let counter = started.clone();
    let work = tokio::spawn(worker.run(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<(), String>>()
    }));
    eventually("all jobs are running", async || started.load(Ordering::SeqCst) == 3).await;
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    let mut back = 0;
    eventually("all jobs are ready again", async || {
        back += queue.promote().await.unwrap().returned;
        back == 3
    })
    .await;
    assert_eq!((started.load(Ordering::SeqCst), states(&queue).await), (3, [3, 0, 0, 0]));
}

async fn heartbeats_keep_the_lease_of_a_long_job(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"]).await;
    let lease = Duration::from_secs(3);
    let worker = queue.worker("w").lease(lease).until_empty().poll_every(LONG);
    let database = store.database.clone();
    let watcher = queue.clone();
    let summary = worker.run(move |_| {
        let (database, queue) = (database.clone(), watcher.clone());
        async move {
            // No other worker gets the job until its lease has been extended three times.
            let (mut ends, mut last) = (0, 0);
            while ends < 3 {
                let mut tx = database.begin().await?;
                let due = tx.fetch("SELECT due_ms FROM hier_jobs", []).await?[0].int(0)?;
                tx.commit().await?;
                ends += u32::from(last != 0 && due > last);
                last = due;
                assert_eq!(queue.promote().await?.returned, 0);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, hierlock::Error>(())
        }
    });
    let summary =
        tokio::time::timeout(Duration::from_secs(60), summary).await.expect("no heartbeat");
    assert_eq!(summary.unwrap().done, 1);
}

async fn a_handler_is_notified_of_a_lost_job(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"]).await;
    let worker = queue.worker("slow").lease(Duration::from_millis(300)).poll_every(LONG);
    let handle = worker.handle();
    let thief = queue.clone();
    let database = store.database.clone();
    let summary = worker.run(move |job| {
        let (queue, database, stop) = (thief.clone(), database.clone(), handle.clone());
        async move {
            let steal = async || {
                let mut tx = database.begin().await?;
                tx.execute("UPDATE hier_jobs SET due_ms = 0 WHERE state = 2", []).await?;
                tx.commit().await?;
                queue.promote().await.map(|promoted| promoted.returned == 1)
            };
            // A heartbeat may run in between.
            while !steal().await? {}
            assert_eq!(queue.claim("fast", 1, LONG).await?.len(), 1);
            job.lost().await;
            stop.stop();
            Ok::<_, hierlock::Error>(())
        }
    });
    let summary = tokio::time::timeout(TEST_LIMIT, summary).await;
    let summary = summary.expect("the loss was not reported").unwrap();
    assert_eq!((summary.done, summary.lost), (0, 1));
    assert_eq!(states(&queue).await, [0, 0, 1, 0]);
}

/// Runs a worker with a long poll interval until `jobs` jobs are done; `enqueue` is called when the worker is idle.
async fn run_until_woken(queue: &Queue, jobs: usize, enqueue: impl AsyncFnOnce()) {
    let done = Arc::new(AtomicUsize::new(0));
    let worker = queue.worker("w").poll_every(LONG);
    let handle = worker.handle();
    let counter = done.clone();
    add(queue, ["first"]).await;
    let work = tokio::spawn(worker.run(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>(()) }
    }));
    eventually("the first job is done", async || states(queue).await == [0; 4]).await;
    enqueue().await;
    eventually("the worker is woken", async || done.load(Ordering::SeqCst) == jobs + 1).await;
    handle.stop();
    work.await.unwrap().unwrap();
}

async fn a_worker_is_woken_in_its_process(store: Store) {
    let queue = provision_queue(&store).await;
    run_until_woken(&queue, 7, async || {
        queue.enqueue(Job::new("x")).await.unwrap();
        queue.clone().enqueue_all(vec![Job::new("x"); 5]).await.unwrap();
        let mut tx = store.database.begin().await.unwrap();
        queue.enqueue_in(&mut tx, Job::new("x")).await.unwrap();
        tx.commit().await.unwrap();
        queue.wake();
    })
    .await;
}

const LISTENING: &str = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND \
                         query LIKE '%LISTEN%' AND pid <> pg_backend_pid()";

/// The worker is woken by the commit of another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_wakes_a_worker_of_another_process() {
    let engine = TestEngine::Server(hierlock_sandbox::Engine::Postgres);
    let Some(store) = Store::new(engine).await else { return };
    let queue = provision_queue(&store).await;
    let outside = Queue::new(store.other().await, "mail").unwrap();
    let mut observer = crate::servers::OutsideSession::connect(&store.url).await;
    run_until_woken(&queue, 2, async || {
        // The worker listens on a separate connection, once that is open.
        eventually("the worker listens", async || observer.number(LISTENING).await == 1).await;
        outside.enqueue(Job::new("x")).await.unwrap();
        let mut tx = outside.database().begin().await.unwrap();
        outside.enqueue_in(&mut tx, Job::new("x")).await.unwrap();
        tx.commit().await.unwrap();
    })
    .await;
    eventually("the worker has stopped to listen", async || observer.number(LISTENING).await == 0)
        .await;
}

async fn polling_finds_failed_scheduled_and_abandoned_jobs(store: Store) {
    let queue = provision_queue(&store).await;
    queue.enqueue(Job::new("later").run_in(Duration::from_millis(50))).await.unwrap();
    queue.enqueue(Job::new("abandoned")).await.unwrap();
    queue.claim("dead", 1, LONG).await.unwrap();
    end_leases(&store).await;
    queue.enqueue(Job::new("fails once")).await.unwrap();
    let worker = queue.worker("w").batch(2).poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let runs = Runs::default();
    let counter = runs.clone();
    let work = tokio::spawn(worker.run(move |job| {
        count(&counter, &job);
        let fails = job.payload() == "fails once" && job.attempt() == 1;
        async move { if fails { Err("once") } else { Ok(()) } }
    }));
    eventually("all jobs are done", async || states(&queue).await == [0; 4]).await;
    handle.stop();
    assert_eq!(work.await.unwrap().unwrap().done, 3);
    let runs: Vec<_> = runs.lock().unwrap().clone().into_iter().collect();
    assert_eq!(
        runs,
        [("abandoned".to_owned(), 1), ("fails once".to_owned(), 2), ("later".to_owned(), 1)]
    );
}

/// A column is missing for a while, so every statement fails. (Without the table the worker would end.)
async fn a_worker_survives_temporary_database_errors(store: Store) {
    let queue = provision_queue(&store).await;
    let worker = queue.worker("w").batch(5).poll_every(Duration::from_millis(10));
    let handle = worker.handle();
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    add(&queue, ["x"; 5]).await;
    let started = Arc::new(AtomicUsize::new(0));
    let counter = started.clone();
    let work = tokio::spawn(worker.run(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let open = open.clone();
        async move { open.acquire().await.map(|permit| permit.forget()) }
    }));
    eventually("the first job is running", async || started.load(Ordering::SeqCst) == 1).await;
    store.run("ALTER TABLE hier_jobs RENAME COLUMN claim TO claimed").await;
    gate.add_permits(100);
    eventually("the worker continues", async || started.load(Ordering::SeqCst) == 5).await;
    store.run("ALTER TABLE hier_jobs RENAME COLUMN claimed TO claim").await;
    eventually("all jobs are done", async || states(&queue).await == [0; 4]).await;
    handle.stop();
    assert_eq!(work.await.unwrap().unwrap().done, 5);
}
