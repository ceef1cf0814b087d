//! Whether a lease is still held, and if not, what has become of it.

use super::error::LeaseError;
use super::info::LeaseInfo;
use super::schema::SCHEMA;
use super::time::utc;
use crate::database::{DatabaseConnection, LockWaitPolicy, RowLock, time_from_ms};
use crate::error::{Error, Result};
use crate::target::Target;
use std::fmt;
use std::time::SystemTime;

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

/// A lease, and what is known of it before the database is asked.
#[derive(Clone, Debug)]
pub(super) struct LeaseRef {
    token: i64,
    known: Option<(Target, SystemTime)>,
}

impl From<i64> for LeaseRef {
    fn from(token: i64) -> Self {
        Self { token, known: None }
    }
}

impl From<&LeaseInfo> for LeaseRef {
    fn from(info: &LeaseInfo) -> Self {
        Self { token: info.token, known: Some((info.target.clone(), info.expires)) }
    }
}

impl LeaseRef {
    pub(super) fn lost(&self, cause: LeaseLoss) -> Error {
        let target = self.known.as_ref().map(|(target, _)| target.clone());
        LeaseError::Lost { token: self.token, target, cause }.into()
    }

    /// Makes sure that it is held, and stays so until the transaction ends.
    pub(super) async fn check(&self, connection: &mut DatabaseConnection<'_>) -> Result<()> {
        let driver = connection.driver();
        // Shared, so that several transactions can check it; a plain read may be old in a caller's transaction.
        let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Shared, LockWaitPolicy::Wait));
        let held =
            format!("SELECT token FROM hier_leases WHERE token = ? AND expires_ms > {now}{lock}");
        let held = connection.fetch(&held, [self.token.into()]).await;
        if held.map_err(SCHEMA.failed("check a lease"))?.is_empty() {
            return Err(self.lost(self.find_cause(connection, &lock).await?));
        }
        Ok(())
    }

    /// Finds out what has become of a lease that is not held. `lock` is for transactions in which plain reads are old.
    pub(super) async fn find_cause(
        &self,
        connection: &mut DatabaseConnection<'_>,
        lock: &str,
    ) -> Result<LeaseLoss> {
        const DOING: &str = "look for a lost lease";
        let token = || [self.token.into()];
        let sql =
            format!("SELECT actor, why, released_ms FROM hier_lease_audit WHERE token = ?{lock}");
        let forced = connection.fetch(&sql, token()).await.map_err(SCHEMA.failed(DOING))?;
        if let Some(row) = forced.first() {
            let (actor, why, at) = (row.text(0)?, row.text(1)?, time_from_ms(row.int(2)?));
            return Ok(LeaseLoss::Forced { actor, why, at });
        }
        let sql = format!("SELECT expires_ms FROM hier_leases WHERE token = ?{lock}");
        let expired = connection.fetch(&sql, token()).await.map_err(SCHEMA.failed(DOING))?;
        if let Some(row) = expired.first() {
            return Ok(LeaseLoss::Expired { at: time_from_ms(row.int(0)?) });
        }
        let Some((_, expires)) = self.known else { return Ok(LeaseLoss::Gone) };
        let now = format!("SELECT {}", connection.driver().now_ms());
        let now = connection.fetch(&now, []).await.map_err(SCHEMA.failed(DOING))?;
        Ok(match now.first().map(|row| row.int(0)).transpose()? {
            Some(now) if time_from_ms(now) < expires => LeaseLoss::Released,
            _ => LeaseLoss::Expired { at: expires },
        })
    }
}
