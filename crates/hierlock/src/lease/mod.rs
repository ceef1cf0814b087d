//! Leases: edit locks that outlive a transaction.
//!
//! Somebody opens a form, edits for minutes, and saves: no transaction can stay open for so long. A lease
//! is a row that says who edits what until when. A lease on a node excludes those of other owners on the
//! node itself, above it and below it.
//!
//! ```text
//!   Leases ──acquire(LeaseRequest)──► Lease ──keep──► KeptLease: a task renews it
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
//! # let file = directory.path().join("app.db");
//! # let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
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
mod error;
mod filter;
mod held;
mod info;
mod kept;
mod lost;
mod node;
mod request;
mod schema;
mod slots;
mod time;

pub(crate) use error::LeaseError;
pub use error::LostLease;
pub use filter::LeaseFilter;
pub use held::Lease;
pub use info::{ForcedRelease, LeaseInfo};
pub use kept::KeptLease;
pub use request::LeaseRequest;
pub use time::utc;

use crate::database::{AnyTransaction, Database, DatabaseConnection, diagnosed};
use crate::error::{Error, Result};
use crate::handover::Handover;
use crate::hierarchy::Hierarchy;
use lost::Known;
pub(crate) use schema::SCHEMA;
use slots::Scheme;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The leases of a database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Leases(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    hierarchy: Hierarchy,
    /// How an acquire locks; nothing where a writer is alone.
    scheme: Option<Scheme>,
}

impl Leases {
    /// Leases in this database, or in that of a pool, on the default tree.
    pub fn new(database: impl Into<Database>) -> Self {
        Self::on(database.into(), Hierarchy::default())
    }

    /// On another tree. Everyone who shares the tables shares it.
    #[must_use]
    pub fn with_hierarchy(self, hierarchy: Hierarchy) -> Self {
        Self::on(self.0.database.clone(), hierarchy)
    }

    fn on(database: Database, hierarchy: Hierarchy) -> Self {
        let scheme = slots::scheme(database.driver(), &hierarchy);
        Self(Arc::new(Inner { database, hierarchy, scheme }))
    }

    fn database(&self) -> &Database {
        &self.0.database
    }

    fn scheme(&self) -> Option<&Scheme> {
        self.0.scheme.as_ref()
    }

    /// Makes the tables if they are not there yet, and upgrades those of an older release. Several may do so at once.
    ///
    /// # Errors
    /// [`is_newer_schema`](Error::is_newer_schema): a newer release has upgraded them. What the database says.
    pub async fn provision(&self) -> Result<()> {
        SCHEMA.provision(self.database()).await
    }

    /// What [`provision`](Self::provision) does, for a person to run.
    pub fn script(&self) -> String {
        SCHEMA.script(self.database().driver())
    }

    /// Acquires a lease, if nobody else has one on the node, above it or below it. Leases of the same
    /// owner do not exclude each other.
    ///
    /// # Errors
    /// [`is_held`](Error::is_held): somebody else has one, and [`lease_holder`](Error::lease_holder) tells
    /// who. [`is_usage`](Error::is_usage): the request is wrong.
    /// [`is_not_provisioned`](Error::is_not_provisioned): the tables are missing. If the connection ends during
    /// COMMIT, a task takes back what may have been gained: at once, or when the database is there again.
    ///
    /// # Cancel safety
    /// Dropped at any point, it leaves no lease behind: a task finishes what is under way and gives back
    /// what was gained.
    pub async fn acquire(&self, request: LeaseRequest) -> Result<Lease> {
        request.check(&self.0.hierarchy)?;
        let leases = self.clone();
        let tasks = self.database().tasks();
        let acquire = |interest| leases.acquire_for(request, interest);
        Handover::new(Handle::current(), tasks, acquire).await
    }

    /// What is known of a lease that is held.
    ///
    /// # Errors
    /// What the database says; that there is none is no error.
    pub async fn find(&self, token: i64) -> Result<Option<LeaseInfo>> {
        Ok(self.look_up(token).await?.map(|lease| lease.info))
    }

    /// A lease by its token, to go on with: in another request, or another process. **Tokens are no
    /// secrets**: compare its [owner](Lease::owner) with whoever asks.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost): it is no longer held, and [`lost_lease`](Error::lost_lease) tells why.
    pub async fn resume(&self, token: i64) -> Result<Lease> {
        match self.look_up(token).await? {
            Some(lease) => Ok(lease),
            None => Err(self.lost(Known::Token(token)).await),
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
        let rows = self.database().fetch(&sql, &[token.into()]).await;
        let rows = SCHEMA.checked(self.database(), "look for a lease", rows).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let ms = |column| row.int(column).map(|ms| Duration::from_millis(ms.max(0) as u64));
        let (ttl, left) = (ms(info::FURTHER)?, ms(info::FURTHER + 1)?);
        Ok(Some(Lease::new(self.clone(), LeaseInfo::read(row)?, ttl, asked + left)))
    }

    /// [`Lease::check_in`] for whoever has only the token.
    ///
    /// # Errors
    /// The same.
    pub async fn check_token_in(&self, tx: &mut impl AnyTransaction, token: i64) -> Result<()> {
        self.check(&mut tx.connection(), &Known::Token(token)).await
    }

    async fn check(&self, connection: &mut DatabaseConnection<'_>, known: &Known) -> Result<()> {
        diagnosed(self.database(), lost::check(connection, known).await).await
    }

    /// Releases a lease by its token: `false` if it was not held any more. Waits for a transaction that
    /// has checked it.
    ///
    /// # Errors
    /// What the database says. It may or may not be released then; this can be asked again.
    ///
    /// # Cancel safety
    /// Dropped, it is released all the same.
    pub async fn release(&self, token: i64) -> Result<bool> {
        let leases = self.clone();
        self.to_its_end(async move { leases.release_whole(token).await }).await
    }

    async fn release_whole(&self, token: i64) -> Result<bool> {
        let now = self.database().driver().now_ms();
        let sql = format!("DELETE FROM hier_leases WHERE token = ? AND expires_ms > {now}");
        let done = self.database().execute(&sql, &[token.into()]).await;
        Ok(SCHEMA.checked(self.database(), "release a lease", done).await?.rows > 0)
    }

    /// What to tell whoever thought to hold a lease.
    async fn lost(&self, known: Known) -> Error {
        let cause = self.database().run(|tx| {
            let known = known.clone();
            Box::pin(async move { lost::cause(&mut tx.connection(), &known, "").await })
        });
        cause.await.map_or_else(|error| error, |cause| known.lost(cause))
    }

    /// Work that a task finishes if the caller goes away: no statement is left half done on a connection.
    async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        Handover::new(Handle::current(), self.database().tasks(), |_| work).await
    }
}
