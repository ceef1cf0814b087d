//! Jobs in a table, on every engine.

mod adding;
mod claiming;
mod processes;

mod stopping;
mod two_batches;
mod working;

use crate::support::Store;
use hierlock::queue::{ClaimedJob, Job, Queue};
use std::time::Duration;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Returns a queue whose failed jobs are due at once.
async fn provision_queue(store: &Store) -> Queue {
    let queue = Queue::new(store.database.clone(), "mail").unwrap();
    queue.provision().await.unwrap();
    queue.pauses(Duration::ZERO, Duration::ZERO)
}

/// Claims the only ready job.
async fn claim_one(queue: &Queue, worker: &str) -> ClaimedJob {
    let mut claimed = queue.claim(worker, 10, LONG).await.unwrap();
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed.pop().unwrap()
}

/// Adds jobs with these payloads.
async fn add(queue: &Queue, payloads: impl IntoIterator<Item = &str>) {
    queue.enqueue_all(payloads.into_iter().map(Job::new)).await.unwrap();
}

/// Claims all ready jobs and returns their payloads in order.
async fn payloads(queue: &Queue) -> Vec<String> {
    let claimed = queue.claim("reader", 5_000, LONG).await.unwrap();
    claimed.iter().map(|job| job.payload().to_owned()).collect()
}

/// Makes the leases of all claimed jobs expire.
async fn end_leases(store: &Store) {
    store.run("UPDATE hier_jobs SET due_ms = 0 WHERE state = 2").await;
}

/// Returns how many jobs are ready, scheduled, claimed and dead.
async fn states(queue: &Queue) -> [u64; 4] {
    let stats = queue.stats().await.unwrap();
    [stats.ready, stats.scheduled, stats.claimed, stats.dead]
}
