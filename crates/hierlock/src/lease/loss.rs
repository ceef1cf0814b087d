//! What can go wrong with a lease: whether it is still held, and if not, what has become of it.

use super::schema::SCHEMA;
use super::{LeaseInfo, Leases, utc};
use crate::database::{
    AnyTransaction, DatabaseConnection, LockWaitPolicy, RowLock, Transaction, diagnosed,
    time_from_ms,
};
use crate::error::{Error, Result};
use crate::target::Target;
use std::fmt;
use std::time::{Duration, SystemTime};

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
    Ttl { given: Duration },
    #[error("`{}` cannot be leased: there is a NUL character in it", target.to_string().escape_debug())]
    Nul { target: Target },
}

impl LeaseError {
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

/// Why a lease is no longer held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseLoss {
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

impl fmt::Display for LeaseLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseLoss::Forced { actor, why, at } => {
                write!(f, "{actor} ended it at {}: {why}", utc(*at))
            }
            LeaseLoss::Expired { at } => write!(f, "it expired at {}", utc(*at)),
            LeaseLoss::Released => f.write_str("it was released"),
            LeaseLoss::Gone => f.write_str("there is none of this token, or no longer"),
            LeaseLoss::NotRenewed { why } => {
                write!(f, "it could not be renewed before its time was over ({why})")
            }
        }
    }
}

/// The error of whoever thought to hold a lease. `known` is what was known of it before the database was asked.
pub(super) fn lost(token: i64, known: Option<&LeaseInfo>, cause: LeaseLoss) -> Error {
    let target = known.map(|lease| lease.target.clone());
    LeaseError::Lost { token, target, cause }.into()
}

impl Leases {
    /// Makes sure that a lease is held, and stays so until the transaction ends.
    pub(super) async fn check(
        &self,
        tx: &mut impl AnyTransaction,
        token: i64,
        known: Option<&LeaseInfo>,
    ) -> Result<()> {
        diagnosed(self.database(), check(tx, token, known).await).await
    }

    /// Finds out what to tell whoever thought to hold a lease.
    pub(super) async fn find_loss(&self, token: i64, known: Option<&LeaseInfo>) -> Error {
        let find = async |mut tx: Transaction, _| {
            (find_cause(&mut tx.connection(), token, known, "").await, tx)
        };
        let cause = self.database().run((SCHEMA, ""), find).await;
        cause.map_or_else(|error| error, |cause| lost(token, known, cause))
    }
}

async fn check(tx: &mut impl AnyTransaction, token: i64, known: Option<&LeaseInfo>) -> Result<()> {
    let mut connection = tx.connection();
    let driver = connection.driver();
    // Shared, so that several transactions can check it; a plain read may be old in a caller's transaction.
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Shared, LockWaitPolicy::Wait));
    let held =
        format!("SELECT token FROM hier_leases WHERE token = ? AND expires_ms > {now}{lock}");
    let held = connection.fetch(&held, [token.into()]).await;
    if held.map_err(SCHEMA.failed("check a lease"))?.is_empty() {
        return Err(lost(token, known, find_cause(&mut connection, token, known, &lock).await?));
    }
    Ok(())
}

/// Finds out what has become of a lease that is not held. `lock` is for transactions in which plain reads are old.
async fn find_cause(
    connection: &mut DatabaseConnection<'_>,
    token: i64,
    known: Option<&LeaseInfo>,
    lock: &str,
) -> Result<LeaseLoss> {
    let failed = || SCHEMA.failed("look for a lost lease");
    let sql = format!("SELECT actor, why, released_ms FROM hier_lease_audit WHERE token = ?{lock}");
    let forced = connection.fetch(&sql, [token.into()]).await.map_err(failed())?;
    if let Some(row) = forced.first() {
        let (actor, why, at) = (row.text(0)?, row.text(1)?, time_from_ms(row.int(2)?));
        return Ok(LeaseLoss::Forced { actor, why, at });
    }
    let sql = format!("SELECT expires_ms FROM hier_leases WHERE token = ?{lock}");
    let expired = connection.fetch(&sql, [token.into()]).await.map_err(failed())?;
    if let Some(row) = expired.first() {
        return Ok(LeaseLoss::Expired { at: time_from_ms(row.int(0)?) });
    }
    let Some(LeaseInfo { expires, .. }) = known else { return Ok(LeaseLoss::Gone) };
    let now = format!("SELECT {}", connection.driver().now_ms());
    let now = connection.fetch(&now, []).await.map_err(failed())?;
    Ok(match now.first().map(|row| row.int(0)).transpose()? {
        Some(now) if time_from_ms(now) < *expires => LeaseLoss::Released,
        _ => LeaseLoss::Expired { at: *expires },
    })
}
