//! A lease in the hand of whoever holds it.

use super::{KeptLease, LeaseInfo, Leases};
use crate::database::AnyTransaction;
use crate::error::Result;
use crate::target::Target;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A lease that was held when it was last looked at. **Dropping it does not release it**: a request of a
/// web server ends, and the edit goes on. Its [token](Self::token) brings it back:
/// [`Leases::resume`].
#[derive(Debug)]
#[must_use = "a lease is held until it is released or expires"]
pub struct Lease {
    leases: Leases,
    info: LeaseInfo,
    ttl: Duration,
    /// By our own clock that only goes forward: not later than its end by the database's.
    held_until: Instant,
}

impl Lease {
    /// Its number: greater than those of all who held the node before.
    pub fn token(&self) -> i64 {
        self.info.token
    }

    /// The node.
    pub fn target(&self) -> &Target {
        &self.info.target
    }

    /// Who holds it.
    pub fn owner(&self) -> &str {
        &self.info.owner
    }

    /// Since when, by the database's clock.
    pub fn acquired_at(&self) -> SystemTime {
        self.info.acquired
    }

    /// Until when, by the database's clock, as far as this handle knows.
    pub fn expires_at(&self) -> SystemTime {
        self.info.expires
    }

    /// For how long it is valid after each renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// All of it.
    pub fn info(&self) -> &LeaseInfo {
        &self.info
    }

    /// Makes it valid for its whole time again, from now on.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost): it is no longer held, and [`lost_lease`](crate::Error::lost_lease) tells why.
    pub async fn renew(&mut self) -> Result<()> {
        unimplemented!()
    }

    /// Releases it: `false` if it was not there any more.
    ///
    /// # Errors
    /// What the database says.
    pub async fn release(self) -> Result<bool> {
        unimplemented!()
    }

    /// Makes sure, in the caller's transaction, that it is still held, and that it stays so until the
    /// transaction ends.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost): roll back.
    pub async fn check_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        let _ = (tx, &self.leases, self.held_until);
        unimplemented!()
    }

    /// Keeps it: a task renews it every third of its time, until the guard is dropped.
    pub fn keep(self) -> KeptLease {
        unimplemented!()
    }
}
