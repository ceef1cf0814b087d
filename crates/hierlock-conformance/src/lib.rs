//! The test suite that every backend passes. Give it a constructor of the backend:
//!
//! ```
//! use hierlock::Hierlock;
//! use hierlock_conformance::conformance;
//!
//! conformance!(async || Hierlock::connect("memory:").await.unwrap());
//! ```
//!
//! For a backend of your own: `async || Hierlock::with_backend(MyBackend::new())`. After a `;` follow the capabilities
//! that the backend lacks: `extensions never wait`, `no tokens`, or both with a comma between them. A constructor that
//! returns `None`, after it has printed the reason, skips the suite. `tests/third_party.rs` is a backend outside of
//! hierlock.
//!
//! Whether a task waits is read from the lock manager, never guessed from the time.

#![expect(missing_docs, reason = "the name of a test is its documentation")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "these are tests")]

mod extend;
mod matrix;
mod random;
mod waiting;

pub use extend::*;
pub use matrix::*;
pub use random::*;
pub use waiting::*;

pub use hierlock::Hierlock;
pub use tokio;

use hierlock::backend::Backend;
use hierlock::{Guard, Request, Result, Target};
use std::future::ready;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The limit for waits, which ends a test that hangs. No test takes nearly as long.
pub const MAX_WAIT: Duration = Duration::from_secs(30);

/// Generates a test for each function of the suite, except for capabilities that the backend lacks.
#[macro_export]
macro_rules! conformance {
    ($open:expr) => {
        $crate::conformance!($open; extensions never wait);
        $crate::conformance!(@extensions $open);
    };
    ($open:expr; no tokens) => {
        $crate::conformance!($open; extensions never wait, no tokens);
        $crate::conformance!(@extensions $open);
    };
    ($open:expr; extensions never wait) => {
        $crate::conformance!($open; extensions never wait, no tokens);
        $crate::conformance!(@ $open; a_token_exceeds_that_of_the_last_holder_of_an_added_node);
    };
    ($open:expr; extensions never wait, no tokens) => {
        $crate::conformance!(@ $open;
            every_pair_conflicts_as_the_model_says,
            release_grants_the_lock_to_the_waiter,
            modes_are_never_weaker_than_requested,
            an_update_lock_is_compatible_only_with_readers,
            a_timeout_ends_the_wait_and_releases_everything,
            a_timeout_names_the_blocked_node,
            a_second_updater_waits_for_the_held_node,
            try_never_waits,
            a_cancelled_wait_holds_nothing,
            an_acquire_cancelled_at_any_poll_holds_nothing,
            dropping_a_guard_releases_its_locks,
            a_panic_releases_the_locks,
            unrelated_nodes_do_not_wait,
            invalid_requests_are_usage_errors,
            holders_are_listed,
            a_waiter_that_holds_another_node_is_listed_as_blocker,
            a_node_that_is_only_waited_for_is_not_reported_as_locked,
            random_acquires_never_deadlock_and_never_overlap,
            random_extensions_never_hang,
            a_failed_extension_keeps_the_locks_of_the_guard,
            an_extension_holds_and_is_released_with_the_guard,
            an_upgrade_excludes_readers,
            two_updaters_cannot_deadlock,
        );
    };
    (@extensions $open:expr) => {
        $crate::conformance!(@ $open;
            a_deadlock_of_two_extensions_has_one_victim,
            a_cancelled_extension_keeps_the_locks_of_the_guard,
        );
    };
    (@ $open:expr; $($name:ident),* $(,)?) => {
        $(#[$crate::tokio::test(crate = "hierlock_conformance::tokio", flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $crate::run(($open)().await, $crate::$name).await;
        })*
    };
}

/// Runs one test on the client that a constructor has returned, if any.
pub async fn run<B: Backend, F: Future<Output = ()>>(
    opened: impl Into<Option<Hierlock<B>>>,
    test: impl FnOnce(Hierlock<B>) -> F,
) {
    let Some(locks) = opened.into() else { return };
    tokio::time::timeout(4 * MAX_WAIT, test(locks))
        .await
        .expect("the test did not end within the limit");
}

pub fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// A task that acquires a lock.
pub type AcquireTask<B> = JoinHandle<Result<Guard<<B as Backend>::Hold>>>;

/// Acquires a node in a new task.
pub fn spawn_acquire<B: Backend>(locks: &Hierlock<B>, path: &str) -> AcquireTask<B> {
    let target = target(path);
    spawn_request(locks, |locks| locks.request(target))
}

/// Runs a request in a new task.
pub fn spawn_request<B: Backend>(
    locks: &Hierlock<B>,
    request: impl FnOnce(&Hierlock<B>) -> Request<&Hierlock<B>> + Send + 'static,
) -> AcquireTask<B> {
    let locks = locks.clone();
    tokio::spawn(async move { request(&locks).acquire().await })
}

/// Waits until the lock manager lists `count` waiters.
pub async fn until_waiting<B: Backend>(locks: &Hierlock<B>, count: usize) {
    let waiting = || locks.holders().iter().filter(|holder| holder.waits.is_some()).count();
    until(|| ready(waiting() == count)).await;
}

/// Waits until there are no holders and no waiters.
pub async fn until_idle<B: Backend>(locks: &Hierlock<B>) {
    until(|| ready(locks.holders().is_empty())).await;
}

/// Waits until a node is free: dropping a guard does not wait until the server has released its locks.
pub async fn until_free<B: Backend>(locks: &Hierlock<B>, path: &str) {
    until(|| is_free(locks, path)).await;
}

pub async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    let polls = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, polls)
        .await
        .expect("the condition did not become true within the limit");
}

/// Returns whether a node can be locked now.
pub async fn is_free<B: Backend>(locks: &Hierlock<B>, path: &str) -> bool {
    is_granted(locks.request(target(path))).await
}

/// Returns whether a request is granted now. Releases its locks.
pub async fn is_granted<B: Backend>(request: Request<&Hierlock<B>>) -> bool {
    let Some(guard) = request.try_acquire().await.unwrap() else { return false };
    guard.release().await.unwrap();
    true
}

/// The example of the package's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
