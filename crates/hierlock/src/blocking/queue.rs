//! Blocking twins of queues, claims and workers.

use super::{Database, Transaction, wait_for};
use crate::error::Result;
use crate::queue::{
    self, Dead, DeadJob, Ended, Enqueued, Failed, Job, Promoted, Stats, Worked, WorkerHandle,
};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinError;

/// Blocking twin of [`crate::queue::Queue`]. Clones are the same queue.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}", directory.path().join("app.db").display());
/// use hierlock::blocking::{Database, Queue};
/// use hierlock::queue::Job;
/// use std::time::Duration;
///
/// let mails = Queue::new(&Database::connect(&url)?, "mails")?;
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
    ///
    /// # Errors
    /// As there.
    pub fn new(database: &Database, name: &str) -> Result<Self> {
        queue::Queue::new(database.0.clone(), name).map(Self)
    }

    /// See [`crate::queue::Queue::pauses`].
    #[must_use]
    pub fn pauses(self, first: Duration, longest: Duration) -> Self {
        Self(self.0.pauses(first, longest))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// See [`crate::queue::Queue::provision`].
    ///
    /// # Errors
    /// As there.
    pub fn provision(&self) -> Result<()> {
        wait_for(self.0.provision())
    }

    /// See [`crate::queue::Queue::script`].
    pub fn script(&self) -> String {
        self.0.script()
    }

    /// See [`crate::queue::Queue::enqueue`].
    ///
    /// # Errors
    /// As there.
    pub fn enqueue(&self, job: Job) -> Result<Enqueued> {
        wait_for(self.0.enqueue(job))
    }

    /// See [`crate::queue::Queue::enqueue_in`].
    ///
    /// # Errors
    /// As there.
    pub fn enqueue_in(&self, tx: &mut Transaction, job: Job) -> Result<Enqueued> {
        wait_for(self.0.enqueue_in(tx.inner(), job))
    }

    /// See [`crate::queue::Queue::enqueue_all`].
    ///
    /// # Errors
    /// As there.
    pub fn enqueue_all(&self, jobs: impl IntoIterator<Item = Job>) -> Result<Vec<Enqueued>> {
        wait_for(self.0.enqueue_all(jobs))
    }

    /// See [`crate::queue::Queue::enqueue_all_in`].
    ///
    /// # Errors
    /// As there.
    pub fn enqueue_all_in(
        &self,
        tx: &mut Transaction,
        jobs: impl IntoIterator<Item = Job>,
    ) -> Result<Vec<Enqueued>> {
        wait_for(self.0.enqueue_all_in(tx.inner(), jobs))
    }

    /// See [`crate::queue::Queue::claim`].
    ///
    /// # Errors
    /// As there.
    pub fn claim(&self, worker: &str, most: usize, lease: Duration) -> Result<Vec<Claimed>> {
        let claimed = wait_for(self.0.claim(worker, most, lease))?;
        Ok(claimed.into_iter().map(Claimed).collect())
    }

    /// See [`crate::queue::Queue::heartbeat`].
    ///
    /// # Errors
    /// As there.
    pub fn heartbeat(&self, jobs: &[Claimed], lease: Duration) -> Result<Vec<i64>> {
        wait_for(self.0.heartbeat(&inner(jobs), lease))
    }

    /// See [`crate::queue::Queue::complete_all`].
    ///
    /// # Errors
    /// As there.
    pub fn complete_all(&self, jobs: &[Claimed]) -> Result<Vec<i64>> {
        wait_for(self.0.complete_all(&inner(jobs)))
    }

    /// See [`crate::queue::Queue::promote`].
    ///
    /// # Errors
    /// As there.
    pub fn promote(&self) -> Result<Promoted> {
        wait_for(self.0.promote())
    }

    /// See [`crate::queue::Queue::stats`].
    ///
    /// # Errors
    /// As there.
    pub fn stats(&self) -> Result<Stats> {
        wait_for(self.0.stats())
    }

    /// See [`crate::queue::Queue::all_stats`].
    ///
    /// # Errors
    /// As there.
    pub fn all_stats(database: &Database) -> Result<Vec<Stats>> {
        wait_for(queue::Queue::all_stats(&database.0))
    }

    /// See [`crate::queue::Queue::dead`].
    ///
    /// # Errors
    /// As there.
    pub fn dead(&self, limit: u32) -> Result<Vec<DeadJob>> {
        wait_for(self.0.dead(limit))
    }

    /// See [`crate::queue::Queue::retry_dead`].
    ///
    /// # Errors
    /// As there.
    pub fn retry_dead(&self, which: Dead) -> Result<u64> {
        wait_for(self.0.retry_dead(which))
    }

    /// A worker that runs jobs of this queue.
    pub fn worker(&self, name: &str) -> Worker {
        Worker(self.0.worker(name))
    }

    /// See [`crate::queue::Queue::wake`].
    pub fn wake(&self) {
        self.0.wake();
    }
}

