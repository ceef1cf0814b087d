//! A worker: claims jobs, runs them, and records their outcomes.

mod background;
mod run;
mod stop;

use super::job::{check_name, millis};
use super::{ClaimedJob, JobOutcome, Queue};
use crate::error::Result;
use futures_util::{FutureExt as _, TryFutureExt as _};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub use stop::WorkerHandle;

/// A worker and its options. [`run`](Self::run) starts it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// # use hierlock::{database::Database, queue::{Job, Queue}};
/// # let mail = Queue::new(Database::connect("sqlite::memory:").await?, "mail")?;
/// # mail.provision().await?;
/// # mail.enqueue(Job::new("to ada")).await?;
/// let worker = mail.worker("w1").batch(20).concurrency(8).until_empty();
/// let handle = worker.handle(); // handle.stop() stops the worker from another task
/// let summary = worker
///     .run(|job| async move {
///         println!("sends {}", job.payload());
///         Ok::<_, std::io::Error>(())
///     })
///     .await?;
/// assert_eq!(summary.done, 1);
/// # let _ = handle;
/// # Ok(()) }
/// ```
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    queue: Queue,
    name: String,
    batch: usize,
    concurrency: usize,
    lease: Duration,
    poll_every: Duration,
    until_empty: bool,
    handle: WorkerHandle,
    on_end: Box<OnEnd>,
}

type OnEnd = dyn Fn(&ClaimedJob, &JobOutcome) + Send + Sync;

/// The numbers of jobs that a worker has handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSummary {
    /// Completed jobs.
    pub done: u64,
    /// Failed attempts, each counted for its job.
    pub failed: u64,
    /// Jobs whose lease ended before the handler returned: another worker may have them, and no outcome was recorded.
    pub lost: u64,
    /// Jobs that were not started when the worker was stopped.
    pub given_back: u64,
    /// Jobs that have ended while the database did not answer: they become ready again when their lease ends.
    pub unrecorded: u64,
}

impl Worker {
    pub(super) fn new(queue: Queue, name: &str) -> Self {
        Self {
            queue,
            name: name.to_owned(),
            batch: 1,
            concurrency: 1,
            lease: Duration::from_secs(30),
            poll_every: Duration::from_secs(1),
            until_empty: false,
            handle: WorkerHandle::new(),
            on_end: Box::new(log),
        }
    }

    setters! {
        /// Sets the maximum number of jobs that the worker claims, and completes, at once; 1 by default.
        batch(jobs: usize) => batch: jobs.clamp(1, Queue::MAX_CLAIM);
        /// Sets the number of jobs that run at the same time; 1 by default.
        concurrency(jobs: usize) => concurrency: jobs.max(1);
        /// Sets the lease of claimed jobs, which is extended by three heartbeats per lease; 30 s by default. If the worker
        /// is killed, its jobs become ready again after that time.
        lease: Duration;
        /// Sets how often the worker looks for jobs without being woken; every second by default.
        poll_every(interval: Duration) => poll_every: interval;
        /// Ends the worker when no job is ready, instead of waiting for the next.
        until_empty() => until_empty: true;
        /// Sets a hook that is called with the outcome of each job that was started, for metrics or a log. By default
        /// [`Unrecorded`](JobOutcome::Unrecorded) is logged. The worker waits for the hook, so it should return soon.
        on_end(hook: impl Fn(&ClaimedJob, &JobOutcome) + Send + Sync + 'static) => on_end: Box::new(hook);
    }

    /// Returns a handle that stops the worker.
    pub fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Runs until the worker is [stopped](WorkerHandle::stop): then it claims no more jobs, finishes the running ones, and
    /// gives back the others.
    ///
    /// A stop also works while the database does not answer. Without a job the worker returns after two seconds. It tries
    /// to record the outcomes of its jobs for 30 seconds after the last handler has returned, and to give back jobs for ten
    /// seconds. Jobs that are [`unrecorded`](WorkerSummary::unrecorded) then become ready again when their lease ends.
    ///
    /// `handler` runs for each job, in its own task. `Ok` completes the job, unless the handler has completed it (with
    /// [`complete_in`](ClaimedJob::complete_in), for effects that happen exactly once). An error or a panic is a failure.
    ///
    /// # Errors
    /// If the name, the lease or the interval is invalid ([`is_usage`](crate::Error::is_usage)), or the table is missing.
    /// Other errors of the database are logged, and the call is retried.
    ///
    /// # Cancel safety
    /// Dropping the future stops all handlers at their next await; their jobs become ready again when their lease ends.
    pub async fn run<F, W, E>(self, handler: F) -> Result<WorkerSummary>
    where
        F: Fn(ClaimedJob) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        check_name("worker", &self.name)?;
        millis("lease", self.lease, 1)?;
        millis("poll interval", self.poll_every, 1)?;
        let handler = move |job| handler(job).map_err(|error| error.to_string()).boxed();
        // Boxed, so that the caller's future is not nested too deeply for the compiler.
        Box::pin(run::run(self, Arc::new(handler))).await
    }
}

fn log(job: &ClaimedJob, outcome: &JobOutcome) {
    if *outcome == JobOutcome::Unrecorded {
        tracing::warn!(
            job = job.id(),
            "the outcome of a job could not be recorded; it is run again"
        );
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}
