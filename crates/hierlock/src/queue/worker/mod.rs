//! A worker: claims jobs, runs them, and says what became of them.

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
use stop::StopSignal;

/// A worker, and how it works. [`run`](Self::run) sets it to work.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// # use hierlock::{database::Database, queue::{Job, Queue}};
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}", directory.path().join("app.db").display());
/// # let mail = Queue::new(Database::connect(&url).await?, "mail")?;
/// # mail.provision().await?;
/// # mail.enqueue(Job::new("to ada")).await?;
/// let worker = mail.worker("w1").batch(20).concurrency(8).until_empty();
/// let handle = worker.handle(); // handle.stop() ends it too, from anywhere
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
    stop: StopSignal,
    on_end: Box<OnEnd>,
}

type OnEnd = dyn Fn(&ClaimedJob, &JobOutcome) + Send + Sync;

/// Stops a worker, from anywhere.
#[derive(Clone, Debug)]
pub struct WorkerHandle(StopSignal);

/// What a worker did until it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSummary {
    /// Jobs that were done.
    pub done: u64,
    /// Failures, of which each was counted for its job.
    pub failed: u64,
    /// Jobs whose lease ended before they did: another worker has them, and nothing was counted here.
    pub lost: u64,
    /// Jobs that were not begun when it was stopped.
    pub given_back: u64,
    /// Jobs that have ended while the database did not answer: they come back when their lease ends.
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
            stop: StopSignal::default(),
            on_end: Box::new(log),
        }
    }

    /// Sets how many jobs it claims, and completes, at once at most; 1 by default.
    pub fn batch(self, jobs: usize) -> Self {
        Self { batch: jobs.clamp(1, Queue::MAX_CLAIM), ..self }
    }

    /// Sets how many it runs at a time; 1 by default.
    pub fn concurrency(self, jobs: usize) -> Self {
        Self { concurrency: jobs.max(1), ..self }
    }

    /// Sets the lease of its jobs, which three heartbeats extend in that time; 30 s by default. If it is killed, its
    /// jobs come back after that.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Sets how often it looks for jobs without being woken; every second by default.
    pub fn poll_every(self, interval: Duration) -> Self {
        Self { poll_every: interval, ..self }
    }

    /// Ends it when no job is ready, instead of waiting for the next.
    pub fn until_empty(self) -> Self {
        Self { until_empty: true, ..self }
    }

    /// Calls this with what became of each job that was begun, for figures or a log of your own; by default
    /// what is [`Unrecorded`](JobOutcome::Unrecorded) is logged. It is to come back soon: the worker waits for it.
    pub fn on_end(self, tell: impl Fn(&ClaimedJob, &JobOutcome) + Send + Sync + 'static) -> Self {
        Self { on_end: Box::new(tell), ..self }
    }

    /// Returns something to stop it with.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle(self.stop.clone())
    }

    /// Works until it is [stopped](WorkerHandle::stop): then it claims no more, finishes what it has begun,
    /// and gives back the rest.
    ///
    /// That is so also while the database does not answer. Without a job it returns after two seconds. It tries to
    /// record what became of its jobs for 30 seconds after the last handler returned, and to give back others for ten.
    /// What is [`unrecorded`](WorkerSummary::unrecorded) then comes back when its lease ends.
    ///
    /// `handler` is run for each job, in a task of its own. Ok completes the job, unless the handler has
    /// done so (with [`complete_in`](ClaimedJob::complete_in), to have effects exactly once). An error or a
    /// panic is a failure.
    ///
    /// # Errors
    /// If the name, the lease or the interval is not allowed ([`is_usage`](crate::Error::is_usage)), or there is no
    /// table. When the database fails otherwise, that is logged and tried again.
    ///
    /// # Cancel safety
    /// Dropped, it stops at once, wherever handlers are; jobs in hand come back when their lease ends.
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
        // Boxed, so that the future of whoever runs it is not nested too deeply for the compiler.
        Box::pin(run::run(self, Arc::new(handler))).await
    }
}

fn log(job: &ClaimedJob, outcome: &JobOutcome) {
    if *outcome == JobOutcome::Unrecorded {
        tracing::warn!(job = job.id(), "what became of a job could not be recorded: it comes back");
    }
}

impl WorkerHandle {
    /// Tells the worker to end in good order; its [`run`](Worker::run) comes back when it has.
    pub fn stop(&self) {
        self.0.send();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}
