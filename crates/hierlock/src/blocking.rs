//! The same locks for programs without async.
//!
//! Every call blocks its thread and works anywhere, also inside an async runtime (where it blocks
//! that worker, as a `std::sync::Mutex` would).
//!
//! ```
//! use hierlock::{Target, blocking::Hierlock};
//!
//! let locks = Hierlock::connect("memory:")?;
//! let guard = locks.acquire(Target::resource("u1", "a1", "r1")?)?;
//! assert!(locks.try_acquire(Target::user("u1")?)?.is_none());
//! guard.release()?;
//! # Ok::<(), hierlock::Error>(())
//! ```

use crate::{Error, Hierarchy, Holder, Mode, Plan, Result, SlotMode, Statistics, Target};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Blocking twin of [`crate::Hierlock`].
#[derive(Clone, Debug)]
pub struct Hierlock(crate::Hierlock);

/// Blocking twin of [`crate::Request`].
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Request<By>(crate::Request<By>);

/// Blocking twin of [`crate::Guard`].
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct Guard(crate::Guard);

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

    /// The tree.
    pub fn hierarchy(&self) -> &Hierarchy {
        self.0.hierarchy()
    }

    /// See [`crate::Hierlock::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, target: Target) -> Result<Guard> {
        self.request(target).acquire()
    }

    /// See [`crate::Hierlock::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self, target: Target) -> Result<Option<Guard>> {
        self.request(target).try_acquire()
    }

    /// See [`crate::Hierlock::acquire_all`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_all(&self, targets: impl IntoIterator<Item = Target>) -> Result<Guard> {
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
    ) -> Result<Guard> {
        wait_for(self.0.acquire_children(parent, ids)).map(Guard)
    }

    /// See [`crate::Hierlock::request`].
    pub fn request(&self, target: Target) -> Request<&crate::Hierlock> {
        Request(self.0.request(target))
    }

    /// See [`crate::Hierlock::request_all`].
    pub fn request_all(
        &self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Request<&crate::Hierlock> {
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

    /// See [`crate::Hierlock::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self, limit: Duration) -> Result<()> {
        wait_for(self.0.close(limit))
    }
}

impl<By> Request<By> {
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
}

impl Request<&crate::Hierlock> {
    /// See [`crate::Request::named`].
    pub fn named(self, name: impl Into<String>) -> Self {
        Self(self.0.named(name))
    }

    /// Waits until all is held.
    ///
    /// # Errors
    /// As the async one.
    pub fn acquire(self) -> Result<Guard> {
        wait_for(self.0.acquire()).map(Guard)
    }

    /// Takes it now or not at all.
    ///
    /// # Errors
    /// As the async one.
    pub fn try_acquire(self) -> Result<Option<Guard>> {
        Ok(wait_for(self.0.try_acquire())?.map(Guard))
    }
}

impl Request<&mut crate::Guard> {
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

impl Guard {
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
    pub fn request(&mut self, target: Target) -> Request<&mut crate::Guard> {
        Request(self.0.request(target))
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

    /// See [`crate::Guard::token`].
    ///
    /// # Errors
    /// As there.
    pub fn token(&self) -> Result<u64> {
        wait_for(self.0.token())
    }

    /// Blocks until the lock is no longer there, at most `within`: then `None`.
    pub fn lost(&self, within: Duration) -> Option<Error> {
        wait_for(async { tokio::time::timeout(within, self.0.lost()).await.ok() })
    }
}

/// Drives a future on this thread. Timers and sockets are driven by a runtime of our own, so it does
/// not matter what this thread is otherwise part of.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let _entered = runtime().map(Runtime::enter);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// One worker for the whole process. A machine that cannot start a thread has no timers either; the
/// waits that need none still work.
fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("hierlock-blocking")
                .enable_all()
                .build()
                .inspect_err(|error| tracing::warn!(%error, "no runtime for blocking calls"))
                .ok()
        })
        .as_ref()
}
