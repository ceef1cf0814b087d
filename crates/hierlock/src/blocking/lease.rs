//! Blocking twins of leases.

use super::{Database, Transaction, wait_for};
use crate::error::{Error, Result};
use crate::hierarchy::Hierarchy;
use crate::lease::{self, ForcedRelease, LeaseFilter, LeaseInfo, LeaseRequest};
use crate::target::Target;
use std::time::{Duration, SystemTime};

/// Blocking twin of [`crate::lease::Leases`]. Clones share its connections.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}", directory.path().join("app.db").display());
/// use hierlock::blocking::{Database, Leases};
/// use hierlock::{Target, lease::LeaseRequest};
///
/// let leases = Leases::new(&Database::connect(&url)?);
/// leases.provision()?;
/// let lease = leases.acquire(LeaseRequest::new(Target::account("u1", "a1")?, "ada"))?;
/// let kept = lease.keep(); // renewed until it is released or dropped
/// assert!(kept.release()?);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leases(lease::Leases);

impl Leases {
    /// See [`crate::lease::Leases::new`].
    pub fn new(database: &Database) -> Self {
        Self(lease::Leases::new(database.0.clone()))
    }

    /// See [`crate::lease::Leases::with_hierarchy`].
    #[must_use]
    pub fn with_hierarchy(self, hierarchy: Hierarchy) -> Self {
        Self(self.0.with_hierarchy(hierarchy))
    }

    /// See [`crate::lease::Leases::provision`].
    ///
    /// # Errors
    /// As there.
    pub fn provision(&self) -> Result<()> {
        wait_for(self.0.provision())
    }

    /// See [`crate::lease::Leases::script`].
    pub fn script(&self) -> String {
        self.0.script()
    }

    /// See [`crate::lease::Leases::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self, request: LeaseRequest) -> Result<Lease> {
        wait_for(self.0.acquire(request)).map(Lease)
    }

    /// See [`crate::lease::Leases::find`].
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, token: i64) -> Result<Option<LeaseInfo>> {
        wait_for(self.0.find(token))
    }

    /// See [`crate::lease::Leases::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self, token: i64) -> Result<Lease> {
        wait_for(self.0.resume(token)).map(Lease)
    }

    /// See [`crate::lease::Leases::check_token_in`].
    ///
    /// # Errors
    /// As there.
    pub fn check_token_in(&self, tx: &mut Transaction, token: i64) -> Result<()> {
        wait_for(self.0.check_token_in(tx.inner(), token))
    }

    /// See [`crate::lease::Leases::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(&self, token: i64) -> Result<bool> {
        wait_for(self.0.release(token))
    }

    /// See [`crate::lease::Leases::list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, filter: LeaseFilter) -> Result<Vec<LeaseInfo>> {
        wait_for(self.0.list(filter))
    }

    /// See [`crate::lease::Leases::release_session`].
    ///
    /// # Errors
    /// As there.
    pub fn release_session(&self, session: &str) -> Result<u64> {
        wait_for(self.0.release_session(session))
    }

    /// See [`crate::lease::Leases::release_owner`].
    ///
    /// # Errors
    /// As there.
    pub fn release_owner(&self, owner: &str) -> Result<u64> {
        wait_for(self.0.release_owner(owner))
    }

    /// See [`crate::lease::Leases::force_release`].
    ///
    /// # Errors
    /// As there.
    pub fn force_release(&self, token: i64, actor: &str, why: &str) -> Result<Option<LeaseInfo>> {
        wait_for(self.0.force_release(token, actor, why))
    }

    /// See [`crate::lease::Leases::audit`].
    ///
    /// # Errors
    /// As there.
    pub fn audit(&self, limit: u32) -> Result<Vec<ForcedRelease>> {
        wait_for(self.0.audit(limit))
    }

    /// See [`crate::lease::Leases::sweep`].
    ///
    /// # Errors
    /// As there.
    pub fn sweep(&self) -> Result<u64> {
        wait_for(self.0.sweep())
    }
}

/// Blocking twin of [`crate::lease::Lease`]. Dropping it does not release it.
#[derive(Debug)]
#[must_use = "a lease is held until it is released or expires"]
pub struct Lease(lease::Lease);

impl Lease {
    /// Its number: greater than those of all who held the node before.
    pub fn token(&self) -> i64 {
        self.0.token()
    }

    /// The node.
    pub fn target(&self) -> &Target {
        self.0.target()
    }

    /// Who holds it.
    pub fn owner(&self) -> &str {
        self.0.owner()
    }

    /// Since when, by the database's clock.
    pub fn acquired_at(&self) -> SystemTime {
        self.0.acquired_at()
    }

    /// Until when, by the database's clock, as far as this handle knows.
    pub fn expires_at(&self) -> SystemTime {
        self.0.expires_at()
    }

    /// For how long it is valid after each renewal.
    pub fn ttl(&self) -> Duration {
        self.0.ttl()
    }

    /// All of it.
    pub fn info(&self) -> &LeaseInfo {
        self.0.info()
    }

    /// See [`crate::lease::Lease::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&mut self) -> Result<()> {
        wait_for(self.0.renew())
    }

    /// See [`crate::lease::Lease::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<bool> {
        wait_for(self.0.release())
    }

    /// See [`crate::lease::Lease::check_in`].
    ///
    /// # Errors
    /// As there.
    pub fn check_in(&self, tx: &mut Transaction) -> Result<()> {
        wait_for(self.0.check_in(tx.inner()))
    }

    /// Keeps it: it is renewed in the background, until what comes back is dropped.
    ///
    /// # Panics
    /// If this process cannot start a thread for that.
    pub fn keep(self) -> KeptLease {
        wait_for(async { KeptLease(self.0.keep()) })
    }
}

/// Blocking twin of [`crate::lease::KeptLease`]. Dropping it releases the lease, in the background.
#[derive(Debug)]
#[must_use = "dropping it releases the lease"]
pub struct KeptLease(lease::KeptLease);

impl KeptLease {
    /// The number of the lease.
    pub fn token(&self) -> i64 {
        self.0.lease().token()
    }

    /// The lease as it was when it was kept.
    pub fn info(&self) -> &LeaseInfo {
        self.0.lease().info()
    }

    /// Until when it is held if nobody renews it any more, by the database's clock.
    pub fn expires_at(&self) -> SystemTime {
        self.0.expires_at()
    }

    /// See [`crate::lease::Lease::check_in`].
    ///
    /// # Errors
    /// As there.
    pub fn check_in(&self, tx: &mut Transaction) -> Result<()> {
        wait_for(self.0.lease().check_in(tx.inner()))
    }

    /// Blocks until the lease is lost, at most `within`: then `None`.
    pub fn lost(&self, within: Duration) -> Option<Error> {
        wait_for(async { tokio::time::timeout(within, self.0.lost()).await.ok() })
    }

    /// See [`crate::lease::KeptLease::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<bool> {
        wait_for(self.0.release())
    }

    /// See [`crate::lease::KeptLease::leave`].
    pub fn leave(self) -> Lease {
        Lease(self.0.leave())
    }
}
