//! A request in the making: targets, modes, for how long to wait.

#[cfg(feature = "_server")]
use crate::backend::TransactionBackend;
use crate::backend::{AcquireRequest, Backend, Hold, WaitLimit};
use crate::client::Hierlock;
use crate::error::Result;
use crate::guard::Guard;
use crate::mode::Mode;
#[cfg(feature = "_server")]
use crate::mode::SlotMode;
use crate::plan::{Claim, Claims, Plan};
#[cfg(feature = "_server")]
use crate::sql::InTransaction;
use crate::target::Target;
#[cfg(feature = "_server")]
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request for nodes, made by [`Hierlock::request`] (for a new guard) or [`Guard::request`] (for
/// more under the same guard).
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
    claims: Claims,
    limit: Limit,
    name: Option<Arc<String>>,
}

/// How long to wait, counted from the call of `acquire` on.
#[derive(Clone, Copy, Debug)]
enum Limit {
    None,
    Within(Duration),
    NoWait,
    /// The same, and nobody asks what was in the way.
    Try,
}

impl<By> Request<By> {
    pub(crate) fn new(by: By, targets: impl IntoIterator<Item = Target>) -> Self {
        let claim = |target| Claim { target, mode: Mode::default() };
        let claims = targets.into_iter().map(claim).collect();
        Self { by, claims, limit: Limit::None, name: None }
    }

    /// The mode of all targets named so far; [`Mode::Exclusive`] unless told.
    pub fn mode(mut self, mode: Mode) -> Self {
        for claim in &mut self.claims {
            claim.mode = mode;
        }
        self
    }

    /// One more target, in a mode of its own.
    pub fn and(mut self, target: Target, mode: Mode) -> Self {
        self.claims.push(Claim { target, mode });
        self
    }

    /// Waits no longer than this, from the call of `acquire` on. Needs tokio's timer.
    pub fn within(mut self, span: Duration) -> Self {
        self.limit = Limit::Within(span);
        self
    }

    /// Does not wait: what is not free is an error
    /// ([`is_would_block`](crate::Error::is_would_block)) that names what was in the way.
    pub fn no_wait(mut self) -> Self {
        self.limit = Limit::NoWait;
        self
    }

    /// The same for a caller who does not ask what was in the way.
    fn only_try(mut self) -> Self {
        self.limit = Limit::Try;
        self
    }

    /// Whom to ask, and for what. The limit of time begins here.
    fn begin(self) -> (By, AcquireRequest) {
        let limit = match self.limit {
            Limit::None => WaitLimit::Forever,
            Limit::Within(span) => WaitLimit::within(span),
            Limit::NoWait => WaitLimit::Never,
            Limit::Try => WaitLimit::Try,
        };
        (self.by, AcquireRequest { claims: self.claims, limit, name: self.name })
    }
}

impl<B: Backend> Request<&Hierlock<B>> {
    /// A name for listings such as [`Hierlock::holders`].
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(Arc::new(name.into()));
        self
    }

    /// What it would take, in order; touches nothing.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self) -> Result<Plan> {
        self.by.backend.plan(&self.claims)
    }

    /// Waits until all is held. If the server goes away before that, it connects again and begins anew: until the deadline,
    /// or for a minute without one, unless the URL says otherwise (`reconnect_ms`).
    ///
    /// # Errors
    /// [`is_timeout`](crate::Error::is_timeout) after [`within`](Self::within); nothing is held then.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue and frees what was already taken.
    pub async fn acquire(self) -> Result<Guard<B::Hold>> {
        let (locks, request) = self.begin();
        locks.backend.acquire(request).await.map(Guard::new)
    }

    /// Takes it now or not at all.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); that it is not free is no error.
    pub async fn try_acquire(self) -> Result<Option<Guard<B::Hold>>> {
        match self.only_try().acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_would_block() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Where the backend is a database, and the client was opened as one ([`Hierlock::connect_sql`], [`Hierlock::beside`]).
#[cfg(feature = "_server")]
impl<B: TransactionBackend> Request<&Hierlock<B>> {
    /// Waits until all is held **by the caller's own transaction**, and until that ends. How each slot
    /// was taken comes back.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`transaction_state`](crate::Error::transaction_state) tells what
    /// has become of the transaction.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait on the server; what was taken stays until the transaction ends.
    pub async fn acquire_in<T: InTransaction>(
        self,
        transaction: &mut T,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        let (locks, request) = self.begin();
        Box::pin(locks.backend.acquire_in(transaction, request)).await
    }
}

impl<H: Hold> Request<&mut Guard<H>> {
    /// Waits until the guard holds all of it as well.
    ///
    /// # Errors
    /// [`is_deadlock`](crate::Error::is_deadlock), [`is_timeout`](crate::Error::is_timeout): the
    /// guard keeps what it had.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; the guard keeps what it had.
    pub async fn acquire(self) -> Result<()> {
        let (guard, request) = self.begin();
        guard.hold.extend(request).await
    }

    /// Takes it now or not at all: `false`, and the guard keeps what it had.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); that it is not free is no error.
    pub async fn try_acquire(self) -> Result<bool> {
        match self.only_try().acquire().await {
            Ok(()) => Ok(true),
            Err(error) if error.is_would_block() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
