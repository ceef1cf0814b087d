//! Many who come at once: what makes a race happen every time, instead of once a month.

use super::stage::Result;
use hierlock::database::Transaction;
use hierlock::retry::{RetryPolicy, retry};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Nobody is waited for longer: somebody has failed on the way.
const LIMIT: Duration = Duration::from_secs(30);
/// As long as others are let run into a lock. They cannot get past it, so what a right way comes to does not
/// depend on it; a wrong one that is too slow for it may go unnoticed.
const RACE_WINDOW: Duration = Duration::from_millis(100);

/// All who take part in a race.
pub(crate) struct Everyone {
    count: u32,
    barrier: Barrier,
    has_first_looked: AtomicBool,
    others_looked: Semaphore,
}

impl Everyone {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            count,
            barrier: Barrier::new(count as usize),
            has_first_looked: AtomicBool::new(false),
            others_looked: Semaphore::new(0),
        }
    }

    /// Waits until all are here. In a broken way this stands between look and write.
    pub(crate) async fn meet(&self) -> Result<()> {
        let met = timeout(LIMIT, self.barrier.wait()).await;
        met.map(drop).map_err(|_| "somebody failed before all had met".into())
    }

    /// And this in a right way, which must stand it: the first who has looked gives all others a moment to
    /// look as well. Where they wait for his lock, it passes.
    pub(crate) async fn tempt(&self) {
        if self.has_first_looked.swap(true, Ordering::Relaxed) {
            self.others_looked.add_permits(1);
        } else {
            let _ = timeout(RACE_WINDOW, self.others_looked.acquire_many(self.count - 1)).await;
        }
    }
}

/// Runs so many at once, in tasks of their own; what each has come to, if nobody failed.
pub(crate) async fn together<T, W>(
    count: u32,
    work: impl Fn(i64, Arc<Everyone>) -> W,
) -> Result<Vec<T>>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let everyone = Arc::new(Everyone::new(count));
    let mut tasks = JoinSet::new();
    for number in 1..=i64::from(count) {
        tasks.spawn(work(number, everyone.clone()));
    }
    match timeout(2 * LIMIT, tasks.join_all()).await {
        Ok(ended) => ended.into_iter().collect(),
        Err(_) => Err("somebody does not come to an end".into()),
    }
}

/// The same; how many were told yes.
pub(crate) async fn told_yes<W>(count: u32, work: impl Fn(i64, Arc<Everyone>) -> W) -> Result<i64>
where
    W: Future<Output = Result<bool>> + Send + 'static,
{
    let told = together(count, work).await?;
    Ok(told.into_iter().map(i64::from).sum())
}

/// Ends a transaction while somebody stands before a row of it. What the other one has come to then.
pub(crate) async fn commit_before<T>(
    tx: Transaction,
    waiting: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut waiting = pin!(waiting);
    if let Ok(ended) = timeout(RACE_WINDOW, &mut waiting).await {
        ended?;
        return Err("somebody did not wait for a row that is locked".into());
    }
    tx.commit().await?;
    waiting.await
}

/// Runs a whole transaction again when it lost a race, as the right ways do.
pub(crate) async fn again<T, W>(work: impl Fn() -> W) -> Result<T>
where
    W: Future<Output = Result<T>>,
{
    let policy = RetryPolicy::default().attempts(20);
    retry(policy, |_| work()).await.map_err(|given_up| given_up.last)
}
