//! Blocking versions of the client, its requests and its guards.

use super::{forward, wait_at_most, wait_for};
use crate::backend::{AnyBackend, AnyHold, Backend, FencingHold, Hold};
use crate::{Builder, Error, Hierarchy, Holder, Mode, Plan, Result, SlotMode, Statistics, Target};
use std::collections::BTreeMap;
use std::time::Duration;
#[cfg(feature = "_server")]
use {super::Transaction, crate::backend::SqlBackend, crate::sql::Exclusion};

/// Blocking version of [`crate::Hierlock`].
#[derive(Debug)]
pub struct Hierlock<B: Backend = AnyBackend>(crate::Hierlock<B>);

impl<B: Backend> Clone for Hierlock<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Blocking version of [`crate::Request`] for a new guard.
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Request<'a, B: Backend = AnyBackend>(crate::Request<&'a crate::Hierlock<B>>);

/// Blocking version of [`crate::Request`] that extends a guard.
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct ExtendRequest<'a, H: Hold = AnyHold>(crate::Request<&'a mut crate::Guard<H>>);

/// Blocking version of [`crate::Guard`].
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct Guard<H: Hold = AnyHold>(crate::Guard<H>);

impl Hierlock {
    /// See [`crate::Hierlock::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        wait_for(crate::Hierlock::connect(url)).map(Self)
    }

    /// See [`crate::Hierlock::connect_with`].
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
    pub fn open(url: &str, options: Builder) -> Result<Self> {
        wait_for(options.connect(url)).map(Self)
    }
}

#[cfg(feature = "_server")]
impl Hierlock<SqlBackend> {
    /// See [`crate::Hierlock::connect_sql`].
    pub fn connect_sql(url: &str) -> Result<Self> {
        wait_for(crate::Hierlock::connect_sql(url)).map(Self)
    }

    /// Opens the URL of a server with options: see [`Builder::connect_sql`].
    pub fn open_sql(url: &str, options: Builder) -> Result<Self> {
        wait_for(options.connect_sql(url)).map(Self)
    }

    forward! { "crate::Hierlock"
        async fn acquire_in(&self, transaction: &mut Transaction => &mut transaction.0,
            targets: impl IntoIterator<Item = Target>) -> Result<BTreeMap<Target, SlotMode>>;
        async fn check_exclusion(&self) -> Result<Exclusion>;
    }
}

impl<B: Backend> Hierlock<B> {
    /// See [`crate::Hierlock::with_backend`].
    pub fn with_backend(backend: B) -> Self {
        Self(crate::Hierlock::with_backend(backend))
    }

    forward! { "crate::Hierlock"
        fn hierarchy(&self) -> &Hierarchy;
        async fn acquire(&self, target: Target) -> Result<Guard<B::Hold>> => Guard;
        async fn try_acquire(&self, target: Target) -> Result<Option<Guard<B::Hold>>>
            => |guard| guard.map(Guard);
        async fn acquire_all(&self, targets: impl IntoIterator<Item = Target>)
            -> Result<Guard<B::Hold>> => Guard;
        async fn acquire_children(&self, parent: &Target,
            ids: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Guard<B::Hold>> => Guard;
        fn request(&self, target: Target) -> Request<'_, B> => Request;
        fn request_all(&self, targets: impl IntoIterator<Item = Target>) -> Request<'_, B>
            => Request;
        fn plan(&self, targets: impl IntoIterator<Item = Target>, mode: Mode) -> Result<Plan>;
        fn holders(&self) -> Vec<Holder>;
        fn warnings(&self) -> &[String];
        async fn close(&self, limit: Duration) -> Result<()>;
    }
}

impl<B: Backend> Request<'_, B> {
    forward! { "crate::Request"
        fn mode(self, mode: Mode) -> Self => Self;
        fn and(self, target: Target, mode: Mode) -> Self => Self;
        fn within(self, span: Duration) -> Self => Self;
        fn no_wait(self) -> Self => Self;
        fn named(self, name: impl Into<String>) -> Self => Self;
        fn plan(&self) -> Result<Plan>;
        async fn acquire(self) -> Result<Guard<B::Hold>> => Guard;
        async fn try_acquire(self) -> Result<Option<Guard<B::Hold>>> => |guard| guard.map(Guard);
    }
}

#[cfg(feature = "_server")]
impl Request<'_, SqlBackend> {
    forward! { "crate::Request"
        async fn acquire_in(self, transaction: &mut Transaction => &mut transaction.0)
            -> Result<BTreeMap<Target, SlotMode>>;
    }
}

impl<H: Hold> ExtendRequest<'_, H> {
    forward! { "crate::Request"
        fn mode(self, mode: Mode) -> Self => Self;
        fn and(self, target: Target, mode: Mode) -> Self => Self;
        fn within(self, span: Duration) -> Self => Self;
        fn no_wait(self) -> Self => Self;
        async fn acquire(self) -> Result<()>;
        async fn try_acquire(self) -> Result<bool>;
    }
}

impl<H: Hold> Guard<H> {
    forward! { "crate::Guard"
        async fn release(self) -> Result<()>;
        async fn extend(&mut self, targets: impl IntoIterator<Item = Target>) -> Result<()>;
        async fn upgrade(&mut self) -> Result<()>;
        fn request(&mut self, target: Target) -> ExtendRequest<'_, H> => ExtendRequest;
        fn request_all(&mut self, targets: impl IntoIterator<Item = Target>) -> ExtendRequest<'_, H>
            => ExtendRequest;
        fn targets(&self) -> BTreeMap<Target, Mode>;
        fn modes(&self) -> BTreeMap<Target, SlotMode>;
        fn id(&self) -> u64;
        fn statistics(&self) -> Statistics;
    }

    /// Blocks until the lock is lost, and returns the reason. Returns `None` after `within`.
    pub fn lost(&self, within: Duration) -> Option<Error> {
        wait_at_most(within, self.0.lost())
    }
}

impl<H: FencingHold> Guard<H> {
    forward! { "crate::Guard"
        async fn token(&self) -> Result<u64>;
    }
}
