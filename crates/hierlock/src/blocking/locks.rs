//! Blocking twins of the client, its requests and its guards.

#[cfg(feature = "_server")]
use super::Transaction;
use super::wait_for;
use crate::backend::{AnyBackend, AnyHold, Backend, FencingHold, Hold};
#[cfg(feature = "_server")]
use crate::backend::{SqlBackend, TransactionBackend};
use crate::{Builder, Error, Hierarchy, Holder, Mode, Plan, Result, SlotMode, Statistics, Target};
use std::collections::BTreeMap;
use std::time::Duration;

/// Blocking twin of [`crate::Hierlock`].
#[derive(Debug)]
pub struct Hierlock<B: Backend = AnyBackend>(crate::Hierlock<B>);

impl<B: Backend> Clone for Hierlock<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Blocking twin of [`crate::Request`]: for a new guard.
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Request<'a, B: Backend = AnyBackend>(crate::Request<&'a crate::Hierlock<B>>);

/// Blocking twin of [`crate::Request`]: for more under the same guard.
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct ExtendRequest<'a, H: Hold = AnyHold>(crate::Request<&'a mut crate::Guard<H>>);

/// Blocking twin of [`crate::Guard`].
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct Guard<H: Hold = AnyHold>(crate::Guard<H>);

impl Hierlock {
    /// See [`crate::Hierlock::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Self> {
        wait_for(crate::Hierlock::connect(url)).map(Self)
    }

    /// See [`crate::Hierlock::connect_with`].
    ///
    /// # Errors
    /// As there.
    pub fn connect_with(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        wait_for(crate::Hierlock::connect_with(url, hierarchy)).map(Self)
    }

    /// Opens a lock URL with options: see [`Builder::connect`].
    ///
    /// ```
    /// use hierlock::blocking::Hierlock;
    ///
    /// let options = hierlock::Hierlock::builder().connections(4);
    /// let locks = Hierlock::open("memory:", options)?;
    /// # Ok::<(), hierlock::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn open(url: &str, options: Builder) -> Result<Self> {
        wait_for(options.connect(url)).map(Self)
    }
}

#[cfg(feature = "_server")]
impl Hierlock<SqlBackend> {
    /// See [`crate::Hierlock::connect_sql`].
    ///
    /// # Errors
    /// As there.
    pub fn connect_sql(url: &str) -> Result<Self> {
        wait_for(crate::Hierlock::connect_sql(url)).map(Self)
    }

    /// The same with options: see [`Builder::connect_sql`].
    ///
    /// # Errors
    /// As there.
    pub fn open_sql(url: &str, options: Builder) -> Result<Self> {
        wait_for(options.connect_sql(url)).map(Self)
    }
}

#[cfg(feature = "_server")]
impl<B: TransactionBackend> Hierlock<B> {
    /// See [`crate::Hierlock::acquire_in`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_in(
        &self,
        transaction: &mut Transaction,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        self.request_all(targets).acquire_in(transaction)
    }
}

impl<B: Backend> Hierlock<B> {
    /// See [`crate::Hierlock::with_backend`].
    pub fn with_backend(backend: B) -> Self {
        Self(crate::Hierlock::with_backend(backend))
    }

    /// The tree.
    pub fn hierarchy(&self) -> &Hierarchy {
        self.0.hierarchy()
    }

    /// See [`crate::Hierlock::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, target: Target) -> Result<Guard<B::Hold>> {
        self.request(target).acquire()
    }

    /// See [`crate::Hierlock::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self, target: Target) -> Result<Option<Guard<B::Hold>>> {
        self.request(target).try_acquire()
    }

    /// See [`crate::Hierlock::acquire_all`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_all(&self, targets: impl IntoIterator<Item = Target>) -> Result<Guard<B::Hold>> {
        self.request_all(targets).acquire()
    }

    /// See [`crate::Hierlock::acquire_children`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_children<I: AsRef<str>>(
        &self,
        parent: &Target,
        ids: impl IntoIterator<Item = I>,
    ) -> Result<Guard<B::Hold>> {
        wait_for(self.0.acquire_children(parent, ids)).map(Guard)
    }

    /// See [`crate::Hierlock::request`].
    pub fn request(&self, target: Target) -> Request<'_, B> {
        Request(self.0.request(target))
    }

    /// See [`crate::Hierlock::request_all`].
    pub fn request_all(&self, targets: impl IntoIterator<Item = Target>) -> Request<'_, B> {
        Request(self.0.request_all(targets))
    }

    /// See [`crate::Hierlock::plan`].
    ///
    /// # Errors
    /// As there.
    pub fn plan(&self, targets: impl IntoIterator<Item = Target>, mode: Mode) -> Result<Plan> {
        self.0.plan(targets, mode)
    }

    /// See [`crate::Hierlock::holders`].
    pub fn holders(&self) -> Vec<Holder> {
        self.0.holders()
    }

    /// See [`crate::Hierlock::warnings`].
    pub fn warnings(&self) -> &[String] {
        self.0.warnings()
    }

    /// See [`crate::Hierlock::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self, limit: Duration) -> Result<()> {
        wait_for(self.0.close(limit))
    }
}

