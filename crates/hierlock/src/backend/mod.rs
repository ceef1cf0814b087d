//! The interface of backends. Implement [`Backend`] and [`Hold`] to lock on a system that hierlock does not support.
//!
//! ```text
//!   Hierlock<B> ──AcquireRequest: claims, wait limit, name──► Backend::acquire ──► Hold ──► Guard<Hold>
//!                                                                │                  ▲ extend, release, lost
//!                         Plan::new(hierarchy, claims, slots, modes)
//! ```
//!
//! Capabilities of only some backends are not in these traits, so that a client of a backend without the capability does
//! not have the method: [`FencingHold`] adds [`Guard::token`](crate::Guard::token), and only a client of [`SqlBackend`]
//! has [`acquire_in`](crate::Hierlock::acquire_in).
//!
//! ```compile_fail,E0599
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use hierlock::{Hierlock, Target};
//!
//! let locks = Hierlock::connect("memory:").await?; // a client of any URL; `connect_sql` is for databases only
//! let mut tx = pool.begin().await?;
//! locks.acquire_in(&mut tx, [Target::user("u1")?]).await?;
//! # Ok(()) }
//! ```
//!
//! **To write a backend**: store a [`Hierarchy`]; return how nodes become slots ([`Backend::slots`]) and which modes the
//! slots have ([`Backend::modes`]); in `acquire` make the [`Plan`] of the request with [`Backend::plan`] and lock its
//! steps **in their order**; wait inside [`WaitLimit::limit`]; fail with
//! [`Error::would_block`](crate::Error::would_block) and the like. Run `hierlock-conformance`, the test suite that all
//! backends pass. `crates/hierlock-conformance/tests/third_party.rs` is a complete example.

mod any;
mod request;

pub use crate::error::LockConflict;
pub use crate::file::{FileBackend, FileHold};
pub use crate::memory::{MemoryBackend, MemoryHold};
#[cfg(feature = "_server")]
pub use crate::sql::{SqlBackend, SqlHold};
pub use any::{AnyBackend, AnyHold};
pub use request::{AcquireRequest, WaitLimit};

use crate::{
    Claim, Hierarchy, Holder, Mode, ModeSet, Plan, Result, SlotMode, Slots, Statistics, Target,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// A way to lock the nodes of a tree.
pub trait Backend: Debug + Send + Sync + 'static {
    /// The locks of one acquire.
    type Hold: Hold;

    /// Returns the tree. All clients that share locks must have the same tree.
    fn hierarchy(&self) -> &Hierarchy;

    /// Returns how a node becomes a slot, which is the unit that is locked.
    fn slots(&self) -> Slots;

    /// Returns the modes in which a slot can be locked. A missing mode is rounded up, never down.
    fn modes(&self) -> ModeSet;

    /// Returns the slots of an acquire, in the order in which they are locked. Locks nothing. Fails as [`Plan::new`].
    fn plan(&self, claims: &[Claim]) -> Result<Plan> {
        Plan::new(self.hierarchy(), claims.iter().cloned(), self.slots(), self.modes())
    }

    /// Locks all nodes of the request, or none.
    ///
    /// # Errors
    /// [`is_would_block`](crate::Error::is_would_block) if a node is not free and the request does not wait,
    /// [`is_timeout`](crate::Error::is_timeout) if the limit came first; also any failure of the backend. Nothing is held
    /// then.
    ///
    /// # Cancel safety
    /// Dropping the future gives up: the nodes that were locked are released, at once or within milliseconds.
    fn acquire(&self, request: AcquireRequest) -> impl Future<Output = Result<Self::Hold>> + Send;

    /// Returns the holders and waiters that this process knows, oldest first.
    fn holders(&self) -> Vec<Holder>;

    /// Returns warnings about the server or file system of the locks. By default none.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Waits, at most for `limit`, until no dropped hold or acquire holds a lock any more. By default returns at once:
    /// dropping releases immediately.
    ///
    /// # Errors
    /// [`is_timeout`](crate::Error::is_timeout): some locks are still held.
    fn close(&self, limit: Duration) -> impl Future<Output = Result<()>> + Send {
        let _ = limit;
        async { Ok(()) }
    }
}

/// The locks of one acquire. Dropping the hold releases them.
pub trait Hold: Debug + Send + Sync + Sized + 'static {
    /// Locks more nodes, or the same nodes in a stronger mode.
    ///
    /// # Errors
    /// As [`Backend::acquire`]; [`is_deadlock`](crate::Error::is_deadlock) if the wait would, or could, never end. The hold
    /// is then the same as before.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; the hold is the same as before.
    fn extend(&mut self, request: AcquireRequest) -> impl Future<Output = Result<()>> + Send;

    /// Releases all locks.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost): the locks were not held any more, or that is unknown.
    fn release(self) -> impl Future<Output = Result<()>> + Send;

    /// Returns the requested targets: each once, in the strongest mode.
    fn targets(&self) -> BTreeMap<Target, Mode>;

    /// Returns the nodes and modes that are really locked, ancestors included.
    fn modes(&self) -> BTreeMap<Target, SlotMode>;

    /// Returns the id of the hold in [`Backend::holders`].
    fn id(&self) -> u64;

    /// Returns how often the acquire started again.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Waits until the lock is lost, and returns the reason. By default waits for ever.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    fn lost(&self) -> impl Future<Output = crate::Error> + Send {
        std::future::pending()
    }
}

/// A hold that has fencing tokens.
pub trait FencingHold: Hold {
    /// Returns a number greater than the tokens of all earlier holders of the same node. A later call may return a greater
    /// number, never a smaller one.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost); also any failure of the backend.
    fn token(&self) -> impl Future<Output = Result<u64>> + Send;
}
