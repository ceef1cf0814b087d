//! How a worker is stopped, also while its database does not answer.
//!
//! ```text
//!   handle.stop() ──► what is asked for itself (claims, polls): STOP_GRACE more, then dropped
//!                     what is to be told (results, what goes back): RECORD_LIMIT more, then left to the leases
//! ```

use crate::error::Result;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a worker that was stopped waits for a claim or a poll. A claim that is dropped gives back what it gets.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(2);

/// For how long it is tried to write down what became of a job.
pub(super) const RECORD_LIMIT: Duration = Duration::from_secs(30);

/// The same where others may have to be told in that time as well.
pub(super) const SHARED_RECORD_LIMIT: Duration = Duration::from_secs(10);

pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Runs work again until the database answers, or what fails would fail again.
pub(super) async fn until_answered<T, W: Future<Output = Result<T>>>(
    not_yet: impl std::fmt::Display,
    work: impl Fn() -> W,
) -> Result<T> {
    loop {
        match work().await {
            Err(error) if !error.is_lost() && !error.is_unfit() => {
                tracing::warn!(%error, "{not_yet}");
                sleep(RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Tells a worker to stop, and when it was told. Its clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct StopSignal(watch::Sender<Option<Instant>>);

impl StopSignal {
    /// The first time counts.
    pub(super) fn send(&self) {
        self.0.send_if_modified(|sent| {
            let is_first = sent.is_none();
            sent.get_or_insert_with(Instant::now);
            is_first
        });
    }

    pub(super) fn sent_at(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits until it is sent; returns when that was.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub(super) async fn received(&self) -> Instant {
        let mut receiver = self.0.subscribe();
        // The sender is this one, so it is there.
        let sent = receiver.wait_for(Option::is_some).await.ok().and_then(|sent| *sent);
        sent.unwrap_or_else(Instant::now)
    }

    /// Runs work until `grace` after the signal, or after `since` if that is later. None: it was dropped.
    pub(super) async fn limit<T>(
        &self,
        grace: Duration,
        since: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let enough = async {
            let sent = self.received().await;
            sleep_until(sent.max(since) + grace).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = enough => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_so_long_after_the_stop_or_what_came_later() {
        let (stop, begun) = (StopSignal::default(), Instant::now());
        let grace = Duration::from_secs(10);
        let hang = |since| stop.limit(grace, since, pending::<()>());
        let nobody_stops_it = tokio::time::timeout(100 * grace, hang(begun)).await;
        assert!(nobody_stops_it.is_err() && stop.sent_at().is_none());

        stop.send();
        let sent = Instant::now();
        assert_eq!((hang(begun).await, sent.elapsed()), (None, grace));
        // Once more changes nothing.
        stop.send();
        assert_eq!((hang(begun).await, sent.elapsed()), (None, grace));
        assert_eq!((hang(sent + grace).await, sent.elapsed()), (None, 2 * grace));
        assert_eq!(stop.limit(grace, begun, ready(7)).await, Some(7), "what is there is taken");
    }
}
