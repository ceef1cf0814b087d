//! Leases: edit locks that outlive a transaction.
//!
//! Somebody opens a form, edits for minutes, and saves: no transaction can stay open for so long. A lease
//! is a row that says who edits what until when. A lease on a node excludes those of other owners on the
//! node itself, above it and below it.
//!
//! ```text
//!   Leases ──acquire(LeaseRequest)──► Lease ──keep──► LeaseGuard: a task renews it
//!     │                                 │ check_in(&mut tx): the write fails if it is lost
//!     │ find, resume, list, release_session, release_owner, force_release, audit, sweep
//!     ▼
//!   hier_leases          one row a lease; its number is the token
//!   hier_lease_slots     locked for the length of an acquire, in the order of the core's plan;
//!                        on PostgreSQL advisory keys, on SQLite nothing
//!   hier_lease_audit     who ended whose lease, and why
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! # use hierlock::Target;
//! # use hierlock::database::Database;
//! use hierlock::lease::{LeaseRequest, Leases};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", directory.path().join("app.db").display());
//! # let database = Database::connect(&url).await?;
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
//! lease.check_in(&mut tx).await?; // fails if it is no longer hers
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
mod slots;

pub use admin::LeaseFilter;
pub use guard::LeaseGuard;
pub use handle::Lease;
pub use info::{ForcedRelease, LeaseInfo, utc};
pub(crate) use loss::LeaseError;
pub use loss::LeaseLoss;
pub use request::LeaseRequest;

use crate::database::{AnyTransaction, Database};
use crate::error::Result;
use crate::hierarchy::Hierarchy;
pub(crate) use schema::SCHEMA;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The leases of a database. Clones share its connections.
///
/// # Cancel safety
/// What renews or ends leases is finished by a task if its future is dropped. If it fails instead, it may or may not
/// have happened, and can be called again.
#[derive(Clone, Debug)]
pub struct Leases(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    hierarchy: Hierarchy,
    /// The slots that an acquire locks, on a server.
    #[cfg(feature = "_server")]
    slots: Option<crate::sql::Scheme>,
}

impl Leases {
    /// Returns the leases of this database, or of that of a pool, on the default tree.
    pub fn new(database: impl Into<Database>) -> Self {
        Self::on(database.into(), Hierarchy::default())
    }

    /// Sets another tree. Everyone who shares the tables shares it.
    #[must_use]
    pub fn with_hierarchy(self, hierarchy: Hierarchy) -> Self {
        Self::on(self.0.database.clone(), hierarchy)
    }

    fn on(database: Database, hierarchy: Hierarchy) -> Self {
        Self(Arc::new(Inner {
            #[cfg(feature = "_server")]
            slots: slots::scheme(database.driver(), &hierarchy),
            database,
            hierarchy,
        }))
    }

    fn database(&self) -> &Database {
        &self.0.database
    }

    /// Makes the tables if they are not there yet, and upgrades those of an older release. Several may do so at once.
    /// Fails with [`is_newer_schema`](crate::Error::is_newer_schema) if a newer release has upgraded them.
    pub async fn provision(&self) -> Result<()> {
        SCHEMA.provision(self.database()).await
    }

    /// Returns the SQL of [`provision`](Self::provision), for a person to run.
    pub fn script(&self) -> String {
        SCHEMA.script(self.database().driver())
    }

    /// Acquires a lease, if nobody else has one on the node, above it or below it. Leases of the same
    /// owner do not exclude each other.
    ///
    /// # Errors
    /// [`is_held`](crate::Error::is_held): somebody else has one, and [`lease_holder`](crate::Error::lease_holder)
    /// tells who. [`is_usage`](crate::Error::is_usage): the request is wrong.
    /// [`is_not_provisioned`](crate::Error::is_not_provisioned): the tables are missing. If the connection ends during
    /// COMMIT, a task takes back what may have been gained: at once, or when the database is there again.
    ///
    /// # Cancel safety
    /// Dropped at any point, it leaves no lease behind: a task gives back what was gained.
    pub async fn acquire(&self, request: LeaseRequest) -> Result<Lease> {
        request.check(&self.0.hierarchy)?;
        let leases = self.clone();
        self.database().run_to_end(|cancellation| leases.acquire_for(request, cancellation)).await
    }

    /// Returns what is known of a lease, if it is held.
    pub async fn find(&self, token: i64) -> Result<Option<LeaseInfo>> {
        Ok(self.look_up(token).await?.map(|lease| lease.info))
    }

    /// Returns a lease by its token, to go on with it: in another request, or another process. **Tokens are no
    /// secrets**: compare its [owner](Lease::owner) with whoever asks. Fails with [`is_lost`](crate::Error::is_lost) if
    /// it is no longer held, and [`lost_lease`](crate::Error::lost_lease) tells why.
    pub async fn resume(&self, token: i64) -> Result<Lease> {
        match self.look_up(token).await? {
            Some(lease) => Ok(lease),
            None => Err(self.find_loss(token, None).await),
        }
    }

    async fn look_up(&self, token: i64) -> Result<Option<Lease>> {
        let driver = self.database().driver();
        let now = driver.now_ms();
        let sql = format!(
            "SELECT {}, ttl_ms, {} FROM hier_leases WHERE token = ? AND expires_ms > {now}",
            info::columns(driver, now),
            driver.as_int(&format!("expires_ms - {now}"))
        );
        let asked = Instant::now();
        let token = [token.into()];
        let rows = self.database().fetch(SCHEMA.failed("look for a lease"), &sql, &token).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ms = |column| row.int(column).map(|ms| Duration::from_millis(ms.max(0) as u64));
        let (ttl, left) = (ms(info::NEXT_COLUMN)?, ms(info::NEXT_COLUMN + 1)?);
        let (leases, info) = (self.clone(), LeaseInfo::read(row)?);
        Ok(Some(Lease { leases, info, ttl, held_until: asked + left }))
    }

    /// [`Lease::check_in`] for whoever has only the token.
    pub async fn check_token_in(&self, tx: &mut impl AnyTransaction, token: i64) -> Result<()> {
        self.check(tx, token, None).await
    }

    /// Releases a lease by its token: `false` if it was not held any more. Waits for a transaction that checked it.
    pub async fn release(&self, token: i64) -> Result<bool> {
        self.run_to_end(|leases| async move { leases.delete_row(token).await }).await
    }

    async fn delete_row(&self, token: i64) -> Result<bool> {
        let now = self.database().driver().now_ms();
        let sql = format!("DELETE FROM hier_leases WHERE token = ? AND expires_ms > {now}");
        let token = [token.into()];
        let done = self.database().execute(SCHEMA.failed("release a lease"), &sql, &token).await?;
        Ok(done.rows > 0)
    }

    async fn run_to_end<T: Send + 'static, W: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> W,
    ) -> Result<T> {
        self.database().run_to_end(|_| work(self.clone())).await
    }
}
