//! A lease, as whoever holds it has it.

use super::schema::SCHEMA;
use super::{LeaseGuard, LeaseInfo, Leases};
use crate::database::{AnyTransaction, Driver, time_from_ms};
use crate::error::Result;
use crate::target::Target;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A lease that was held when it was last looked at. **Dropping it does not release it**: a request of a web server
/// ends, and the edit goes on. [`Leases::resume`] brings it back by its [token](Self::token).
#[derive(Debug)]
#[must_use = "a lease is held until it is released or expires"]
pub struct Lease {
    pub(super) leases: Leases,
    pub(super) info: LeaseInfo,
    pub(super) ttl: Duration,
    /// By our own clock that only goes forward: not later than its end by the database's.
    pub(super) held_until: Instant,
}

impl Lease {
    /// Its number: greater than those of all who held the node before.
    pub fn token(&self) -> i64 {
        self.info.token
    }

    /// The node.
    pub fn target(&self) -> &Target {
        &self.info.target
    }

    /// Who holds it.
    pub fn owner(&self) -> &str {
        &self.info.owner
    }

    /// Since when, by the database's clock.
    pub fn acquired_at(&self) -> SystemTime {
        self.info.acquired
    }

    /// Until when, by the database's clock, as far as this handle knows.
    pub fn expires_at(&self) -> SystemTime {
        self.info.expires
    }

    /// For how long it is valid after each renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// All of it.
    pub fn info(&self) -> &LeaseInfo {
        &self.info
    }

    /// Makes it valid for its whole time again, from now on. Fails with [`is_lost`](crate::Error::is_lost) if it is not
    /// held any more ([`lost_lease`](crate::Error::lost_lease) tells why). After other errors it may or may not be
    /// renewed.
    ///
    /// # Cancel safety
    /// Dropped, it is renewed all the same, but this handle does not know.
    pub async fn renew(&mut self) -> Result<()> {
        let asked = Instant::now();
        let info = self.info.clone();
        let renewed = self.leases.run_to_end(|leases| async move {
            match leases.extend_row(info.token).await? {
                Some(expires) => Ok(time_from_ms(expires)),
                None => Err(leases.find_loss(info.token, Some(&info)).await),
            }
        });
        self.info.expires = renewed.await?;
        self.held_until = asked + self.ttl;
        Ok(())
    }

    /// Releases it: `false` if it was not held any more. **Waits for a transaction that has
    /// [checked](Self::check_in) it**, so commit that first. If the database fails, it may or may not be released, and
    /// [`Leases::release`] can be called with its token.
    ///
    /// # Cancel safety
    /// Dropped, it is released all the same.
    pub async fn release(self) -> Result<bool> {
        self.leases.release(self.info.token).await
    }

    /// Makes sure, in the caller's own transaction, that the lease is still held, and that nobody ends it
    /// before the transaction ends: a release, a forced one too, waits for that, and an acquire finds it
    /// held even if its time is over by then. So what the transaction writes was written under the lease.
    ///
    /// On MySQL and MariaDB a renewal waits as well; keep the transaction shorter than the lease.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Target, database::Database, lease::{LeaseRequest, Leases}};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let url = format!("sqlite:{}", directory.path().join("app.db").display());
    /// # let database = Database::connect(&url).await?;
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
    /// [`is_lost`](crate::Error::is_lost), and [`lost_lease`](crate::Error::lost_lease) tells why: roll the transaction
    /// back, and soon (at REPEATABLE READ on MySQL and MariaDB it keeps others from acquiring).
    pub async fn check_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        self.leases.check(tx, self.info.token, Some(&self.info)).await
    }

    /// Keeps it: a task renews it every third of its time, until the guard is dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn keep(self) -> LeaseGuard {
        LeaseGuard::new(self)
    }
}

impl Leases {
    /// Renews a lease; returns until when, or None if it is not held.
    async fn extend_row(&self, token: i64) -> Result<Option<i64>> {
        const DOING: &str = "renew a lease";
        let (database, driver) = (self.database(), self.database().driver());
        let now = driver.now_ms();
        let update = |expires: String| {
            format!(
                "UPDATE hier_leases SET expires_ms = {expires} WHERE token = ? AND expires_ms > {now}"
            )
        };
        let token = [token.into()];
        if driver == Driver::Mysql {
            // It tells the number that the statement names so, without another question.
            let sql = update(format!("LAST_INSERT_ID({now} + ttl_ms)"));
            let done = database.execute(SCHEMA.failed(DOING), &sql, &token).await?;
            return Ok((done.rows > 0).then_some(done.last_insert_id));
        }
        let sql = update(format!("{now} + ttl_ms")) + " RETURNING expires_ms";
        let rows = database.fetch(SCHEMA.failed(DOING), &sql, &token).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?)
    }
}
