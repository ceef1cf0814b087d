//! Questions about errors of the toolbox. Without it the answer is no.

use super::Error;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
use super::Kind;
#[cfg(all(feature = "toolbox", feature = "_driver"))]
use crate::{
    lease::{LeaseError, LeaseInfo, LostLease},
    optimistic::OptimisticError,
    queue::QueueError,
};

#[cfg(all(feature = "toolbox", feature = "_driver"))]
impl Error {
    /// The row is at another [version](crate::optimistic) than expected: somebody else changed it.
    pub fn is_stale(&self) -> bool {
        matches!(&*self.0, Kind::Optimistic(OptimisticError::Stale { .. }))
    }

    /// There is no such [row](crate::optimistic).
    pub fn is_missing(&self) -> bool {
        matches!(&*self.0, Kind::Optimistic(OptimisticError::Missing))
    }

    /// Who has a lease there; of several the one that lasts longest.
    pub fn lease_holder(&self) -> Option<&LeaseInfo> {
        match &*self.0 {
            Kind::Lease(LeaseError::Held { holder, .. }) => Some(holder),
            _ => None,
        }
    }

    /// Why a lease is lost.
    pub fn lost_lease(&self) -> Option<&LostLease> {
        match &*self.0 {
            Kind::Lease(LeaseError::Lost { cause, .. }) => Some(cause),
            _ => None,
        }
    }

    pub(super) fn is_row_not_free(&self) -> bool {
        matches!(&*self.0, Kind::Optimistic(OptimisticError::WouldBlock { .. }))
    }

    pub(super) fn is_held_lease(&self) -> bool {
        self.lease_holder().is_some()
    }

    pub(super) fn is_lost_in_toolbox(&self) -> bool {
        self.lost_lease().is_some() || matches!(&*self.0, Kind::Queue(QueueError::Lost { .. }))
    }
}

#[cfg(not(all(feature = "toolbox", feature = "_driver")))]
impl Error {
    /// The row is at another version than expected: somebody else changed it. Only the toolbox says so.
    pub fn is_stale(&self) -> bool {
        false
    }

    pub(super) fn is_row_not_free(&self) -> bool {
        false
    }

    pub(super) fn is_held_lease(&self) -> bool {
        false
    }

    pub(super) fn is_lost_in_toolbox(&self) -> bool {
        false
    }
}

#[cfg(not(feature = "_driver"))]
impl Error {
    pub(super) fn is_not_closed(&self) -> bool {
        false
    }

    pub(super) fn are_tables_missing(&self) -> bool {
        false
    }
}
