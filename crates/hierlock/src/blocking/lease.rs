//! Blocking versions of leases.

use super::{Database, Transaction, forward, wait_at_most, wait_for};
use crate::lease::{self, ForcedRelease, LeaseFilter, LeaseInfo, LeaseRequest};
use crate::{Error, Hierarchy, Result, Target};
use std::time::{Duration, SystemTime};

/// Blocking version of [`crate::lease::Leases`]. Clones share its connections.
///
/// ```
/// use hierlock::blocking::{Database, Leases};
/// use hierlock::{Target, lease::LeaseRequest};
///
/// let leases = Leases::new(&Database::connect("sqlite::memory:")?);
/// leases.provision()?;
/// let lease = leases.acquire(LeaseRequest::new(Target::account("u1", "a1")?, "ada"))?;
/// let guard = lease.keep(); // renewed until it is released or dropped
/// assert!(guard.release()?);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leases(lease::Leases);

impl Leases {
    /// See [`crate::lease::Leases::new`].
    pub fn new(database: &Database) -> Self {
        Self(lease::Leases::new(database.0.clone()))
    }

    forward! { "crate::lease::Leases"
        #[must_use]
        fn with_hierarchy(self, hierarchy: Hierarchy) -> Self => Self;
        async fn provision(&self) -> Result<()>;
        fn script(&self) -> String;
        async fn acquire(&self, request: LeaseRequest) -> Result<Lease> => Lease;
        async fn find(&self, token: i64) -> Result<Option<LeaseInfo>>;
        async fn resume(&self, token: i64) -> Result<Lease> => Lease;
        async fn check_token_in(&self, tx: &mut Transaction => &mut tx.0, token: i64) -> Result<()>;
        async fn release(&self, token: i64) -> Result<bool>;
        async fn list(&self, filter: LeaseFilter) -> Result<Vec<LeaseInfo>>;
        async fn release_session(&self, session: &str) -> Result<u64>;
        async fn release_owner(&self, owner: &str) -> Result<u64>;
        async fn force_release(&self, token: i64, actor: &str, why: &str)
            -> Result<Option<LeaseInfo>>;
        async fn audit(&self, limit: u32) -> Result<Vec<ForcedRelease>>;
        async fn sweep(&self) -> Result<u64>;
    }
}

/// Blocking version of [`crate::lease::Lease`]. Dropping it does not release the lease.
#[derive(Debug)]
#[must_use = "a lease is held until it is released or expires"]
pub struct Lease(lease::Lease);

impl Lease {
    forward! { "crate::lease::Lease"
        fn token(&self) -> i64;
        fn target(&self) -> &Target;
        fn owner(&self) -> &str;
        fn acquired_at(&self) -> SystemTime;
        fn expires_at(&self) -> SystemTime;
        fn ttl(&self) -> Duration;
        fn info(&self) -> &LeaseInfo;
        async fn renew(&mut self) -> Result<()>;
        async fn release(self) -> Result<bool>;
        async fn check_in(&self, tx: &mut Transaction => &mut tx.0) -> Result<()>;
    }

    /// See [`crate::lease::Lease::keep`].
    ///
    /// # Panics
    /// If the process cannot start the thread that renews the lease.
    pub fn keep(self) -> LeaseGuard {
        wait_for(async { LeaseGuard(self.0.keep()) })
    }
}

/// Blocking version of [`crate::lease::LeaseGuard`]. Dropping it releases the lease, in the background.
#[derive(Debug)]
#[must_use = "dropping the guard releases the lease"]
pub struct LeaseGuard(lease::LeaseGuard);

impl LeaseGuard {
    getters! { self:
        /// See [`crate::lease::Lease::token`].
        token -> i64 = self.0.lease().token();
        /// Returns the lease as it was when `keep` was called.
        info -> &LeaseInfo = self.0.lease().info();
    }

    /// See [`crate::lease::Lease::check_in`].
    pub fn check_in(&self, tx: &mut Transaction) -> Result<()> {
        wait_for(self.0.lease().check_in(&mut tx.0))
    }

    /// Blocks until the lease is lost, and returns the reason. Returns `None` after `within`.
    pub fn lost(&self, within: Duration) -> Option<Error> {
        wait_at_most(within, self.0.lost())
    }

    forward! { "crate::lease::LeaseGuard"
        fn expires_at(&self) -> SystemTime;
        async fn release(self) -> Result<bool>;
        fn leave(self) -> Lease => Lease;
    }
}
