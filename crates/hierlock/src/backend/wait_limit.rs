//! How long a request waits.

use crate::error::Result;
use std::time::Duration;
use tokio::time::Instant;

/// How long a request waits for what is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitLimit {
    /// As long as it takes.
    Forever,
    /// Until a deadline.
    Until {
        /// When the wait began.
        asked: Instant,
        /// When it ends.
        deadline: Instant,
    },
    /// Not at all; the error says what is in the way.
    Never,
    /// Not at all, and nobody asks what is in the way: a backend need not find out.
    Try,
}

impl WaitLimit {
    /// From now on. A span too long for the clock is for ever.
    pub fn within(span: Duration) -> Self {
        let asked = Instant::now();
        match asked.checked_add(span) {
            Some(deadline) => WaitLimit::Until { asked, deadline },
            None => WaitLimit::Forever,
        }
    }

    /// Does it wait at all?
    pub fn waits(self) -> bool {
        matches!(self, WaitLimit::Forever | WaitLimit::Until { .. })
    }

    /// Does it have a deadline, and an earlier one than the other?
    #[cfg(feature = "_server")]
    pub(crate) fn ends_before(self, other: Self) -> bool {
        match (self, other) {
            (WaitLimit::Until { deadline, .. }, WaitLimit::Until { deadline: other, .. }) => {
                deadline < other
            }
            _ => false,
        }
    }

    /// Has the deadline passed?
    pub fn is_over(self) -> bool {
        matches!(self, WaitLimit::Until { deadline, .. } if deadline <= Instant::now())
    }

    /// Comes back at the deadline, with how long the wait was; without one, never.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn expired(self) -> Duration {
        match self {
            WaitLimit::Until { asked, deadline } => {
                tokio::time::sleep_until(deadline).await;
                asked.elapsed()
            }
            WaitLimit::Forever | WaitLimit::Never | WaitLimit::Try => std::future::pending().await,
        }
    }

    /// Runs a wait to its end or to the deadline.
    ///
    /// # Errors
    /// At the deadline: how long it had waited, for [`Error::timeout`](crate::Error::timeout).
    ///
    /// # Cancel safety
    /// That of the wait. One that is over at the deadline has won.
    pub async fn limit<T>(self, wait: impl Future<Output = T>) -> Result<T, Duration> {
        match self {
            WaitLimit::Until { asked, deadline } => {
                tokio::time::timeout_at(deadline, wait).await.map_err(|_| asked.elapsed())
            }
            WaitLimit::Forever | WaitLimit::Never | WaitLimit::Try => Ok(wait.await),
        }
    }
}
