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
//!   hier_lease_slots     locked for the length of an acquire, in the order of the core's plan
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

mod error;
mod filter;
mod held;
mod info;
mod kept;
mod request;
mod time;

pub(crate) use error::LeaseError;
pub use error::LostLease;
pub use filter::LeaseFilter;
pub use held::Lease;
pub use info::{ForcedRelease, LeaseInfo};
pub use kept::KeptLease;
pub use request::LeaseRequest;
pub use time::utc;

use crate::database::{AnyTransaction, Database};
use crate::error::Result;
use crate::hierarchy::Hierarchy;

/// The leases of a database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Leases {
    database: Database,
    hierarchy: Hierarchy,
}

impl Leases {
    /// Leases in this database, or in that of a pool, on the default tree.
    pub fn new(database: impl Into<Database>) -> Self {
        Self { database: database.into(), hierarchy: Hierarchy::default() }
    }

    /// On another tree.
    #[must_use]
    pub fn with_hierarchy(mut self, hierarchy: Hierarchy) -> Self {
        self.hierarchy = hierarchy;
        self
    }

    /// Makes the tables, if they are not there yet.
    ///
    /// # Errors
    /// What the database says.
    pub async fn provision(&self) -> Result<()> {
        unimplemented!()
    }

    /// What [`provision`](Self::provision) does, for a person to run.
    pub fn script(&self) -> String {
        unimplemented!()
    }

    /// Acquires a lease, if nobody else has one on the node, above it or below it. Leases of the same
    /// owner do not exclude each other.
    ///
    /// # Errors
    /// [`is_held`](crate::Error::is_held): somebody else has one, and
    /// [`lease_holder`](crate::Error::lease_holder) tells who. [`is_usage`](crate::Error::is_usage): the request is wrong.
    /// [`is_not_provisioned`](crate::Error::is_not_provisioned): the tables are missing.
    ///
    /// # Cancel safety
    /// Dropped at any point, it leaves no lease behind: a task finishes what is under way and gives back
    /// what was gained.
    pub async fn acquire(&self, request: LeaseRequest) -> Result<Lease> {
        let _ = request;
        unimplemented!()
    }

    /// What is known of a lease that is live.
    ///
    /// # Errors
    /// What the database says; that there is none is no error.
    pub async fn find(&self, token: i64) -> Result<Option<LeaseInfo>> {
        let _ = token;
        unimplemented!()
    }

    /// A lease by its token, to go on with: in another request, or another process. Tokens are no
    /// secrets: compare its [owner](Lease::owner) with whoever asks.
    ///
    /// # Errors
    /// [`is_lost`](crate::Error::is_lost): it is no longer held.
    pub async fn resume(&self, token: i64) -> Result<Lease> {
        let _ = token;
        unimplemented!()
    }

    /// [`Lease::check_in`] for whoever has only the token.
    ///
    /// # Errors
    /// The same.
    pub async fn check_token_in(&self, tx: &mut impl AnyTransaction, token: i64) -> Result<()> {
        let _ = (tx, token);
        unimplemented!()
    }

    /// Releases a lease by its token: `false` if it was not there any more.
    ///
    /// # Errors
    /// What the database says.
    pub async fn release(&self, token: i64) -> Result<bool> {
        let _ = token;
        unimplemented!()
    }

    /// The leases that a filter lets through, by token.
    ///
    /// # Errors
    /// What the database says.
    pub async fn list(&self, filter: LeaseFilter) -> Result<Vec<LeaseInfo>> {
        let _ = filter;
        unimplemented!()
    }

    /// Releases all leases of a session, at its logout; how many there were.
    ///
    /// # Errors
    /// What the database says.
    pub async fn release_session(&self, session: &str) -> Result<u64> {
        let _ = session;
        unimplemented!()
    }

    /// Releases all leases of an owner, such as those that an earlier login has left; how many there were.
    ///
    /// # Errors
    /// What the database says.
    pub async fn release_owner(&self, owner: &str) -> Result<u64> {
        let _ = owner;
        unimplemented!()
    }

    /// Ends somebody else's lease. Who did it and why is kept in the audit table, and told to the owner at
    /// the next [`renew`](Lease::renew) or [`check_in`](Lease::check_in). Waits for a transaction that has checked the lease.
    /// `None` if there was no such live lease.
    ///
    /// # Errors
    /// [`is_usage`](crate::Error::is_usage): an actor or a reason is needed. What the database says.
    pub async fn force_release(
        &self,
        token: i64,
        actor: &str,
        why: &str,
    ) -> Result<Option<LeaseInfo>> {
        let _ = (token, actor, why);
        unimplemented!()
    }

    /// The last forced releases, the latest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn audit(&self, limit: u32) -> Result<Vec<ForcedRelease>> {
        let _ = limit;
        unimplemented!()
    }

    /// Removes leases whose time is over, except those that a transaction has checked and not ended; how
    /// many. Nothing depends on it but the size of the table.
    ///
    /// # Errors
    /// What the database says.
    pub async fn sweep(&self) -> Result<u64> {
        unimplemented!()
    }
}
