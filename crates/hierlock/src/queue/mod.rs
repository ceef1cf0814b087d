//! A job queue in a table, for workers that never run the same job at the same time.
//!
//! ```text
//!   caller's transaction ──enqueue_in──► hier_jobs: ready ◄──promote── scheduled ◄──┐
//!                                           │ claim, SKIP LOCKED     lease ended    │
//!                                           ▼                                       │
//!                                        claimed ──fail──► after a pause ───────────┤
//!                                           │                                       │
//!          complete, complete_in: gone ◄────┘              too often: dead ──retry_dead
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::database::Database;
//! use hierlock::queue::{Job, Queue};
//! use std::time::Duration;
//!
//! let mail = Queue::new(Database::connect("sqlite::memory:").await?, "mail")?;
//! mail.provision().await?;
//! mail.enqueue(Job::new("to ada")).await?;
//!
//! for job in mail.claim("w1", 10, Duration::from_secs(30)).await? {
//!     println!("sends {}", job.payload());
//!     job.complete().await?;
//! }
//! # Ok(()) }
//! ```
//!
//! Rules of every statement here:
//!
//! 1. Claims, heartbeats and promotions skip locked rows, and never wait for them.
//! 2. A claim is ended only by its number. Each claim has a new number.
//! 3. Rows that are found by an index are changed by their primary key.
//! 4. All times are by the database's clock.
//!
//! Every method also fails if the database fails, or its tables are missing.

mod batch_update;
mod claim;
mod claimed_job;
mod complete;
mod enqueue;
mod inspect;
mod job;
mod schema;
#[cfg(test)]
mod tests;
mod worker;

pub use claim::PromotionCounts;
pub use claimed_job::{ClaimedJob, FailureOutcome, JobOutcome};
pub use inspect::{DeadJob, DeadJobFilter, QueueStats};
pub(crate) use job::QueueError;
pub use job::{EnqueueOutcome, Job};
pub use worker::{Worker, WorkerHandle, WorkerSummary};

use crate::database::{AnyTransaction, Database, DatabaseConnection, Row};
use crate::error::Result;
use crate::retry::Backoff;
pub(crate) use schema::SCHEMA;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The maximum number of rows of one statement by default. From a thousand values on, MariaDB makes a temporary table of a
/// list and scans the jobs; a row has up to two values here.
const BATCH: usize = 400;

/// A queue, identified by its name. A database may have many. Clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    database: Database,
    name: Arc<str>,
    backoff: Backoff,
    /// A message wakes the workers of this process.
    wakes: watch::Sender<()>,
}

impl Queue {
    /// Returns the queue of this name. Fails with [`is_usage`](crate::Error::is_usage) unless the name consists of 1 to 64
    /// letters, digits and characters of `-_.:@/`.
    pub fn new(database: impl Into<Database>, name: &str) -> Result<Self> {
        job::check_name("queue", name)?;
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(3600) };
        let wakes = watch::Sender::new(());
        Ok(Self { database: database.into(), name: name.into(), backoff, wakes })
    }

    /// Sets the pauses of failed jobs: after the first failure a random time up to `first`, after each further one up to
    /// twice as long as before, but never longer than `longest`. By default a second and an hour.
    #[must_use]
    pub fn pauses(self, first: Duration, longest: Duration) -> Self {
        Self { backoff: Backoff { first, longest }, ..self }
    }

    getters! { self:
        /// Returns the name.
        name -> &str = &self.name;
        /// Returns the database.
        database -> &Database = &self.database;
        /// Returns the SQL of [`provision`](Self::provision), for a person to run.
        script -> String = SCHEMA.script(self.database().driver());
    }

    /// Creates the table of all queues, `hier_jobs`, if it does not exist, and upgrades that of an older release. Fails
    /// with [`is_newer_schema`](crate::Error::is_newer_schema) if a newer release has upgraded it. Concurrent calls are
    /// safe.
    pub async fn provision(&self) -> Result<()> {
        SCHEMA.provision(self.database()).await
    }

    /// Returns a worker that runs jobs of this queue.
    pub fn worker(&self, name: &str) -> Worker {
        Worker::new(self.clone(), name)
    }

    /// Wakes the workers of this queue and its clones in this process. [`enqueue`](Self::enqueue) does so itself.
    pub fn wake(&self) {
        self.wakes.send_replace(());
    }

    /// Returns the connection of the caller's transaction. Fails if that is of another engine.
    fn connection_of<'tx>(
        &self,
        tx: &'tx mut impl AnyTransaction,
    ) -> Result<DatabaseConnection<'tx>> {
        let connection = tx.connection();
        let (given, queue) = (connection.driver(), self.database().driver());
        if given != queue {
            return Err(QueueError::OtherTransaction { given, queue }.into());
        }
        Ok(connection)
    }
}

fn ids(rows: &[Row]) -> Result<Vec<i64>> {
    rows.iter().map(|row| Ok(row.int(0)?)).collect()
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name()).finish_non_exhaustive()
    }
}
