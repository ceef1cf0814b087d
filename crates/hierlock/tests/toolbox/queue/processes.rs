//! Workers in other processes that are killed: this test binary starts itself again.

use super::{LONG, add, provision_queue, states};
use crate::support::{Store, eventually, on_every_engine};
use hierlock::database::Database;
use hierlock::queue::{ClaimedJob, Job, Queue};
use hierlock::retry::{RetryPolicy, retry};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

on_every_engine! {
    jobs_of_a_killed_worker_become_ready_again,
    workers_killed_at_random_run_each_job_exactly_once,
}

const ROLE: &str = "HIERLOCK_TEST_QUEUE_ROLE";
const URL: &str = "HIERLOCK_TEST_QUEUE_URL";
const EFFECTS: &str = "CREATE TABLE effects (id BIGINT NOT NULL)";
/// Short, so that the jobs of a killed worker come back soon; long enough for a heartbeat on a busy machine.
const LEASE: Duration = Duration::from_secs(3);

/// A worker in another process. Dropping it kills the process.
struct WorkerProcess(Child);

impl WorkerProcess {
    fn start(store: &Store, role: &str) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "queue::processes::a_worker_for_another_test", "--nocapture"])
            .env(ROLE, role)
            .env(URL, &store.url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(process.unwrap())
    }

    /// Kills the process with SIGKILL. It must not have ended by itself.
    fn kill(mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "the worker ended by itself");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does nothing unless another test has started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_for_another_test() {
    let (Ok(role), Ok(url)) = (std::env::var(ROLE), std::env::var(URL)) else { return };
    let queue = Queue::new(Database::connect(&url).await.unwrap(), "mail").unwrap();
    let worker = queue.worker("other").batch(10).concurrency(4).lease(LEASE);
    let worker = worker.poll_every(Duration::from_millis(100));
    let database = queue.database().clone();
    let summary = match role.as_str() {
        "hangs" => worker.run(|_| std::future::pending::<hierlock::Result<()>>()).await,
        _ => worker.run(move |job| work(database.clone(), job)).await,
    };
    summary.unwrap();
}

/// Writes the effect and completes the job in one transaction.
async fn work(database: Database, job: ClaimedJob) -> hierlock::Result<()> {
    let policy = RetryPolicy::default().attempts(50);
    let done = retry(policy, |_| async {
        let mut tx = database.begin().await?;
        tx.execute("INSERT INTO effects VALUES (?)", [job.id().into()]).await?;
        job.complete_in(&mut tx).await?;
        tx.commit().await
    });
    done.await.map_err(|given_up| given_up.last)
}

async fn jobs_of_a_killed_worker_become_ready_again(store: Store) {
    let queue = provision_queue(&store).await;
    store.run(EFFECTS).await;
    add(&queue, ["x"; 3]).await;
    let other = WorkerProcess::start(&store, "hangs");
    eventually("all jobs are claimed", async || states(&queue).await == [0, 0, 3, 0]).await;
    // The jobs belong to the worker as long as it lives.
    let started = Instant::now();
    while started.elapsed() < LEASE + LEASE / 2 {
        assert_eq!(queue.promote().await.unwrap().returned, 0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    other.kill();
    let mut back = 0;
    eventually("all jobs are ready again", async || {
        back += queue.promote().await.unwrap().returned;
        back == 3
    })
    .await;
    for job in queue.claim("w", 9, LONG).await.unwrap() {
        assert_eq!((job.attempt(), job.claim_number()), (2, 2));
        work(store.database.clone(), job).await.unwrap();
    }
    assert_eq!(store.number("SELECT COUNT(*) FROM effects").await, 3);
}

/// Every job takes effect exactly once, because the effect is in the transaction that completes it.
async fn workers_killed_at_random_run_each_job_exactly_once(store: Store) {
    const JOBS: i64 = 3_000;
    const WORKERS: usize = 4;
    const KILLS: i64 = 8;
    let queue = provision_queue(&store).await;
    store.run(EFFECTS).await;
    let jobs = (0..JOBS).map(|number| Job::new(number.to_string()).max_attempts(1000));
    queue.enqueue_all(jobs).await.unwrap();
    let mut workers: Vec<WorkerProcess> =
        (0..WORKERS).map(|_| WorkerProcess::start(&store, "works")).collect();
    let effects = async || store.number("SELECT COUNT(*) FROM effects").await;
    for kill in 1..=KILLS {
        let enough = JOBS * kill / (KILLS + 2);
        eventually("the workers make progress", async || effects().await >= enough).await;
        let victim = fastrand::usize(..WORKERS);
        let next = WorkerProcess::start(&store, "works");
        std::mem::replace(&mut workers[victim], next).kill();
    }
    eventually("all jobs are done", async || states(&queue).await == [0; 4]).await;
    workers.into_iter().for_each(WorkerProcess::kill);
    assert_eq!(effects().await, JOBS);
    assert_eq!(store.number("SELECT COUNT(DISTINCT id) FROM effects").await, JOBS);
}
