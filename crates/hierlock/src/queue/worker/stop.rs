//! The stop of a worker, which works also while its database does not answer.
//!
//! ```text
//!   handle.stop() ──► claims and polls: for STOP_GRACE, then dropped
//!                     outcomes, and jobs that are given back: for RECORD_LIMIT, then left until their leases end
//! ```

use crate::error::Result;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a stopped worker waits for a claim or a poll. A dropped claim gives back its jobs.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long a worker tries to record the outcome of a job.
pub(super) const RECORD_LIMIT: Duration = Duration::from_secs(30);

/// The limit while other jobs run, whose outcomes have to be recorded too.
pub(super) const SHARED_RECORD_LIMIT: Duration = Duration::from_secs(10);

pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Retries work until the database answers, or the work fails with an error that a retry would not change.
pub(super) async fn retry_until_answered<T, W: Future<Output = Result<T>>>(
    not_yet: impl std::fmt::Display,
    work: impl Fn() -> W,
) -> Result<T> {
    loop {
        match work().await {
            Err(error) if !error.is_lost() && !error.is_unusable_schema() => {
                tracing::warn!(%error, "{not_yet}");
                sleep(RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Stops a worker from another task or thread. Clones stop the same worker.
#[derive(Clone, Debug)]
pub struct WorkerHandle(watch::Sender<Option<Instant>>);

impl WorkerHandle {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Stops the worker gracefully; its [`run`](super::Worker::run) returns when it has ended. Only the first call has an
    /// effect.
    pub fn stop(&self) {
        self.0.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert_with(Instant::now);
            is_first
        });
    }

    pub(super) fn stopped_at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits for the stop, and returns its time.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub(super) async fn stopped(&self) -> Instant {
        let mut receiver = self.0.subscribe();
        // Never an error: `self` is the sender.
        let stopped = receiver.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        stopped.unwrap_or_else(Instant::now)
    }

    /// Runs work until `grace` after the stop, or after `since` if that is later. Returns `None` if the work was dropped
    /// then.
    pub(super) async fn limit<T>(
        &self,
        grace: Duration,
        since: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let deadline = async {
            let stopped = self.stopped().await;
            sleep_until(stopped.max(since) + grace).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = deadline => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_after_the_grace_period_of_a_stop() {
        let (handle, started) = (WorkerHandle::new(), Instant::now());
        let grace = Duration::from_secs(10);
        let hang = |since| handle.limit(grace, since, pending::<()>());
        let without_stop = tokio::time::timeout(100 * grace, hang(started)).await;
        assert!(without_stop.is_err() && handle.stopped_at().is_none());

        handle.stop();
        let sent = Instant::now();
        assert_eq!((hang(started).await, sent.elapsed()), (None, grace));
        // A second stop changes nothing.
        handle.stop();
        assert_eq!((hang(started).await, sent.elapsed()), (None, grace));
        assert_eq!((hang(sent + grace).await, sent.elapsed()), (None, 2 * grace));
        let result = handle.limit(grace, started, ready(7)).await;
        assert_eq!(result, Some(7), "ready work must return its result");
    }
}
