//! What can go wrong with a lease.

use super::info::LeaseInfo;
use super::time::utc;
use crate::target::Target;
use std::fmt;
use std::time::SystemTime;

/// Mirrors `lease`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("`{wanted}` is not free: {holder}{}", still(holder))]
    Held { wanted: Target, holder: Box<LeaseInfo> },
    #[error("lease {token}{} is lost: {cause}", of(target))]
    Lost { token: i64, target: Option<Target>, cause: LostLease },
    #[error("the {what} of a lease has {right}")]
    Text { what: &'static str, right: &'static str },
    #[error("a lease is for 1 ms to 10 years, not for {given:?}")]
    Ttl { given: std::time::Duration },
    #[error("`{}` cannot be leased: there is a NUL character in it", target.to_string().escape_debug())]
    Nul { target: Target },
}

impl LeaseError {
    /// Was the request itself wrong?
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, LeaseError::Text { .. } | LeaseError::Ttl { .. } | LeaseError::Nul { .. })
    }
}

/// Why a lease whose time is over is still in the way.
fn still(holder: &LeaseInfo) -> &'static str {
    match holder.is_expired {
        true => " (its time is over, but a transaction that has checked it has not ended)",
        false => "",
    }
}

fn of(target: &Option<Target>) -> String {
    target.as_ref().map(|target| format!(" of `{target}`")).unwrap_or_default()
}

/// Why a lease is no longer held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostLease {
    /// Somebody has ended it for its owner.
    Forced {
        /// Who.
        actor: String,
        /// What for.
        why: String,
        /// When, by the database's clock.
        at: SystemTime,
    },
    /// It was not renewed in time.
    Expired {
        /// When, by the database's clock.
        at: SystemTime,
    },
    /// It was released, in time.
    Released,
    /// It is not there: released, expired and removed, or it has never been.
    Gone,
    /// It could not be renewed before its time was over, and nobody knows what has become of it.
    NotRenewed {
        /// What was in the way.
        why: String,
    },
}

impl fmt::Display for LostLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostLease::Forced { actor, why, at } => {
                write!(f, "{actor} ended it at {}: {why}", utc(*at))
            }
            LostLease::Expired { at } => write!(f, "it expired at {}", utc(*at)),
            LostLease::Released => f.write_str("it was released"),
            LostLease::Gone => f.write_str("there is none of this token, or no longer"),
            LostLease::NotRenewed { why } => {
                write!(f, "it could not be renewed before its time was over ({why})")
            }
        }
    }
}
