//! What every backend must do. A backend passes by giving a constructor:
//!
//! ```
//! use hierlock::Hierlock;
//! use hierlock_conformance::{Intentions, conformance};
//!
//! conformance!(Intentions::Yes, async || Hierlock::connect("memory:").await.unwrap());
//! ```
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

/// Generates a test for each line of the suite; without those in which an extension must wait, where the
/// backend says that its `extensions never wait`.
#[macro_export]
macro_rules! conformance {
    ($intentions:expr, $open:expr) => {
        $crate::conformance!($intentions, $open; extensions never wait);
        $crate::conformance!(@ $intentions, $open;
            a_deadlock_of_two_extensions_has_one_victim,
            a_cancelled_extension_keeps_what_the_guard_had,
        );
    };
    ($intentions:expr, $open:expr; extensions never wait) => {
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
            a_token_counts_for_what_was_added,
        );
    };
    (@ $intentions:expr, $open:expr; $($name:ident),* $(,)?) => {
        $(#[$crate::tokio::test(crate = "hierlock_conformance::tokio", flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            // A constructor may give none: it has said then why this is skipped.
            let opened: Option<$crate::Hierlock> = ($open)().await.into();
            let Some(locks) = opened else { return };
            let run = $crate::$name(locks, $intentions);
            $crate::tokio::time::timeout(4 * $crate::GENEROUS, run).await.expect("it hangs");
        })*
    };
}

pub fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Asks for a node in a task of its own.
pub fn asks(locks: &Hierlock, path: &str) -> JoinHandle<Result<Guard>> {
    let (locks, target) = (locks.clone(), target(path));
    tokio::spawn(async move { locks.acquire(target).await })
}

/// Until so many wait; read from the lock manager.
pub async fn until_waiting(locks: &Hierlock, count: usize) {
    until(|| locks.holders().iter().filter(|holder| holder.waits.is_some()).count() == count).await;
}

/// Until nobody holds or waits.
pub async fn until_idle(locks: &Hierlock) {
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
pub async fn is_free(locks: &Hierlock, path: &str) -> bool {
    match locks.try_acquire(target(path)).await.unwrap() {
        Some(guard) => {
            guard.release().await.unwrap();
            true
        }
        None => false,
    }
}

/// Until it can be taken: dropping a guard frees, but need not wait for a server to confirm it.
pub async fn until_free(locks: &Hierlock, path: &str) {
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
