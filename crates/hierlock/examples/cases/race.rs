//! Runs several tasks at the same time, and makes a race happen in every run.

use super::case_database::Result;
use hierlock::database::Transaction;
use hierlock::retry::{RetryPolicy, retry};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a task waits for the others at a barrier. It takes longer only if another task has failed.
const BARRIER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long all tasks together may take.
const TASKS_TIMEOUT: Duration = Duration::from_secs(60);
/// How long other tasks have time to reach a lock. They cannot pass it, so the result of a right version does not
/// depend on this time. A broken version that needs longer may not be detected.
const RACE_WINDOW: Duration = Duration::from_millis(100);

/// Synchronizes the tasks of a race.
pub(crate) struct RaceBarrier {
    tasks: u32,
    barrier: Barrier,
    has_first_read: AtomicBool,
    /// Has one permit for each further task that has read.
    other_readers: Semaphore,
}

impl RaceBarrier {
    pub(crate) fn new(tasks: u32) -> Self {
        Self {
            tasks,
            barrier: Barrier::new(tasks as usize),
            has_first_read: AtomicBool::new(false),
            other_readers: Semaphore::new(0),
        }
    }

    /// Waits until all tasks have called this. A broken version calls it between its read and its write.
    pub(crate) async fn wait_for_all(&self) -> Result<()> {
        let waited = timeout(BARRIER_TIMEOUT, self.barrier.wait()).await;
        waited.map(drop).map_err(|_| "a task failed before all tasks reached the barrier".into())
    }

    /// Pauses the first task that has read, so that the others have time to read as well. A right version calls it
    /// between its read and its write: the others wait for its lock, and the pause ends after [`RACE_WINDOW`].
    pub(crate) async fn pause_first_reader(&self) {
        if self.has_first_read.swap(true, Ordering::Relaxed) {
            self.other_readers.add_permits(1);
        } else {
            let _ = timeout(RACE_WINDOW, self.other_readers.acquire_many(self.tasks - 1)).await;
        }
    }
}

/// Runs `count` tasks at the same time, with the numbers from 1. Returns their results, or the first error.
pub(crate) async fn run_tasks<T, W>(
    count: u32,
    work: impl Fn(i64, Arc<RaceBarrier>) -> W,
) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let barrier = Arc::new(RaceBarrier::new(count));
    let mut tasks = JoinSet::new();
    for number in 1..=i64::from(count) {
        tasks.spawn(work(number, barrier.clone()));
    }
    match timeout(TASKS_TIMEOUT, tasks.join_all()).await {
        Ok(results) => results.into_iter().collect(),
        Err(_) => Err("a task did not end in time".into()),
    }
}

/// Runs `count` tasks at the same time. Returns how many of them returned true: their request was confirmed.
pub(crate) async fn count_confirmed<W>(
    count: u32,
    work: impl Fn(i64, Arc<RaceBarrier>) -> W,
) -> Result<i64>
where
    W: Future<Output = Result<bool>> + Send + 'static,
{
    let confirmed = run_tasks(count, work).await?;
    Ok(confirmed.into_iter().map(i64::from).sum())
}

/// Commits `tx` while `waiter` waits for a row that `tx` has locked. Returns the result of `waiter`.
///
/// Fails if `waiter` does not wait.
pub(crate) async fn commit_while_waiting<T>(
    tx: Transaction,
    waiter: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut waiter = pin!(waiter);
    if let Ok(result) = timeout(RACE_WINDOW, &mut waiter).await {
        result?;
        return Err("a task did not wait for a locked row".into());
    }
    tx.commit().await?;
    waiter.await
}

/// Runs a whole transaction again if it failed with an error that a retry can solve. Right versions use it.
pub(crate) async fn retry_transaction<T, W>(work: impl Fn() -> W) -> Result<T>
where
    W: Future<Output = Result<T>>,
{
    let policy = RetryPolicy::default().attempts(20);
    retry(policy, |_| work()).await.map_err(|given_up| given_up.last)
}
