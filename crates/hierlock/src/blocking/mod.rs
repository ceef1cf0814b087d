//! Locks, leases and queues for programs without async.
//!
//! Every call blocks its thread and works on any thread, also inside an async runtime (where it blocks that worker thread,
//! as a `std::sync::Mutex` would). Types have the names and errors of their async versions. Types that are only data
//! ([`LeaseRequest`](crate::lease::LeaseRequest), [`Job`](crate::queue::Job), …) are the same for both.
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

#[cfg(feature = "_driver")]
mod database;
mod forward;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
mod lease;
mod locks;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
mod queue;
mod runtime;

#[cfg(feature = "_driver")]
pub use database::{Database, Transaction};
use forward::forward;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
pub use lease::{Lease, LeaseGuard, Leases};
pub use locks::{ExtendRequest, Guard, Hierlock, Request};
#[cfg(all(feature = "toolbox", feature = "_driver"))]
pub use queue::{ClaimedJob, Queue, Worker};
use runtime::{wait_at_most, wait_for};
