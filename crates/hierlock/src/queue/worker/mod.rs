//! A worker: claims jobs, runs them, and says what became of them.

mod attempt;
mod beside;
mod run;

use super::Queue;
use super::claimed::Claimed;
use super::job::{millis, plain};
use crate::error::Result;
use std::fmt;
use std::future::Future;
use std::time::Duration;
use tokio::sync::watch;

/// How a worker works; [`run`](Self::run) sets it to work.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// # use hierlock::{database::Database, queue::{Job, Queue}};
/// # let directory = tempfile::tempdir().unwrap();
/// # let file = directory.path().join("app.db");
/// # let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
/// # let mail = Queue::new(database, "mail")?;
/// # mail.provision().await?;
/// # mail.enqueue(Job::new("to ada")).await?;
/// let worker = mail.worker("w1").batch(20).concurrency(8).until_empty();
/// let handle = worker.handle(); // handle.stop() ends it too, from anywhere
/// let worked = worker
///     .run(|job| async move {
///         println!("sends {}", job.payload());
///         Ok::<_, std::io::Error>(())
///     })
///     .await?;
/// assert_eq!(worked.done, 1);
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
    stop: watch::Sender<bool>,
}

/// Stops a worker, from anywhere.
#[derive(Clone)]
pub struct WorkerHandle(watch::Sender<bool>);

/// What a worker did until it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worked {
    /// Jobs that were done.
    pub done: u64,
    /// Failures, of which each was counted for its job.
    pub failed: u64,
    /// Runs whose lease ended before they did: another worker has their job, and nothing was counted here.
    pub lost: u64,
    /// Jobs that were not begun when it was stopped.
    pub given_back: u64,
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
            stop: watch::Sender::new(false),
        }
    }

    /// How many jobs it claims, and completes, at once at most; 1 unless told.
    pub fn batch(mut self, jobs: usize) -> Self {
        self.batch = jobs.clamp(1, Queue::MOST);
        self
    }

    /// How many it runs at a time; 1 unless told.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs.max(1);
        self
    }

    /// For how long a job is its own without a heartbeat, of which there are three in that time; 30 s unless
    /// told. If it is killed, its jobs come back after that.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often it looks for jobs that nobody woke it for, and for those whose time has come; every
    /// second unless told.
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll_every = interval;
        self
    }

    /// It ends when no job is ready, instead of waiting for the next.
    pub fn until_empty(mut self) -> Self {
        self.until_empty = true;
        self
    }

    /// Something to stop it with.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle(self.stop.clone())
    }

    /// Works until it is [stopped](WorkerHandle::stop): then it claims no more, finishes what it has begun,
    /// and gives back the rest.
    ///
    /// `handler` is run for each job, in a task of its own. Ok completes the job, unless the handler has
    /// done so (with [`complete_in`](Claimed::complete_in), to have effects exactly once). An error or a
    /// panic is a failure.
    ///
    /// # Errors
    /// If a name, the lease or the interval cannot be, or there is no table. When the database fails
    /// otherwise, that is logged and tried again.
    ///
    /// # Cancel safety
    /// Dropped, it stops at once, wherever handlers are; jobs in hand come back when their lease ends.
    pub async fn run<F, W, E>(self, handler: F) -> Result<Worked>
    where
        F: Fn(Claimed) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        plain("worker", &self.name)?;
        millis("lease", self.lease, 1)?;
        millis("poll interval", self.poll_every, 1)?;
        run::run(self, handler).await
    }
}

impl WorkerHandle {
    /// Tells the worker to end in good order; its [`run`](Worker::run) comes back when it has.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").finish_non_exhaustive()
    }
}
