//! A lease that a task renews.

use super::Lease;
use crate::error::{Error, Result};

/// A lease that is renewed every third of its time. Dropping it stops that and releases the lease, in the
/// background.
#[derive(Debug)]
#[must_use = "dropping it releases the lease"]
pub struct KeptLease {
    lease: Lease,
}

impl KeptLease {
    /// The lease. Its [`expires_at`](Lease::expires_at) is that of the moment when it was kept.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Comes back when it is lost, and says why.
    pub async fn lost(&self) -> Error {
        unimplemented!()
    }

    /// Stops renewing and releases it: `false` if it was not there any more.
    ///
    /// # Errors
    /// What the database says. It is still no longer renewed.
    pub async fn release(self) -> Result<bool> {
        unimplemented!()
    }

    /// Stops renewing; the lease stays until it is released or expires.
    pub fn leave(self) -> Lease {
        unimplemented!()
    }
}
