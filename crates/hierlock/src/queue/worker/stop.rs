//! How a worker is stopped, also while its database does not answer.
//!
//! ```text
//!   handle.stop() ──► what is asked for itself (claims, polls): a MOMENT more, then dropped
//!                     what is to be told (results, what goes back): PATIENCE more, then left to the leases
//! ```

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A database that is there answers in this time. A claim that is dropped all the same gives back what it gets, or
/// its lease does.
pub(super) const MOMENT: Duration = Duration::from_secs(2);

/// For so long it is tried to write down what became of a job.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// For so long one thing, where others may need to be told in that time as well.
pub(super) const TURN: Duration = Duration::from_secs(10);

/// The pause between two tries.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// Whose it is: a worker and its handles. When it was told to stop, if it was.
#[derive(Clone)]
pub(super) struct Teller(watch::Sender<Option<Instant>>);

impl Teller {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The first time counts.
    pub(super) fn tell(&self) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert_with(Instant::now);
            is_first
        });
    }

    pub(super) fn listen(&self) -> Stop {
        Stop(self.0.subscribe())
    }
}

/// The end that is listened to.
#[derive(Clone)]
pub(super) struct Stop(watch::Receiver<Option<Instant>>);

impl Stop {
    pub(super) fn is_told(&self) -> bool {
        self.since().is_some()
    }

    pub(super) fn since(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Comes back when it is told; since when. The worker has the other end, so that one is never gone.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub(super) async fn told(&mut self) -> Instant {
        let told = self.0.wait_for(Option::is_some).await;
        told.ok().and_then(|told| *told).unwrap_or_else(Instant::now)
    }

    /// Runs it until it is told to stop, and then for so long; counted from `since`, if that is later. None: it
    /// was dropped.
    pub(super) async fn within<T>(
        &self,
        patience: Duration,
        since: Instant,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut stop = self.clone();
        let enough = async {
            let told = stop.told().await;
            sleep_until(told.max(since) + patience).await;
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
        let (teller, begun) = (Teller::new(), Instant::now());
        let stop = teller.listen();
        let limit = Duration::from_secs(10);
        let hang = |since| stop.within(limit, since, pending::<()>());
        let nobody_stops_it = tokio::time::timeout(100 * limit, hang(begun)).await;
        assert!(nobody_stops_it.is_err() && !stop.is_told());

        teller.tell();
        let told = Instant::now();
        assert_eq!((hang(begun).await, told.elapsed()), (None, limit));
        // Once more changes nothing.
        teller.tell();
        assert_eq!((hang(begun).await, told.elapsed()), (None, limit));
        assert_eq!((hang(told + limit).await, told.elapsed()), (None, 2 * limit));
        assert_eq!(stop.within(limit, begun, ready(7)).await, Some(7), "what is there is taken");
    }
}
