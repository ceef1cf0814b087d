//! Locks, leases and queues for programs without async.
//!
//! Every call blocks its thread and works anywhere, also inside an async runtime (where it blocks
//! that worker, as a `std::sync::Mutex` would). Types have the names of their async twins; what is only data
//! ([`LeaseRequest`](crate::lease::LeaseRequest), [`Job`](crate::queue::Job), …) is the same for both.
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

mod database;
mod lease;
mod locks;
mod queue;
mod runtime;

pub use database::{Database, Transaction};
pub use lease::{KeptLease, Lease, Leases};
pub use locks::{ExtendRequest, Guard, Hierlock, Request};
pub use queue::{Claimed, Queue, Worker};
use runtime::{enter, wait_for};
