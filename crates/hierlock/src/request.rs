//! The builder of a request: targets, modes, and how long to wait.

use crate::backend::{AcquireRequest, Backend, Hold, WaitLimit};
use crate::{Claim, Guard, Hierlock, Mode, Plan, Result, Target};
use std::time::Duration;

/// A request for nodes, made by [`Hierlock::request`] for a new guard, or by [`Guard::request`] to extend a guard.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// use hierlock::{Hierlock, Mode, Target};
/// use std::time::Duration;
///
/// let locks = Hierlock::connect("memory:").await?;
/// let guard = locks
///     .request(Target::account("u1", "a1")?)
///     .mode(Mode::Shared)
///     .and(Target::user("u7")?, Mode::Exclusive)
///     .within(Duration::from_millis(300))
///     .acquire()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Request<By> {
    by: By,
    request: AcquireRequest,
    /// The maximum wait from the call of `acquire` on; overrides the limit of the request.
    within: Option<Duration>,
}

impl<By> Request<By> {
    pub(crate) fn new(by: By, targets: impl IntoIterator<Item = Target>) -> Self {
        let claims = targets.into_iter().map(|target| Claim { target, mode: Mode::default() });
        Self { by, request: AcquireRequest::new(claims, WaitLimit::Forever), within: None }
    }

    /// Sets the mode of all targets added so far; by default [`Mode::Exclusive`].
    pub fn mode(mut self, mode: Mode) -> Self {
        for claim in &mut self.request.claims {
            claim.mode = mode;
        }
        self
    }

    /// Adds a target with its own mode.
    pub fn and(mut self, target: Target, mode: Mode) -> Self {
        self.request.claims.push(Claim { target, mode });
        self
    }

    setters! {
        /// Limits the wait to `span` from the call of `acquire` on. Needs tokio's timer.
        within(span: Duration) => within: Some(span);
    }

    /// Does not wait: fails with [`is_would_block`](crate::Error::is_would_block), whose error names the blocker.
    pub fn no_wait(self) -> Self {
        self.limit(WaitLimit::Never)
    }

    fn limit(mut self, limit: WaitLimit) -> Self {
        (self.request.limit, self.within) = (limit, None);
        self
    }

    /// Starts the time limit, and returns the client or guard and the request.
    pub(crate) fn begin(mut self) -> (By, AcquireRequest) {
        self.request.limit = self.within.map_or(self.request.limit, WaitLimit::within);
        (self.by, self.request)
    }
}

/// Returns `None` if the nodes are not free, which is no error for a caller that only tries.
fn none_if_blocked<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(taken) => Ok(Some(taken)),
        Err(error) if error.is_would_block() => Ok(None),
        Err(error) => Err(error),
    }
}

impl<B: Backend> Request<&Hierlock<B>> {
    /// Sets the name that [`Hierlock::holders`] shows.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.request = self.request.named(name);
        self
    }

    /// Returns the slots that the request would lock, in order. Locks nothing. Fails as [`Plan::new`].
    pub fn plan(&self) -> Result<Plan> {
        self.by.backend.plan(&self.request.claims)
    }

    /// Waits until all nodes are locked. If the connection is lost before that, reconnects and starts again, until the
    /// deadline; without a deadline, by default for up to a minute (`reconnect_ms` in the URL).
    ///
    /// # Errors
    /// [`is_timeout`](crate::Error::is_timeout) after [`within`](Self::within); nothing is held then.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue and releases the nodes that were already locked.
    pub async fn acquire(self) -> Result<Guard<B::Hold>> {
        let (locks, request) = self.begin();
        locks.backend.acquire(request).await.map(|hold| Guard { hold })
    }

    /// Locks all nodes now, or returns `None` if one is not free. Fails otherwise as [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<Guard<B::Hold>>> {
        none_if_blocked(self.limit(WaitLimit::Try).acquire().await)
    }
}

impl<H: Hold> Request<&mut Guard<H>> {
    /// Waits until the guard holds these nodes as well.
    ///
    /// # Errors, and cancel safety
    /// As [`Guard::extend`]; also [`is_timeout`](crate::Error::is_timeout).
    pub async fn acquire(self) -> Result<()> {
        let (guard, request) = self.begin();
        guard.hold.extend(request).await
    }

    /// Locks all nodes now, or returns `false` if one is not free; then the guard holds what it held before. Fails
    /// otherwise as [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<bool> {
        Ok(none_if_blocked(self.limit(WaitLimit::Try).acquire().await)?.is_some())
    }
}
