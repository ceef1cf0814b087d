//! The request to a backend, and how long it waits.

use crate::plan::{Claims, targets_of};
use crate::{Claim, Result, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The request to a backend: targets and their modes, how long to wait, and a name for listings.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is passed to a backend"]
pub struct AcquireRequest {
    pub(crate) claims: Claims,
    pub(crate) limit: WaitLimit,
    pub(crate) name: Option<Arc<String>>,
}

impl AcquireRequest {
    /// Makes a request like [`Hierlock`](crate::Hierlock) does, for a backend that wraps another one.
    pub fn new(claims: impl IntoIterator<Item = Claim>, limit: WaitLimit) -> Self {
        Self { claims: claims.into_iter().collect(), limit, name: None }
    }

    setters! {
        /// Sets the name for listings.
        named(name: impl Into<String>) => name: Some(Arc::new(name.into()));
    }

    getters! { self:
        /// Returns the targets and modes, in the order of the request; for [`Backend::plan`](super::Backend::plan).
        claims -> &[Claim] = &self.claims;
        /// Returns the targets of the claims, for errors.
        targets -> Vec<Target> = targets_of(&self.claims);
        /// Returns how long to wait.
        wait_limit -> WaitLimit = self.limit;
        /// Returns the name for listings.
        name -> Option<&str> = self.name.as_deref().map(String::as_str);
    }
}

/// How long a request waits for nodes that are not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitLimit {
    /// Without a limit.
    Forever,
    /// Until a deadline.
    Until {
        /// The start of the wait.
        started: Instant,
        /// The end of the wait.
        deadline: Instant,
    },
    /// Not at all; the error names the blocker.
    Never,
    /// Not at all, and the blocker is not needed, so a backend need not look it up.
    Try,
}

impl WaitLimit {
    /// Returns a limit of `span` from now on; [`Forever`](Self::Forever) if that is too long for the clock.
    pub fn within(span: Duration) -> Self {
        let started = Instant::now();
        match started.checked_add(span) {
            Some(deadline) => WaitLimit::Until { started, deadline },
            None => WaitLimit::Forever,
        }
    }

    /// Returns whether the request waits at all.
    pub fn waits(self) -> bool {
        matches!(self, WaitLimit::Forever | WaitLimit::Until { .. })
    }

    /// Returns whether both have a deadline and this one is earlier.
    #[cfg(feature = "_server")]
    pub(crate) fn ends_before(self, other: Self) -> bool {
        use WaitLimit::Until;
        matches!((self, other), (Until { deadline, .. }, Until { deadline: other, .. }) if deadline < other)
    }

    /// Returns whether the deadline has passed.
    pub fn is_over(self) -> bool {
        matches!(self, WaitLimit::Until { deadline, .. } if deadline <= Instant::now())
    }

    /// Waits until the deadline and returns the length of the wait; without a deadline, waits for ever.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn expired(self) -> Duration {
        let (Ok(waited) | Err(waited)) = self.limit(std::future::pending()).await;
        waited
    }

    /// Awaits `wait` until the deadline at the latest.
    ///
    /// # Errors
    /// At the deadline: the length of the wait, for [`Error::timeout`](crate::Error::timeout).
    ///
    /// # Cancel safety
    /// That of `wait`. If `wait` is ready at the deadline, its result is returned.
    pub async fn limit<T>(self, wait: impl Future<Output = T>) -> Result<T, Duration> {
        match self {
            WaitLimit::Until { started, deadline } => {
                tokio::time::timeout_at(deadline, wait).await.map_err(|_| started.elapsed())
            }
            WaitLimit::Forever | WaitLimit::Never | WaitLimit::Try => Ok(wait.await),
        }
    }
}
