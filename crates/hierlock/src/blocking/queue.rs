//! Blocking versions of queues, claimed jobs and workers.

use super::{Database, Transaction, forward, wait_at_most, wait_for};
use crate::error::Result;
use crate::queue::{
    self, DeadJob, DeadJobFilter, EnqueueOutcome, FailureOutcome, Job, JobOutcome, PromotionCounts,
    QueueStats, WorkerHandle, WorkerSummary,
};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinError;

/// Blocking version of [`crate::queue::Queue`]. Clones are the same queue.
///
/// ```
/// use hierlock::blocking::{Database, Queue};
/// use hierlock::queue::Job;
/// use std::time::Duration;
///
/// let mails = Queue::new(&Database::connect("sqlite::memory:")?, "mails")?;
/// mails.provision()?;
/// mails.enqueue(Job::new("to: ada"))?;
/// for job in mails.claim("worker-1", 10, Duration::from_secs(30))? {
///     assert_eq!(job.payload(), "to: ada");
///     job.complete()?;
/// }
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queue(queue::Queue);

impl Queue {
    /// See [`crate::queue::Queue::new`].
    pub fn new(database: &Database, name: &str) -> Result<Self> {
        queue::Queue::new(database.0.clone(), name).map(Self)
    }

    /// See [`crate::queue::Queue::all_stats`].
    pub fn all_stats(database: &Database) -> Result<Vec<QueueStats>> {
        wait_for(queue::Queue::all_stats(&database.0))
    }

    forward! { "crate::queue::Queue"
        #[must_use]
        fn pauses(self, first: Duration, longest: Duration) -> Self => Self;
        fn name(&self) -> &str;
        async fn provision(&self) -> Result<()>;
        fn script(&self) -> String;
        async fn enqueue(&self, job: Job) -> Result<EnqueueOutcome>;
        async fn enqueue_all(&self, jobs: impl IntoIterator<Item = Job>)
            -> Result<Vec<EnqueueOutcome>>;
        async fn enqueue_in(&self, tx: &mut Transaction => &mut tx.0, job: Job)
            -> Result<EnqueueOutcome>;
        async fn enqueue_all_in(&self, tx: &mut Transaction => &mut tx.0,
            jobs: impl IntoIterator<Item = Job>) -> Result<Vec<EnqueueOutcome>>;
        async fn claim(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<ClaimedJob>>
            => |jobs| jobs.into_iter().map(ClaimedJob).collect();
        async fn heartbeat(&self, jobs: &[ClaimedJob] => &async_jobs(jobs), lease: Duration)
            -> Result<Vec<i64>>;
        async fn complete_all(&self, jobs: &[ClaimedJob] => &async_jobs(jobs)) -> Result<Vec<i64>>;
        async fn promote(&self) -> Result<PromotionCounts>;
        async fn stats(&self) -> Result<QueueStats>;
        async fn dead(&self, limit: u32) -> Result<Vec<DeadJob>>;
        async fn retry_dead(&self, which: DeadJobFilter) -> Result<u64>;
        fn worker(&self, name: &str) -> Worker => Worker;
        fn wake(&self);
    }
}

fn async_jobs(jobs: &[ClaimedJob]) -> Vec<queue::ClaimedJob> {
    jobs.iter().map(|job| job.0.clone()).collect()
}

/// Blocking version of [`crate::queue::ClaimedJob`]. Clones are the same claim.
#[derive(Clone, Debug)]
#[must_use = "a claimed job is not run by other workers until its lease ends"]
pub struct ClaimedJob(queue::ClaimedJob);

impl ClaimedJob {
    forward! { "crate::queue::ClaimedJob"
        fn id(&self) -> i64;
        fn claim_number(&self) -> i64;
        fn payload(&self) -> &str;
        fn worker(&self) -> &str;
        fn attempt(&self) -> u32;
        fn max_attempts(&self) -> u32;
        fn priority(&self) -> i64;
        fn unique_key(&self) -> Option<&str>;
        fn created_at(&self) -> SystemTime;
        async fn complete(&self) -> Result<()>;
        async fn complete_in(&self, tx: &mut Transaction => &mut tx.0) -> Result<()>;
        async fn fail(&self, error: impl fmt::Display) -> Result<FailureOutcome>;
        async fn give_back(&self) -> Result<()>;
    }

    /// Blocks until the claim may be lost. Returns `false` after `within`.
    pub fn lost(&self, within: Duration) -> bool {
        wait_at_most(within, self.0.lost()).is_some()
    }
}

/// Blocking version of [`crate::queue::Worker`]: its handlers may block.
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker(queue::Worker);

impl Worker {
    forward! { "crate::queue::Worker"
        fn batch(self, jobs: usize) -> Self => Self;
        /// Each job runs on its own thread.
        fn concurrency(self, jobs: usize) -> Self => Self;
        fn lease(self, lease: Duration) -> Self => Self;
        fn poll_every(self, interval: Duration) -> Self => Self;
        fn until_empty(self) -> Self => Self;
        fn handle(&self) -> WorkerHandle;
    }

    /// See [`crate::queue::Worker::on_end`].
    pub fn on_end(self, hook: impl Fn(&ClaimedJob, &JobOutcome) + Send + Sync + 'static) -> Self {
        Self(self.0.on_end(move |job, outcome| hook(&ClaimedJob(job.clone()), outcome)))
    }

    /// Runs until it is [stopped](WorkerHandle::stop): see [`crate::queue::Worker::run`]. `handler` runs for each job on
    /// its own thread; an error or a panic is a failure.
    pub fn run<F, E>(self, handler: F) -> Result<WorkerSummary>
    where
        F: Fn(ClaimedJob) -> Result<(), E> + Send + Sync + 'static,
        E: fmt::Display + Send + 'static,
    {
        let handler = Arc::new(handler);
        wait_for(self.0.run(move |job| {
            let handler = handler.clone();
            async move {
                let handled = tokio::task::spawn_blocking(move || handler(ClaimedJob(job))).await;
                match handled.map_err(JoinError::try_into_panic) {
                    Ok(handled) => handled,
                    // The panic continues in this task, where the worker counts it.
                    Err(Ok(panic)) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down, and this task with it.
                    Err(Err(_)) => std::future::pending().await,
                }
            }
        }))
    }
}
