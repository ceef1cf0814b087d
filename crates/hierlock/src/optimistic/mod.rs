//! Optimistic versions: a row is changed only if it is still as it was read.
//!
//! ```text
//!   VersionedTable ──row──► VersionedRow ──update(tx, expected, Changes)──► UpdateOutcome
//!    table, column      its key        │ statement.rs, pure             Updated, Stale or Missing
//!                                      └ lock, delete ────────────────► VersionCheck
//! ```
//!
//! Nobody is locked out while somebody thinks. Each remembers the version that was read; the UPDATE has it in its
//! condition and raises it by one, so of two who have read the same, the second changes nothing, and is told.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
//! use hierlock::database::Database;
//! use hierlock::optimistic::{Changes, UpdateOutcome, VersionedTable};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let database = Database::connect(&format!("sqlite:{}", directory.path().join("a.db").display())).await?;
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
//!     UpdateOutcome::Stale { current, .. } => println!("somebody was faster: look at version {current}"),
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

/// Runs `work` again while it fails because a row is [stale](crate::Error::is_stale), or because it lost
/// another race; so many times in all. It is given the number of the attempt, from 1.
///
/// `work` must read the row again each time, and [`updated`](UpdateOutcome::updated) turns what is stale into
/// an error. It is for a program that can compute its change anew; a person has to look first.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use hierlock::database::Database;
/// use hierlock::optimistic::{Changes, VersionedTable, until_current};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let database = Database::connect(&format!("sqlite:{}", directory.path().join("a.db").display())).await?;
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
/// It is [`retry`], with its errors and its cancel safety, and [`also_if_stale`](RetryPolicy::also_if_stale); use that
/// for other pauses, or a limit of time.
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
