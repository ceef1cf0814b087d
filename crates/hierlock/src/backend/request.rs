//! What is asked of a backend, and how long it may wait.

use crate::plan::{Claims, targets_of};
use crate::{Claim, Result, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is asked of a backend: targets and their modes, for how long to wait, and a name for listings.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until a backend has it"]
pub struct AcquireRequest {
    pub(crate) claims: Claims,
    pub(crate) limit: WaitLimit,
    pub(crate) name: Option<Arc<String>>,
}

impl AcquireRequest {
    /// Makes a request as [`Hierlock`](crate::Hierlock) does, for a backend that is built on another one.
    pub fn new(claims: impl IntoIterator<Item = Claim>, limit: WaitLimit) -> Self {
        Self { claims: claims.into_iter().collect(), limit, name: None }
    }

    /// Gives it a name for listings.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(Arc::new(name.into()));
        self
    }

    /// What to lock, in the order in which it was asked for; for [`Backend::plan`](super::Backend::plan).
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The targets of the claims, for errors.
    pub fn targets(&self) -> Vec<Target> {
        targets_of(&self.claims)
    }

    /// How long to wait.
    pub fn wait_limit(&self) -> WaitLimit {
        self.limit
    }

    /// The name for listings.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref().map(String::as_str)
    }
}

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
    /// Waits for so long from now on; for ever, if that is too long for the clock.
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

    /// Do both have a deadline, and this the earlier one?
    #[cfg(feature = "_server")]
    pub(crate) fn ends_before(self, other: Self) -> bool {
        use WaitLimit::Until;
        matches!((self, other), (Until { deadline, .. }, Until { deadline: other, .. }) if deadline < other)
    }

    /// Has the deadline passed?
    pub fn is_over(self) -> bool {
        matches!(self, WaitLimit::Until { deadline, .. } if deadline <= Instant::now())
    }

    /// Waits until the deadline and returns how long the wait was; without a deadline, waits for ever.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn expired(self) -> Duration {
        let (Ok(waited) | Err(waited)) = self.limit(std::future::pending()).await;
        waited
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