impl<B: Backend> Request<'_, B> {
    /// See [`crate::Request::mode`].
    pub fn mode(self, mode: Mode) -> Self {
        Self(self.0.mode(mode))
    }

    /// See [`crate::Request::and`].
    pub fn and(self, target: Target, mode: Mode) -> Self {
        Self(self.0.and(target, mode))
    }

    /// See [`crate::Request::within`].
    pub fn within(self, span: Duration) -> Self {
        Self(self.0.within(span))
    }

    /// See [`crate::Request::no_wait`].
    pub fn no_wait(self) -> Self {
        Self(self.0.no_wait())
    }

    /// See [`crate::Request::named`].
    pub fn named(self, name: impl Into<String>) -> Self {
        Self(self.0.named(name))
    }

    /// See [`crate::Request::plan`].
    ///
    /// # Errors
    /// As there.
    pub fn plan(&self) -> Result<Plan> {
        self.0.plan()
    }

    /// Waits until all is held.
    ///
    /// # Errors
    /// As the async one.
    pub fn acquire(self) -> Result<Guard<B::Hold>> {
        wait_for(self.0.acquire()).map(Guard)
    }

    /// Takes it now or not at all.
    ///
    /// # Errors
    /// As the async one.
    pub fn try_acquire(self) -> Result<Option<Guard<B::Hold>>> {
        Ok(wait_for(self.0.try_acquire())?.map(Guard))
    }
}

#[cfg(feature = "_server")]
impl<B: TransactionBackend> Request<'_, B> {
    /// Waits until all is held by the caller's own transaction.
    ///
    /// # Errors
    /// As the async one.
    pub fn acquire_in(self, transaction: &mut Transaction) -> Result<BTreeMap<Target, SlotMode>> {
        wait_for(self.0.acquire_in(transaction.inner()))
    }
}

impl<H: Hold> ExtendRequest<'_, H> {
    /// See [`crate::Request::mode`].
    pub fn mode(self, mode: Mode) -> Self {
        Self(self.0.mode(mode))
    }

    /// See [`crate::Request::and`].
    pub fn and(self, target: Target, mode: Mode) -> Self {
        Self(self.0.and(target, mode))
    }

    /// See [`crate::Request::within`].
    pub fn within(self, span: Duration) -> Self {
        Self(self.0.within(span))
    }

    /// See [`crate::Request::no_wait`].
    pub fn no_wait(self) -> Self {
        Self(self.0.no_wait())
    }

    /// Waits until the guard holds all of it as well.
    ///
    /// # Errors
    /// As the async one.
    pub fn acquire(self) -> Result<()> {
        wait_for(self.0.acquire())
    }

    /// Takes it now or not at all.
    ///
    /// # Errors
    /// As the async one.
    pub fn try_acquire(self) -> Result<bool> {
        wait_for(self.0.try_acquire())
    }
}

impl<H: Hold> Guard<H> {
    /// See [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<()> {
        wait_for(self.0.release())
    }

    /// See [`crate::Guard::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(&mut self, targets: impl IntoIterator<Item = Target>) -> Result<()> {
        wait_for(self.0.extend(targets))
    }

    /// See [`crate::Guard::upgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade(&mut self) -> Result<()> {
        wait_for(self.0.upgrade())
    }

    /// See [`crate::Guard::request`].
    pub fn request(&mut self, target: Target) -> ExtendRequest<'_, H> {
        ExtendRequest(self.0.request(target))
    }

    /// See [`crate::Guard::request_all`].
    pub fn request_all(
        &mut self,
        targets: impl IntoIterator<Item = Target>,
    ) -> ExtendRequest<'_, H> {
        ExtendRequest(self.0.request_all(targets))
    }

    /// See [`crate::Guard::targets`].
    pub fn targets(&self) -> BTreeMap<Target, Mode> {
        self.0.targets()
    }

    /// See [`crate::Guard::modes`].
    pub fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.0.modes()
    }

    /// See [`crate::Guard::id`].
    pub fn id(&self) -> u64 {
        self.0.id()
    }

    /// See [`crate::Guard::statistics`].
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// Blocks until the lock is no longer there, at most `within`: then `None`.
    pub fn lost(&self, within: Duration) -> Option<Error> {
        wait_for(async { tokio::time::timeout(within, self.0.lost()).await.ok() })
    }
}

impl<H: FencingHold> Guard<H> {
    /// See [`crate::Guard::token`].
    ///
    /// # Errors
    /// As there.
    pub fn token(&self) -> Result<u64> {
        wait_for(self.0.token())
    }
}
