//! **Locks on a tree, on the database you already run.**
//!
//! A team has data in a tree (users own accounts, accounts own resources) and several processes that change it. hierlock
//! locks any node of the tree: every ancestor shared, the node itself exclusive. A lock on an account excludes every lock
//! below it, and two resources of one account never wait for each other.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::{Hierlock, Target};
//!
//! let locks = Hierlock::connect("memory:").await?;
//! let guard = locks.acquire(Target::resource("u1", "a1", "r1")?).await?;
//! // … u1 and u1/a1 are held shared, u1/a1/r1 exclusive …
//! guard.release().await?; // also on drop
//!
//! // Several together, of any levels, in any order: never a deadlock.
//! let both = [Target::user("u7")?, Target::resource("u1", "a1", "r9")?];
//! let guard = locks.acquire_all(both).await?;
//! # Ok(()) }
//! ```
//!
//! Start at [`Hierlock`]. [`blocking`] is the same for programs without async, [`retry`](mod@retry) repeats a transaction
//! that lost a race, [`lease`] has edit locks that outlive a transaction.
//!
//! ```text
//!   Hierlock ──request──► Plan ──► backend (memory, file, sql) ──► Guard
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

#[macro_use]
mod accessors;
pub mod backend;
pub mod blocking;
mod builder;
mod client;
#[cfg(feature = "_driver")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))))]
pub mod database;
mod diagnosis;
mod error;
mod file;
mod guard;
#[cfg(any(feature = "_server", all(feature = "toolbox", feature = "_driver")))]
mod handover;
mod hierarchy;
mod key;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
#[cfg_attr(docsrs, doc(cfg(feature = "toolbox")))]
pub mod lease;
mod memory;
mod mode;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
#[cfg_attr(docsrs, doc(cfg(feature = "toolbox")))]
pub mod optimistic;
mod plan;
mod preview;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
#[cfg_attr(docsrs, doc(cfg(feature = "toolbox")))]
pub mod queue;
mod registry;
mod request;
pub mod retry;
pub mod sizing;
mod snapshot;
#[cfg(feature = "_server")]
#[cfg_attr(docsrs, doc(cfg(any(feature = "mysql", feature = "postgres"))))]
pub mod sql;
mod sync;
mod target;

pub use builder::Builder;
pub use client::Hierlock;
pub use diagnosis::Diagnosis;
pub use error::{Blocker, BlockingSession, Error, Result, TransactionState};
pub use file::default_path;
pub use guard::Guard;
pub use hierarchy::Hierarchy;
pub use hierlock_engine::{DurationError, ServerUrl, checks, parse_duration};
pub use key::Buckets;
pub use mode::{Mode, ModeSet, SlotMode};
pub use plan::{Claim, Plan, Slots, Step};
pub use preview::Preview;
pub use request::Request;
pub use snapshot::{Holder, Statistics, Wait};
pub use target::Target;

/// The examples of the README files and of the pages in `docs` are tests.
#[cfg(all(
    doctest,
    feature = "mysql",
    feature = "postgres",
    feature = "sqlite",
    feature = "toolbox"
))]
mod readme {
    #[doc = include_str!("../README.md")]
    struct Package;
    #[doc = include_str!("../../../README.md")]
    struct English;
    #[doc = include_str!("../../../README.ja.md")]
    struct Japanese;
    #[doc = include_str!("../../../docs/choosing.md")]
    struct Choosing;
    #[doc = include_str!("../../../docs/retry.md")]
    struct Retry;
    #[doc = include_str!("../../../docs/lease.md")]
    struct Lease;
    #[doc = include_str!("../../../docs/queue.md")]
    struct Queue;
    #[doc = include_str!("../../../docs/optimistic.md")]
    struct Optimistic;
}
