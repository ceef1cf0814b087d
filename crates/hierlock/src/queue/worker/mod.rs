//! A worker: claims jobs, runs them, and says what became of them.

mod attempt;
mod beside;
mod run;
mod stop;

use super::Queue;
use super::claimed::{Claimed, Failed};
use super::job::{millis, plain};
use crate::error::Result;
use std::fmt;
use std::future::Future;
use std::time::Duration;
use stop::Teller;

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
    stop: Teller,
    on_end: Box<OnEnd>,
}

type OnEnd = dyn Fn(&Claimed, &Ended) + Send + Sync;

/// Stops a worker, from anywhere.
#[derive(Clone)]
pub struct WorkerHandle(Teller);

/// What became of a run that was begun, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It is done, and has left the queue.
    Done,
    /// A failure was counted.
    #[non_exhaustive]
    Failed {
        /// Why it failed.
        error: String,
        /// How it goes on.
        next: Failed,
    },
    /// Its handler gave it back.
    GivenBack,
    /// It was no longer this run's.
    Lost,
    /// The handler has come back, and the database could not be told: the job comes back when its lease ends.
    Unrecorded,
}

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
    /// Runs that have come to their end without the database being told, for it did not answer: their jobs come
    /// back when their lease ends.
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
            stop: Teller::new(),
            on_end: Box::new(log),
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

    /// Calls this with what became of each run that was begun, for figures or a log of your own; unless told,
    /// what is [`Unrecorded`](Ended::Unrecorded) is logged. It is to come back soon: the worker waits for it.
    pub fn on_end(mut self, tell: impl Fn(&Claimed, &Ended) + Send + Sync + 'static) -> Self {
        self.on_end = Box::new(tell);
        self
    }

    /// Something to stop it with.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle(self.stop.clone())
    }

    /// Works until it is [stopped](WorkerHandle::stop): then it claims no more, finishes what it has begun,
    /// and gives back the rest.
    ///
    /// That is so also while the database does not answer. Without a job in hand it comes back after two seconds.
    /// For what became of its jobs it tries to reach the database for 30 seconds after the last handler came
    /// back, and for ten to give back others. What could not be told is [`unrecorded`](Worked::unrecorded): those jobs
    /// come back when their lease ends, and so does what a claim got that was under way.
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
        // Boxed, so that the future of whoever runs it is not nested too deeply for the compiler.
        Box::pin(run::run(self, handler)).await
    }
}

fn log(job: &Claimed, ended: &Ended) {
    if *ended == Ended::Unrecorded {
        tracing::warn!(job = job.id(), "what became of a job could not be recorded: it comes back");
    }
}

impl WorkerHandle {
    /// Tells the worker to end in good order; its [`run`](Worker::run) comes back when it has.
    pub fn stop(&self) {
        self.0.tell();
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
