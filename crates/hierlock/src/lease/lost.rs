//! Is a lease still held, and if not, what has become of it?

use super::error::{LeaseError, LostLease};
use super::info::LeaseInfo;
use super::schema::SCHEMA;
use super::time;
use crate::database::{Busy, DatabaseConnection, RowLock};
use crate::error::{Error, Result};
use std::time::SystemTime;

/// What is known of a lease before the database is asked.
#[derive(Clone, Debug)]
pub(super) enum Known {
    Token(i64),
    Info(LeaseInfo),
}

impl Known {
    pub(super) fn token(&self) -> i64 {
        match self {
            Known::Token(token) => *token,
            Known::Info(info) => info.token,
        }
    }

    pub(super) fn lost(&self, cause: LostLease) -> Error {
        let target = match self {
            Known::Token(_) => None,
            Known::Info(info) => Some(info.target.clone()),
        };
        LeaseError::Lost { token: self.token(), target, cause }.into()
    }

    fn expires(&self) -> Option<SystemTime> {
        match self {
            Known::Token(_) => None,
            Known::Info(info) => Some(info.expires),
        }
    }
}

/// Makes sure that it is held, and stays so until the transaction ends.
pub(super) async fn check(connection: &mut DatabaseConnection<'_>, known: &Known) -> Result<()> {
    let driver = connection.driver();
    // Shared, so that several transactions can check it; a plain read may be old in a caller's transaction.
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Shared, Busy::Wait));
    let held =
        format!("SELECT token FROM hier_leases WHERE token = ? AND expires_ms > {now}{lock}");
    let held = connection.fetch(&held, [known.token().into()]).await;
    match held.map_err(SCHEMA.failed("check a lease"))?.is_empty() {
        false => Ok(()),
        true => Err(known.lost(cause(connection, known, &lock).await?)),
    }
}

/// What has become of a lease that is not held. `lock` is for transactions in which plain reads are old.
pub(super) async fn cause(
    connection: &mut DatabaseConnection<'_>,
    known: &Known,
    lock: &str,
) -> Result<LostLease> {
    let doing = "look for a lost lease";
    let token = || [known.token().into()];
    let forced =
        format!("SELECT actor, why, released_ms FROM hier_lease_audit WHERE token = ?{lock}");
    let forced = connection.fetch(&forced, token()).await.map_err(SCHEMA.failed(doing))?;
    if let Some(row) = forced.first() {
        let (actor, why, at) = (row.text(0)?, row.text(1)?, time::of_ms(row.int(2)?));
        return Ok(LostLease::Forced { actor, why, at });
    }
    let expired = format!("SELECT expires_ms FROM hier_leases WHERE token = ?{lock}");
    let expired = connection.fetch(&expired, token()).await.map_err(SCHEMA.failed(doing))?;
    if let Some(row) = expired.first() {
        return Ok(LostLease::Expired { at: time::of_ms(row.int(0)?) });
    }
    let Some(expires) = known.expires() else { return Ok(LostLease::Gone) };
    let now = connection.fetch(&format!("SELECT {}", connection.driver().now_ms()), []).await;
    let now = now.map_err(SCHEMA.failed(doing))?;
    Ok(match now.first().map(|row| row.int(0)).transpose()? {
        Some(now) if time::of_ms(now) < expires => LostLease::Released,
        _ => LostLease::Expired { at: expires },
    })
}
