//! The errors of leases, the check whether a lease is held, and the reason if it is not.

use super::schema::SCHEMA;
use super::{LeaseInfo, Leases, utc};
use crate::database::{
    AnyTransaction, DatabaseConnection, LockWaitPolicy, RowLock, Transaction, diagnose_schema,
    time_from_ms,
};
use crate::error::{Error, ErrorKind, Result};
use crate::target::Target;
use std::time::{Duration, SystemTime};

/// Mirrors `lease`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("`{wanted}` is not free: {holder}{}", expired_clause(holder))]
    Held { wanted: Target, holder: Box<LeaseInfo> },
    #[error("lease {token}{} is lost: {cause}", target_clause(target))]
    Lost { token: i64, target: Option<Target>, cause: LeaseLoss },
    #[error("the {what} of a lease must have {rule}")]
    Text { what: &'static str, rule: &'static str },
    #[error("the ttl of a lease must be 1 ms to 10 years, not {given:?}")]
    Ttl { given: Duration },
    #[error("`{}` cannot be leased: there is a NUL character in it", target.to_string().escape_debug())]
    Nul { target: Target },
}

impl LeaseError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Held { .. } => ErrorKind::Held,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::Text { .. } | Self::Ttl { .. } | Self::Nul { .. } => ErrorKind::Usage,
        }
    }
}

/// Returns the text that explains why an expired lease still conflicts.
fn expired_clause(holder: &LeaseInfo) -> &'static str {
    if holder.is_expired {
        " (it has expired, but a transaction that has checked it is still open)"
    } else {
        ""
    }
}

fn target_clause(target: &Option<Target>) -> String {
    target.as_ref().map(|target| format!(" of `{target}`")).unwrap_or_default()
}

/// Why a lease is no longer held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseLoss {
    /// A forced release has ended the lease.
    #[error("{actor} ended it at {}: {why}", utc(*at))]
    Forced {
        /// The person or program that ended the lease.
        actor: String,
        /// The reason.
        why: String,
        /// The time of the release, by the database's clock.
        at: SystemTime,
    },
    /// The lease was not renewed in time.
    #[error("it expired at {}", utc(*at))]
    Expired {
        /// The end of the lease, by the database's clock.
        at: SystemTime,
    },
    /// The lease was released before it expired.
    #[error("it was released")]
    Released,
    /// There is no row: the lease was released, expired and was deleted, or never existed.
    #[error("no lease with this token exists")]
    Gone,
    /// The lease could not be renewed before its end, and its state in the database is unknown.
    #[error("it could not be renewed before it expired ({why})")]
    NotRenewed {
        /// The last error.
        why: String,
    },
}

/// Returns the error for a lost lease. `known` is the data of the lease from before its loss.
pub(super) fn lost(token: i64, known: Option<&LeaseInfo>, cause: LeaseLoss) -> Error {
    let target = known.map(|lease| lease.target.clone());
    LeaseError::Lost { token, target, cause }.into()
}

impl Leases {
    /// Checks that a lease is held, and locks its row until the transaction ends.
    pub(super) async fn check(
        &self,
        tx: &mut impl AnyTransaction,
        token: i64,
        known: Option<&LeaseInfo>,
    ) -> Result<()> {
        let mut connection = tx.connection();
        let check = async {
            let driver = connection.driver();
            // A shared lock, so that several transactions can check the lease. A plain read in the caller's transaction may
            // return an old snapshot.
            let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Shared, LockWaitPolicy::Wait));
            let sql = format!(
                "SELECT token FROM hier_leases WHERE token = ? AND expires_ms > {now}{lock}"
            );
            let held = connection.fetch(&sql, [token.into()]).await;
            if held.map_err(SCHEMA.failed("check a lease"))?.is_empty() {
                let cause = find_cause(&mut connection, token, known, &lock).await?;
                return Err(lost(token, known, cause));
            }
            Ok(())
        };
        diagnose_schema(&self.database, check.await).await
    }

    /// Returns the error for a lost lease, with the reason that the database has.
    pub(super) async fn find_loss(&self, token: i64, known: Option<&LeaseInfo>) -> Error {
        let find = async |mut tx: Transaction, _| {
            (find_cause(&mut tx.connection(), token, known, "").await, tx)
        };
        let cause = self.database.run((SCHEMA, ""), find).await;
        cause.map_or_else(|error| error, |cause| lost(token, known, cause))
    }
}

/// Returns why a lease is not held. `lock` is for transactions in which plain reads return an old snapshot.
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
