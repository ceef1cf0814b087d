//! What every backend must do. A backend passes by giving a constructor:
//!
//! ```
//! use hierlock::Hierlock;
//! use hierlock_conformance::{Intentions, conformance};
//!
//! conformance!(Intentions::Yes, async || Hierlock::connect("memory:").await.unwrap());
//! ```
//!
//! The same for a backend of one's own: `async || Hierlock::with_backend(MyBackend::new())`. Behind a `;` a backend says what
//! it does not do: `extensions never wait`, `no tokens`, or both with a comma between them. `tests/third_party.rs` is a
//! backend written from outside.
//!
//! That something waits is read from the lock manager, never guessed from the clock; limits are
//! there only to end a run that hangs.

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
use hierlock::{Guard, Result, Target};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Does the backend know intention modes? Without them it rounds inner nodes up to exclusive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Intentions {
    Yes,
    No,
}

/// No test comes near it; a run that hangs is ended by it.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// What a constructor gives: a client, or none, after it has said why the suite is skipped.
pub trait Opened {
    type Backend: Backend;

    fn opened(self) -> Option<Hierlock<Self::Backend>>;
}

impl<B: Backend> Opened for Hierlock<B> {
    type Backend = B;

    fn opened(self) -> Option<Hierlock<B>> {
        Some(self)
    }
}

impl<B: Backend> Opened for Option<Hierlock<B>> {
    type Backend = B;

    fn opened(self) -> Option<Hierlock<B>> {
        self
    }
}

/// Generates a test for each line of the suite; without those in which an extension must wait, where the
/// backend says that its `extensions never wait`, and those of fencing tokens, where it has `no tokens`.
#[macro_export]
macro_rules! conformance {
    ($intentions:expr, $open:expr) => {
        $crate::conformance!($intentions, $open; extensions never wait);
        $crate::conformance!(@extensions $intentions, $open);
    };
    ($intentions:expr, $open:expr; no tokens) => {
        $crate::conformance!($intentions, $open; extensions never wait, no tokens);
        $crate::conformance!(@extensions $intentions, $open);
    };
    ($intentions:expr, $open:expr; extensions never wait) => {
        $crate::conformance!($intentions, $open; extensions never wait, no tokens);
        $crate::conformance!(@ $intentions, $open; a_token_counts_for_what_was_added);
    };
    ($intentions:expr, $open:expr; extensions never wait, no tokens) => {
        $crate::conformance!(@ $intentions, $open;
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
    (@extensions $intentions:expr, $open:expr) => {
        $crate::conformance!(@ $intentions, $open;
            a_deadlock_of_two_extensions_has_one_victim,
            a_cancelled_extension_keeps_what_the_guard_had,
        );
    };
    (@ $intentions:expr, $open:expr; $($name:ident),* $(,)?) => {
        $(#[$crate::tokio::test(crate = "hierlock_conformance::tokio", flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let opened = ($open)().await;
            let Some(locks) = $crate::Opened::opened(opened) else { return };
            let run = $crate::$name(locks, $intentions);
            $crate::tokio::time::timeout(4 * $crate::GENEROUS, run).await.expect("it hangs");
        })*
    };
}

pub fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Asks for a node in a task of its own.
pub fn asks<B: Backend>(locks: &Hierlock<B>, path: &str) -> JoinHandle<Result<Guard<B::Hold>>> {
    let (locks, target) = (locks.clone(), target(path));
    tokio::spawn(async move { locks.acquire(target).await })
}

/// Until so many wait; read from the lock manager.
pub async fn until_waiting<B: Backend>(locks: &Hierlock<B>, count: usize) {
    until(|| locks.holders().iter().filter(|holder| holder.waits.is_some()).count() == count).await;
}

/// Until nobody holds or waits.
pub async fn until_idle<B: Backend>(locks: &Hierlock<B>) {
    until(|| locks.holders().is_empty()).await;
}

pub async fn until(condition: impl Fn() -> bool) {
    let polls = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(GENEROUS, polls).await.expect("the condition never came true");
}

/// Can it be taken now?
pub async fn is_free<B: Backend>(locks: &Hierlock<B>, path: &str) -> bool {
    match locks.try_acquire(target(path)).await.unwrap() {
        Some(guard) => {
            guard.release().await.unwrap();
            true
        }
        None => false,
    }
}

/// Until it can be taken: dropping a guard frees, but need not wait for a server to confirm it.
pub async fn until_free<B: Backend>(locks: &Hierlock<B>, path: &str) {
    let tries = async {
        while !is_free(locks, path).await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(GENEROUS, tries).await.expect("it was never freed");
}

/// The example of the package's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
