//! What can go wrong with a lease.

use super::info::LeaseInfo;
use super::loss::LeaseLoss;
use crate::target::Target;

/// Mirrors `lease`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("`{wanted}` is not free: {holder}{}", still(holder))]
    Held { wanted: Target, holder: Box<LeaseInfo> },
    #[error("lease {token}{} is lost: {cause}", of(target))]
    Lost { token: i64, target: Option<Target>, cause: LeaseLoss },
    #[error("the {what} of a lease has {right}")]
    Text { what: &'static str, right: &'static str },
    #[error("a lease is for 1 ms to 10 years, not for {given:?}")]
    Ttl { given: std::time::Duration },
    #[error("`{}` cannot be leased: there is a NUL character in it", target.to_string().escape_debug())]
    Nul { target: Target },
}

impl LeaseError {
    /// Returns whether the request itself was wrong.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, LeaseError::Text { .. } | LeaseError::Ttl { .. } | LeaseError::Nul { .. })
    }
}

/// Says why a lease whose time is over is still in the way.
fn still(holder: &LeaseInfo) -> &'static str {
    if holder.is_expired {
        " (its time is over, but a transaction that has checked it has not ended)"
    } else {
        ""
    }
}

fn of(target: &Option<Target>) -> String {
    target.as_ref().map(|target| format!(" of `{target}`")).unwrap_or_default()
}
