//! A lease in the hand of whoever holds it.

use super::lost::Known;
use super::schema::SCHEMA;
use super::{KeptLease, LeaseInfo, Leases, time};
use crate::database::{AnyTransaction, Driver};
use crate::error::Result;
use crate::target::Target;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A lease that was held when it was last looked at. **Dropping it does not release it**: a request of a
/// web server ends, and the edit goes on. Its [token](Self::token) brings it back:
/// [`Leases::resume`].
#[derive(Debug)]
#[must_use = "a lease is held until it is released or expires"]
pub struct Lease {
    pub(super) leases: Leases,
    pub(super) info: LeaseInfo,
    ttl: Duration,
    /// By our own clock that only goes forward: not later than its end by the database's.
    pub(super) held_until: Instant,
}

impl Lease {
    pub(super) fn new(leases: Leases, info: LeaseInfo, ttl: Duration, held_until: Instant) -> Self {
        Self { leases, info, ttl, held_until }
    }

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

    /// Makes it valid for its whole time again, from now on.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost): it is no longer held, and
    /// [`lost_lease`](crate::Error::lost_lease) tells why. Anything else: it may or may not be renewed.
    ///
    /// # Cancel safety
    /// Dropped, it is renewed all the same, but this handle does not know.
    pub async fn renew(&mut self) -> Result<()> {
        let asked = Instant::now();
        self.info.expires = self.leases.renew_row(&self.info).await?;
        self.held_until = asked + self.ttl;
        Ok(())
    }

    /// Releases it: `false` if it was not held any more. **Waits for a transaction that has
    /// [checked](Self::check_in) it**, so commit that first.
    ///
    /// # Errors
    /// What the database says. It may or may not be released then: ask again by its token
    /// ([`Leases::release`]).
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
    /// # let file = directory.path().join("app.db");
    /// # let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
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
    /// [`is_lost`](crate::Error::is_lost), and [`lost_lease`](crate::Error::lost_lease) tells why: roll the transaction back, and
    /// soon (at REPEATABLE READ on MySQL and MariaDB it keeps others from acquiring).
    pub async fn check_in(&self, tx: &mut impl AnyTransaction) -> Result<()> {
        self.leases.check(&mut tx.connection(), &Known::Info(self.info.clone())).await
    }

    /// Keeps it: a task renews it every third of its time, until the guard is dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn keep(self) -> KeptLease {
        KeptLease::new(self)
    }
}

impl Leases {
    /// Renews a lease; until when.
    pub(super) async fn renew_row(&self, info: &LeaseInfo) -> Result<SystemTime> {
        let (leases, info) = (self.clone(), info.clone());
        self.to_its_end(async move { leases.renew_whole(info).await }).await
    }

    async fn renew_whole(&self, info: LeaseInfo) -> Result<SystemTime> {
        let driver = self.database().driver();
        let now = driver.now_ms();
        let (begin, end) = match driver {
            // It tells the number that the statement names so, without another question.
            Driver::Mysql => ("LAST_INSERT_ID(", ")"),
            Driver::Postgres | Driver::Sqlite => ("", ""),
        };
        let sql = format!(
            "UPDATE hier_leases SET expires_ms = {begin}{now} + ttl_ms{end} \
             WHERE token = ? AND expires_ms > {now}"
        );
        let token = [info.token.into()];
        let doing = "renew a lease";
        let expires = match driver {
            Driver::Mysql => {
                let done = self.database().execute(&sql, &token).await;
                let done = SCHEMA.checked(self.database(), doing, done).await?;
                (done.rows > 0).then_some(done.last_insert_id)
            }
            Driver::Postgres | Driver::Sqlite => {
                let sql = format!("{sql} RETURNING expires_ms");
                let rows = self.database().fetch(&sql, &token).await;
                let rows = SCHEMA.checked(self.database(), doing, rows).await?;
                rows.first().map(|row| row.int(0)).transpose()?
            }
        };
        match expires {
            Some(expires) => Ok(time::of_ms(expires)),
            None => Err(self.lost(Known::Info(info)).await),
        }
    }
}
