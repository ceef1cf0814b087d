//! Optimistic versions: a row is changed only if it has not changed since it was read.
//!
//! ```text
//!   VersionedTable ──row──► VersionedRow ──update(tx, expected, Changes)──► UpdateOutcome
//!    table, column      its key        │ statement.rs, pure             Updated, Stale or Missing
//!                                      └ lock, delete ────────────────► VersionCheck
//! ```
//!
//! No lock is held between reading and writing. A program remembers the version that it read. The UPDATE has that version
//! in its condition and increments it. So if two programs have read the same version, the second update changes nothing and
//! returns `Stale`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::database::Database;
//! use hierlock::optimistic::{Changes, UpdateOutcome, VersionedTable};
//!
//! # let database = Database::connect("sqlite::memory:").await?;
//! # let mut tx = database.begin().await?;
//! # tx.run("CREATE TABLE seats (id BIGINT PRIMARY KEY, holder TEXT, version BIGINT NOT NULL);
//! #         INSERT INTO seats VALUES (7, NULL, 1)").await?;
//! # tx.commit().await?;
//! let seats = VersionedTable::new("seats", "version")?;
//! let seat = seats.row("id", 7)?;
//!
//! let mut tx = database.begin().await?; // or a transaction of sqlx
//! let seen = 1; // read with the seat, an hour ago
//! match seat.update(&mut tx, seen, Changes::new().set("holder", "ada")).await? {
//!     UpdateOutcome::Updated(_version) => tx.commit().await?,
//!     UpdateOutcome::Stale { current, .. } => println!("the seat was changed: look at version {current}"),
//!     UpdateOutcome::Missing => println!("the seat is gone"),
//! }
//! # Ok(()) }
//! ```

mod changes;
mod outcome;
mod row;
mod statement;

pub use changes::Changes;
pub(crate) use outcome::OptimisticError;
pub use outcome::{UpdateOutcome, VersionCheck};
pub use row::{VersionedRow, VersionedTable, WaitPolicy};

use crate::retry::{AttemptError, RetryError, RetryPolicy, retry};

/// Retries `work` while it fails because a row is [stale](crate::Error::is_stale), or with an error that [`retry`]
/// retries, for at most `attempts` attempts. `work` gets the number of the attempt, from 1.
///
/// `work` must read the row again in each attempt, and use [`updated`](UpdateOutcome::updated) to convert `Stale` into an
/// error. This is for programs that can compute their change again, not for edits of a person, who has to look at the new
/// data first.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use hierlock::database::Database;
/// use hierlock::optimistic::{Changes, VersionedTable, until_current};
///
/// # let database = Database::connect("sqlite::memory:").await?;
/// # let mut tx = database.begin().await?;
/// # tx.run("CREATE TABLE stock (id BIGINT PRIMARY KEY, left_over BIGINT, version BIGINT NOT NULL);
/// #         INSERT INTO stock VALUES (1, 5, 1)").await?;
/// # tx.commit().await?;
/// let item = VersionedTable::new("stock", "version")?.row("id", 1)?;
/// let left = until_current(10, |_attempt| async {
///     let mut tx = database.begin().await?;
///     let read = tx.fetch("SELECT left_over, version FROM stock WHERE id = 1", []).await?;
///     let (left, version) = (read[0].int(0)? - 1, read[0].int(1)?);
///     item.update(&mut tx, version, Changes::new().set("left_over", left)).await?.updated()?;
///     tx.commit().await.map(|()| left)
/// })
/// .await?;
/// assert_eq!(left, 4);
/// # Ok(()) }
/// ```
///
/// It calls [`retry`] with [`also_if_stale`](RetryPolicy::also_if_stale), and has its errors and cancel safety; use
/// [`retry`] for other pauses or a time limit.
pub async fn until_current<T, E, W, K>(
    attempts: u32,
    work: impl FnMut(u32) -> W,
) -> Result<T, RetryError<E>>
where
    W: Future<Output = Result<T, E>>,
    E: AttemptError<K>,
{
    retry(RetryPolicy::default().attempts(attempts).also_if_stale(), work).await
}
