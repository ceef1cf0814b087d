//! What every backend must do. A backend passes by giving a constructor:
//!
//! ```
//! use hierlock::Hierlock;
//! use hierlock_conformance::conformance;
//!
//! conformance!(async || Hierlock::connect("memory:").await.unwrap());
//! ```
//!
//! The same for a backend of one's own: `async || Hierlock::with_backend(MyBackend::new())`. Behind a `;` a backend says what
//! it does not do: `extensions never wait`, `no tokens`, or both with a comma between them. A constructor that returns `None`,
//! after it has said why, skips the suite. `tests/third_party.rs` is a backend written from outside.
//!
//! That something waits is read from the lock manager, never guessed from the clock.

#![expect(missing_docs, reason = "the name of a test says what it proves")]
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

/// Ends a test that hangs; no test takes nearly as long.
pub const MAX_WAIT: Duration = Duration::from_secs(30);

/// Generates a test for each line of the suite, without what the backend says that it does not do.
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
        $crate::conformance!(@ $open; a_token_counts_for_what_was_added);
    };
    ($open:expr; extensions never wait, no tokens) => {
        $crate::conformance!(@ $open;
            every_pair_conflicts_as_the_model_says,
            release_frees_the_waiter,
            modes_are_never_weaker_than_asked,
            an_update_lock_goes_with_readers_at_most,
            a_deadline_ends_the_wait_and_nothing_is_held,
            a_deadline_names_what_was_in_the_way,
            a_second_updater_is_told_where_it_waits,
            try_never_waits,
            a_cancelled_wait_leaves_nothing,
            cancelling_at_every_poll_leaves_nothing,
            dropping_frees,
            a_panic_frees,
            unrelated_nodes_do_not_wait,
            bad_requests_are_refused_with_a_sentence,
            holders_are_listed,
            who_waits_behind_a_waiter_is_told,
            a_node_that_is_only_waited_for_is_not_called_locked,
            random_acquires_never_deadlock_and_never_overlap,
            random_extensions_are_never_stuck,
            a_failed_extension_keeps_what_the_guard_had,
            an_extension_holds_and_is_released_with_the_guard,
            an_upgrade_excludes_readers,
            two_updaters_cannot_deadlock,
        );
    };
    (@extensions $open:expr) => {
        $crate::conformance!(@ $open;
            a_deadlock_of_two_extensions_has_one_victim,
            a_cancelled_extension_keeps_what_the_guard_had,
        );
    };
    (@ $open:expr; $($name:ident),* $(,)?) => {
        $(#[$crate::tokio::test(crate = "hierlock_conformance::tokio", flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $crate::run(($open)().await, $crate::$name).await;
        })*
    };
}

/// Runs one test on what a constructor has returned: a client, or none.
pub async fn run<B: Backend, F: Future<Output = ()>>(
    opened: impl Into<Option<Hierlock<B>>>,
    test: impl FnOnce(Hierlock<B>) -> F,
) {
    let Some(locks) = opened.into() else { return };
    tokio::time::timeout(4 * MAX_WAIT, test(locks)).await.expect("it hangs");
}

pub fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// A task that acquires.
pub type AcquireTask<B> = JoinHandle<Result<Guard<<B as Backend>::Hold>>>;

/// Acquires a node in a new task.
pub fn spawn_acquire<B: Backend>(locks: &Hierlock<B>, path: &str) -> AcquireTask<B> {
    let target = target(path);
    spawn_request(locks, |locks| locks.request(target))
}

/// Acquires what a request asks for, in a new task.
pub fn spawn_request<B: Backend>(
    locks: &Hierlock<B>,
    request: impl FnOnce(&Hierlock<B>) -> Request<&Hierlock<B>> + Send + 'static,
) -> AcquireTask<B> {
    let locks = locks.clone();
    tokio::spawn(async move { request(&locks).acquire().await })
}

/// Waits until the lock manager lists so many waiters.
pub async fn until_waiting<B: Backend>(locks: &Hierlock<B>, count: usize) {
    let waiting = || locks.holders().iter().filter(|holder| holder.waits.is_some()).count();
    until(|| ready(waiting() == count)).await;
}

/// Waits until nobody holds or waits.
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
    tokio::time::timeout(MAX_WAIT, polls).await.expect("the condition never came true");
}

/// Returns whether a node can be locked now.
pub async fn is_free<B: Backend>(locks: &Hierlock<B>, path: &str) -> bool {
    is_granted(locks.request(target(path))).await
}

/// Returns whether a request is granted now. Its locks are released.
pub async fn is_granted<B: Backend>(request: Request<&Hierlock<B>>) -> bool {
    match request.try_acquire().await.unwrap() {
        Some(guard) => {
            guard.release().await.unwrap();
            true
        }
        None => false,
    }
}

/// The example of the package's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
