//! Leases: edit locks that outlive a transaction.
//!
//! A user opens a form, edits for minutes, and saves: no transaction can stay open for so long. A lease is a row with a
//! node, its owner, and an end time. A lease on a node excludes leases of other owners on the node itself, above it and
//! below it.
//!
//! ```text
//!   Leases ──acquire(LeaseRequest)──► Lease ──keep──► LeaseGuard: a task renews it
//!     │                                 │ check_in(&mut tx): fails if the lease is lost
//!     │ find, resume, list, release_session, release_owner, force_release, audit, sweep
//!     ▼
//!   hier_leases          one row per lease; its number is the token
//!   hier_lease_slots     locked during an acquire, in the order of a lock plan;
//!                        on PostgreSQL advisory keys, on SQLite nothing
//!   hier_lease_audit     forced releases: actor, lease and reason
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! # use hierlock::Target;
//! # use hierlock::database::Database;
//! use hierlock::lease::{LeaseRequest, Leases};
//!
//! # let database = Database::connect("sqlite::memory:").await?;
//! let leases = Leases::new(database.clone());
//! leases.provision().await?;
//!
//! let account = Target::account("u1", "a1")?;
//! let lease = leases.acquire(LeaseRequest::new(account, "ada").reason("edits the address")).await?;
//!
//! let user = LeaseRequest::new(Target::user("u1")?, "bob");
//! let error = leases.acquire(user).await.unwrap_err();
//! assert!(error.is_held() && error.lease_holder().unwrap().owner == "ada");
//!
//! let mut tx = database.begin().await?;
//! lease.check_in(&mut tx).await?; // fails if the lease is lost
//! // … the write …
//! tx.commit().await?;
//! lease.release().await?;
//! # Ok(()) }
//! ```

mod acquire;
mod admin;
mod guard;
mod handle;
mod info;
mod loss;
mod node;
mod request;
mod schema;
#[cfg(feature = "_server")]
mod slots;

pub use admin::LeaseFilter;
pub use guard::LeaseGuard;
pub use handle::Lease;
pub use info::{ForcedRelease, LeaseInfo, utc};
pub(crate) use loss::LeaseError;
pub use loss::LeaseLoss;
pub use request::LeaseRequest;

use crate::database::{AnyTransaction, Database};
use crate::{Hierarchy, Result};
pub(crate) use schema::SCHEMA;
use std::time::Duration;
use tokio::time::Instant;

/// The leases of a database. Clones share its connections.
///
/// # Cancel safety
/// If a future that renews or ends leases is dropped, a task finishes it. If such a call fails, its effect may or may not
/// have happened, and it can be called again.
#[derive(Clone, Debug)]
pub struct Leases {
    database: Database,
    hierarchy: Hierarchy,
}

impl Leases {
    /// Returns the leases of a database or of the program's pool, on the default tree.
    pub fn new(database: impl Into<Database>) -> Self {
        Self { database: database.into(), hierarchy: Hierarchy::default() }
    }

    /// Sets another tree. All programs that share the tables must have the same tree.
    #[must_use]
    pub fn with_hierarchy(self, hierarchy: Hierarchy) -> Self {
        Self { hierarchy, ..self }
    }

    /// Creates the tables if they do not exist, and upgrades those of an older release. Concurrent calls are safe. Fails
    /// with [`is_newer_schema`](crate::Error::is_newer_schema) if a newer release has upgraded the tables.
    pub async fn provision(&self) -> Result<()> {
        SCHEMA.provision(&self.database).await
    }

    /// Returns the SQL of [`provision`](Self::provision), for a person to run.
    pub fn script(&self) -> String {
        SCHEMA.script(self.database.driver())
    }

    /// Acquires a lease, if no other owner has one on the node, above it or below it. Leases of the same owner do not
    /// exclude each other.
    ///
    /// # Errors
    /// [`is_held`](crate::Error::is_held): another owner has a lease, which [`lease_holder`](crate::Error::lease_holder)
    /// returns. [`is_usage`](crate::Error::is_usage): the request is invalid.
    /// [`is_not_provisioned`](crate::Error::is_not_provisioned): the tables are missing. If the connection ends during
    /// COMMIT, a task deletes the lease in case it was committed: at once, or when the database can be reached again.
    ///
    /// # Cancel safety
    /// If the future is dropped, no lease is left: a task releases a lease that was acquired meanwhile.
    pub async fn acquire(&self, request: LeaseRequest) -> Result<Lease> {
        request.check(&self.hierarchy)?;
        let leases = self.clone();
        self.database.run_to_end(|cancellation| leases.acquire_for(request, cancellation)).await
    }

    /// Returns the data of a lease, or `None` if it is not held.
    pub async fn find(&self, token: i64) -> Result<Option<LeaseInfo>> {
        Ok(self.look_up(token).await?.map(|lease| lease.info))
    }

    /// Returns the handle of a lease by its token, for use in another request or process. **Tokens are not secret**:
    /// compare the [owner](Lease::owner) with the current user. Fails with [`is_lost`](crate::Error::is_lost) if the lease
    /// is not held any more, and [`lost_lease`](crate::Error::lost_lease) returns the reason.
    pub async fn resume(&self, token: i64) -> Result<Lease> {
        match self.look_up(token).await? {
            Some(lease) => Ok(lease),
            None => Err(self.find_loss(token, None).await),
        }
    }

    async fn look_up(&self, token: i64) -> Result<Option<Lease>> {
        let driver = self.database.driver();
        let now = driver.now_ms();
        let sql = format!(
            "SELECT {}, ttl_ms, {} FROM hier_leases WHERE token = ? AND expires_ms > {now}",
            info::columns(driver, now),
            driver.as_int(&format!("expires_ms - {now}"))
        );
        let sent_at = Instant::now();
        let token = [token.into()];
        let rows = self.database.fetch(SCHEMA.failed("look for a lease"), &sql, &token).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ms = |column| row.int(column).map(|ms| Duration::from_millis(ms.max(0) as u64));
        let (ttl, left) = (ms(info::NEXT_COLUMN)?, ms(info::NEXT_COLUMN + 1)?);
        let (leases, info) = (self.clone(), LeaseInfo::read(row)?);
        Ok(Some(Lease { leases, info, ttl, held_until: sent_at + left }))
    }

    /// Does the same as [`Lease::check_in`], by the token.
    pub async fn check_token_in(&self, tx: &mut impl AnyTransaction, token: i64) -> Result<()> {
        self.check(tx, token, None).await
    }

    /// Releases a lease by its token. Returns `false` if it was not held any more. Waits for a transaction that has checked
    /// the lease.
    pub async fn release(&self, token: i64) -> Result<bool> {
        let leases = self.clone();
        self.database.run_to_end(|_| async move { leases.delete_row(token).await }).await
    }

    async fn delete_row(&self, token: i64) -> Result<bool> {
        let now = self.database.driver().now_ms();
        let sql = format!("DELETE FROM hier_leases WHERE token = ? AND expires_ms > {now}");
        let token = [token.into()];
        let done = self.database.execute(SCHEMA.failed("release a lease"), &sql, &token).await?;
        Ok(done.rows > 0)
    }
}