fn inner(jobs: &[Claimed]) -> Vec<queue::Claimed> {
    jobs.iter().map(|job| job.0.clone()).collect()
}

/// Blocking twin of [`crate::queue::Claimed`]. Clones are the same run.
#[derive(Clone, Debug)]
#[must_use = "a claimed job is nobody else's until it is completed or its lease ends"]
pub struct Claimed(queue::Claimed);

impl Claimed {
    /// The number of the job.
    pub fn id(&self) -> i64 {
        self.0.id()
    }

    /// How often it has been claimed, this time included.
    pub fn claim_number(&self) -> i64 {
        self.0.claim_number()
    }

    /// What is to be done.
    pub fn payload(&self) -> &str {
        self.0.payload()
    }

    /// Who claimed it.
    pub fn worker(&self) -> &str {
        self.0.worker()
    }

    /// The how many-th attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// How many there are.
    pub fn max_attempts(&self) -> u32 {
        self.0.max_attempts()
    }

    /// Lower goes first.
    pub fn priority(&self) -> i64 {
        self.0.priority()
    }

    /// Its unique key, if it has one.
    pub fn unique_key(&self) -> Option<&str> {
        self.0.unique_key()
    }

    /// When it was enqueued, by the database's clock.
    pub fn created_at(&self) -> SystemTime {
        self.0.created_at()
    }

    /// Blocks until it is no longer surely this run's, at most `within`: then `false`.
    pub fn lost(&self, within: Duration) -> bool {
        wait_for(async { tokio::time::timeout(within, self.0.lost()).await.is_ok() })
    }

    /// See [`crate::queue::Claimed::complete`].
    ///
    /// # Errors
    /// As there.
    pub fn complete(&self) -> Result<()> {
        wait_for(self.0.complete())
    }

    /// See [`crate::queue::Claimed::complete_in`].
    ///
    /// # Errors
    /// As there.
    pub fn complete_in(&self, tx: &mut Transaction) -> Result<()> {
        wait_for(self.0.complete_in(tx.inner()))
    }

    /// See [`crate::queue::Claimed::fail`].
    ///
    /// # Errors
    /// As there.
    pub fn fail(&self, error: impl fmt::Display) -> Result<Failed> {
        wait_for(self.0.fail(error))
    }

    /// See [`crate::queue::Claimed::give_back`].
    ///
    /// # Errors
    /// As there.
    pub fn give_back(&self) -> Result<()> {
        wait_for(self.0.give_back())
    }
}

/// Blocking twin of [`crate::queue::Worker`]: its handlers may block.
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker(queue::Worker);

impl Worker {
    /// See [`crate::queue::Worker::batch`].
    pub fn batch(self, jobs: usize) -> Self {
        Self(self.0.batch(jobs))
    }

    /// See [`crate::queue::Worker::concurrency`]. Each has a thread.
    pub fn concurrency(self, jobs: usize) -> Self {
        Self(self.0.concurrency(jobs))
    }

    /// See [`crate::queue::Worker::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// See [`crate::queue::Worker::poll_every`].
    pub fn poll_every(self, interval: Duration) -> Self {
        Self(self.0.poll_every(interval))
    }

    /// See [`crate::queue::Worker::until_empty`].
    pub fn until_empty(self) -> Self {
        Self(self.0.until_empty())
    }

    /// See [`crate::queue::Worker::on_end`].
    pub fn on_end(self, tell: impl Fn(&Claimed, &Ended) + Send + Sync + 'static) -> Self {
        Self(self.0.on_end(move |job, ended| tell(&Claimed(job.clone()), ended)))
    }

    /// Something to stop it with, from another thread.
    pub fn handle(&self) -> WorkerHandle {
        self.0.handle()
    }

    /// Works until it is [stopped](WorkerHandle::stop): see [`crate::queue::Worker::run`]. `handler` is run for each job on a
    /// thread of its own; an error or a panic is a failure.
    ///
    /// # Errors
    /// As there.
    pub fn run<F, E>(self, handler: F) -> Result<Worked>
    where
        F: Fn(Claimed) -> Result<(), E> + Send + Sync + 'static,
        E: fmt::Display + Send + 'static,
    {
        let handler = Arc::new(handler);
        wait_for(self.0.run(move |job| {
            let handler = handler.clone();
            async move {
                let handled = tokio::task::spawn_blocking(move || handler(Claimed(job))).await;
                match handled.map_err(JoinError::try_into_panic) {
                    Ok(handled) => handled,
                    // It goes on here, where the worker counts it.
                    Err(Ok(panic)) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down, and this task with it.
                    Err(Err(_)) => std::future::pending().await,
                }
            }
        }))
    }
}
