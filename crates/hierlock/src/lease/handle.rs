//! The handle of a held lease.

use super::schema::SCHEMA;
use super::{LeaseGuard, LeaseInfo, Leases};
use crate::database::{AnyTransaction, Driver, time_from_ms};
use crate::{Result, Target};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A lease that was held at the last call. **Dropping it does not release the lease**: a request of a web server ends, and
/// the edit continues. [`Leases::resume`] returns a handle again by the [token](Self::token).
#[derive(Debug)]
#[must_use = "a lease is held until it is released or expires"]
pub struct Lease {
    pub(super) leases: Leases,
    pub(super) info: LeaseInfo,
    pub(super) ttl: Duration,
    /// The end by the local monotonic clock: not later than the end by the database's clock.
    pub(super) held_until: Instant,
}

impl Lease {
    getters! { self:
        /// Returns the token, which is greater than the tokens of all earlier leases of the node.
        token -> i64 = self.info.token;
        /// Returns the node.
        target -> &Target = &self.info.target;
        /// Returns the owner.
        owner -> &str = &self.info.owner;
        /// Returns the time of the acquire, by the database's clock.
        acquired_at -> SystemTime = self.info.acquired;
        /// Returns the end of the lease by the database's clock, as far as this handle knows.
        expires_at -> SystemTime = self.info.expires;
        /// Returns how long the lease is valid after each renewal.
        ttl -> Duration = self.ttl;
        /// Returns all data of the lease.
        info -> &LeaseInfo = &self.info;
    }

    /// Extends the lease to its whole ttl from now on. Fails with [`is_lost`](crate::Error::is_lost) if it is not held any
    /// more ([`lost_lease`](crate::Error::lost_lease) returns the reason). After other errors it may or may not be renewed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease is renewed all the same, but [`expires_at`](Self::expires_at) is not updated.
    pub async fn renew(&mut self) -> Result<()> {
        let sent_at = Instant::now();
        let (leases, info) = (self.leases.clone(), self.info.clone());
        let renewed = self.leases.database.run_to_end(|_| async move {
            match leases.extend_row(info.token).await? {
                Some(expires) => Ok(time_from_ms(expires)),
                None => Err(leases.find_loss(info.token, Some(&info)).await),
            }
        });
        self.info.expires = renewed.await?;
        self.held_until = sent_at + self.ttl;
        Ok(())
    }

    /// Releases the lease. Returns `false` if it was not held any more. **Waits for a transaction that has
    /// [checked](Self::check_in) it**, so commit that first. If the database fails, the lease may or may not be released,
    /// and [`Leases::release`] can be called with its token.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease is released all the same.
    pub async fn release(self) -> Result<bool> {
        self.leases.release(self.info.token).await
    }

    /// Checks, in the caller's transaction, that the lease is still held, and prevents its end until the transaction ends:
    /// a release, even a forced one, waits for the transaction, and an acquire finds the lease held even if it has expired
    /// by then. So all writes of the transaction happen under the lease.
    ///
    /// On MySQL and MariaDB a renewal waits as well; keep the transaction shorter than the lease.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Target, database::Database, lease::{LeaseRequest, Leases}};
    /// # let database = Database::connect("sqlite::memory:").await?;
    /// # let leases = Leases::new(database.clone());
    /// # leases.provision().await?;
    /// let lease = leases.acquire(LeaseRequest::new(Target::user("u1")?, "ada")).await?;
    /// leases.force_release(lease.token(), "root", "she is on holiday").await?;
    ///
    /// let mut tx = database.begin().await?;
    /// let error = lease.check_in(&mut tx).await.unwrap_err();
    /// assert!(error.is_lost() && error.to_string().contains("root ended it"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost), and [`lost_lease`](crate::Error::lost_lease) returns the reason: roll the
    /// transaction back soon (at REPEATABLE READ on MySQL and MariaDB it blocks acquires of others).
    pub async fn check_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        self.leases.check(tx, self.info.token, Some(&self.info)).await
    }

    /// Starts a task that renews the lease after each third of its ttl, until the guard is dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn keep(self) -> LeaseGuard {
        LeaseGuard::new(self)
    }
}

impl Leases {
    /// Renews a lease and returns its new end in milliseconds, or `None` if it is not held.
    async fn extend_row(&self, token: i64) -> Result<Option<i64>> {
        const OPERATION: &str = "renew a lease";
        let (database, driver) = (&self.database, self.database.driver());
        let now = driver.now_ms();
        let update = |expires: String| {
            format!(
                "UPDATE hier_leases SET expires_ms = {expires} WHERE token = ? AND expires_ms > {now}"
            )
        };
        let token = [token.into()];
        if driver == Driver::Mysql {
            // The argument of LAST_INSERT_ID is returned with the result, without another round trip.
            let sql = update(format!("LAST_INSERT_ID({now} + ttl_ms)"));
            let done = database.execute(SCHEMA.failed(OPERATION), &sql, &token).await?;
            return Ok((done.rows > 0).then_some(done.last_insert_id));
        }
        let sql = update(format!("{now} + ttl_ms")) + " RETURNING expires_ms";
        let rows = database.fetch(SCHEMA.failed(OPERATION), &sql, &token).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?)
    }
}
