//! What every backend does. Implement [`Backend`] and [`Hold`] to lock on something that hierlock does not know.
//!
//! ```text
//!   Hierlock<B> ──AcquireRequest: claims, wait limit, name──► Backend::acquire ──► Hold ──► Guard<Hold>
//!                                                                │                  ▲ extend, release, lost
//!                         Plan::new(hierarchy, claims, slots, modes)
//! ```
//!
//! What only some backends can do is not in these traits, so that a client of a backend that cannot do it has no such
//! method: [`FencingHold`] gives [`Guard::token`](crate::Guard::token), and only a client of [`SqlBackend`] has
//! [`acquire_in`](crate::Hierlock::acquire_in).
//!
//! ```compile_fail,E0599
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use hierlock::{Hierlock, Target};
//!
//! let locks = Hierlock::connect("memory:").await?; // whatever the URL says; `connect_sql` is for databases only
//! let mut tx = pool.begin().await?;
//! locks.acquire_in(&mut tx, [Target::user("u1")?]).await?;
//! # Ok(()) }
//! ```
//!
//! **A backend of your own**: keep a [`Hierarchy`]; say how nodes become slots ([`Backend::slots`]) and which modes the
//! slots have ([`Backend::modes`]); in `acquire` make the [`Plan`] of the request with [`Backend::plan`] and take its
//! steps **in their order**; wait inside [`WaitLimit::limit`]; fail with
//! [`Error::would_block`](crate::Error::would_block) and the like. Run `hierlock-conformance`, the suite that all backends
//! pass. `crates/hierlock-conformance/tests/third_party.rs` is a complete one.

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
    /// What it keeps while locked.
    type Hold: Hold;

    /// The tree. All who share the locks must have the same.
    fn hierarchy(&self) -> &Hierarchy;

    /// How a node becomes a slot, which is what can be locked.
    fn slots(&self) -> Slots;

    /// The modes in which a slot can be locked. One that is missing is rounded up, never down.
    fn modes(&self) -> ModeSet;

    /// The slots of an acquire, in the order in which they are taken. Touches nothing.
    ///
    /// # Errors
    /// As [`Plan::new`].
    fn plan(&self, claims: &[Claim]) -> Result<Plan> {
        Plan::new(self.hierarchy(), claims.iter().cloned(), self.slots(), self.modes())
    }

    /// Takes all that is asked for, or nothing.
    ///
    /// # Errors
    /// [`is_would_block`](crate::Error::is_would_block) if it is not free and the request does not wait,
    /// [`is_timeout`](crate::Error::is_timeout) if the limit came first; also whatever keeps the backend from locking.
    /// Nothing is held then.
    ///
    /// # Cancel safety
    /// Dropping the future gives up: what was taken is given back, at once or within milliseconds.
    fn acquire(&self, request: AcquireRequest) -> impl Future<Output = Result<Self::Hold>> + Send;

    /// Who holds what and who waits for whom, as far as this process can tell; oldest first.
    fn holders(&self) -> Vec<Holder>;

    /// What is doubtful about the place of the locks. By default nothing.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Waits, no longer than `limit`, until nothing that was given up is still held anywhere. By default there is
    /// nothing to wait for: what is dropped is free.
    ///
    /// # Errors
    /// [`is_timeout`](crate::Error::is_timeout): something is left.
    fn close(&self, limit: Duration) -> impl Future<Output = Result<()>> + Send {
        let _ = limit;
        async { Ok(()) }
    }
}

/// What a backend keeps while locked. Dropping it frees everything.
pub trait Hold: Debug + Send + Sync + Sized + 'static {
    /// Takes more, or the same more strongly.
    ///
    /// # Errors
    /// As [`Backend::acquire`]; [`is_deadlock`](crate::Error::is_deadlock) if waiting would be, or could be, for ever.
    /// It holds what it held before.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; the hold is what it was before.
    fn extend(&mut self, request: AcquireRequest) -> impl Future<Output = Result<()>> + Send;

    /// Frees everything.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost): it was not held any more, or nobody can tell.
    fn release(self) -> impl Future<Output = Result<()>> + Send;

    /// What was asked for: each target once, in the strongest mode.
    fn targets(&self) -> BTreeMap<Target, Mode>;

    /// What is really taken, ancestors included.
    fn modes(&self) -> BTreeMap<Target, SlotMode>;

    /// Names it in [`Backend::holders`].
    fn id(&self) -> u64;

    /// What its acquire went through.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Comes back only when the lock is no longer there, and says why. By default never.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    fn lost(&self) -> impl Future<Output = crate::Error> + Send {
        std::future::pending()
    }
}

/// A hold that has fencing tokens.
pub trait FencingHold: Hold {
    /// A number greater than that of everyone who held the same before. Asked again it may be greater, never smaller.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost); also whatever keeps the backend from counting.
    fn token(&self) -> impl Future<Output = Result<u64>> + Send;
}
