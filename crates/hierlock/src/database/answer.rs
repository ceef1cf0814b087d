//! How long a database may take to answer. The network may have forgotten one connection, and not the others: what is
//! not answered is asked again, and then on another one.

use super::failed;
use crate::error::Result;
use hierlock_engine::timed_out;
use std::time::Duration;

/// A database that takes so long is busy, not silent.
const MIN_HEARTBEAT_ANSWER: Duration = Duration::from_secs(1);

/// Returns how long a heartbeat may take, so that there is time for others before a lease is over.
pub(crate) fn heartbeat_limit(lease: Duration) -> Duration {
    (lease / 6).max(MIN_HEARTBEAT_ANSWER)
}

/// Fails if there is no answer in time.
pub(crate) async fn answered<T>(
    limit: Duration,
    doing: &'static str,
    question: impl Future<Output = Result<T>>,
) -> Result<T> {
    let answer = tokio::time::timeout(limit, question).await;
    answer.unwrap_or_else(|_| Err(failed(doing)(timed_out(limit))))
}
