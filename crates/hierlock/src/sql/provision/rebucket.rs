//! Another number of buckets, while clients lock.
//!
//! Two clients that count differently would lock different rows for one node. So at every moment exactly
//! one count works: that in the name of the fence, which every statement that locks names.
//!
//! ```text
//!   grow:    fill the new rows ─► rename the fence ─► write the agreement
//!   shrink:                       rename the fence ─► write the agreement ─► delete the surplus
//! ```
//!
//! 1. Rows of buckets that nobody counts to are not locked by anybody, so filling them disturbs nobody.
//! 2. Renaming a column waits until every transaction that has touched the table has ended: no lock taken
//!    with the old count is left. From then on the old count is an unknown column.
//! 3. A client whose statement fails so reads the agreement again and follows it, or tells its caller, if
//!    its URL names the count.
//! 4. Cut short at any point, the same call goes on from there. Between 2 and 3 MySQL and MariaDB cannot do
//!    both at once; then the table says what is right.
//!
//! While the renaming waits, those who come later wait behind it. So it does not wait long, gives way,
//! and tries again.

use super::fill::{Before, Fill, number, within};
use super::pace::Pace;
use super::{Phase, Progress, Provision, Report, leader};
use crate::error::{Result, UrlError};
use crate::key::Buckets;
use crate::sql::agreement::{Agreement, State};
use crate::sql::failure::LockFailure;
use crate::sql::{Dialect, Strategy};
use hierlock_engine::Session;
use std::time::{Duration, Instant};

/// For how many seconds others wait behind the renaming: at first, and at most. Less than a client takes
/// for the silence of a server that is gone.
const WAIT: (u32, u32) = (1, 4);
/// How long the way is free for others before the next try.
const GIVE_WAY: Duration = Duration::from_millis(300);

impl Provision {
    pub(super) async fn change_buckets(
        &self,
        new: Buckets,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Report> {
        let begun = Instant::now();
        if self.scheme.strategy != Strategy::Striped {
            return Err(UrlError::NotStriped { strategy: self.scheme.strategy.name() }.into());
        }
        let mut leader = self.lead().await?;
        let Some(kept) = self.settle(&mut leader).await? else {
            return Err(self.unfit(self.no_table()));
        };
        // Whoever says what the count was, or is to be, must be right about it.
        let (old, asked) = (kept.buckets, self.scheme.buckets.count());
        if !self.follows && asked != old && asked != new.count() {
            let scheme = &self.scheme;
            return Err(self.unfit(scheme.differs(&kept).unwrap_or_default()));
        }
        let to = self.with_buckets(new);
        let otherwise = Agreement { buckets: new.count(), state: State::Ready, ..kept.clone() };
        if let Some(why) = to.scheme.differs(&otherwise) {
            return Err(self.unfit(why));
        }
        let mut inserted = 0;
        if kept.state == State::Ready && new.count() > old {
            let chunks = to.chunks(old, new.count());
            let fill = Fill { provision: &to, chunks, before: Before::Unknown, progress };
            inserted += fill.run().await?;
        }
        if new.count() != old {
            to.rename_fence(&mut leader, old, progress).await?;
        }
        if kept.state == State::Filling {
            inserted += to.finish(&mut leader, progress).await?;
        }
        let deleted = to.delete_surplus(&mut leader, progress).await?;
        let rows = to.prediction().rows;
        Ok(Report { rows, inserted, deleted, elapsed: begun.elapsed() })
    }

    /// Renames the fence and writes the agreement.
    async fn rename_fence(
        &self,
        leader: &mut Session,
        old: u32,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<()> {
        let failed = |error| self.failed(error);
        let (table, fence) = (self.scheme.quoted_table(), self.scheme.fence());
        let rename = format!("ALTER TABLE {table} RENAME COLUMN of_{old} TO {fence}");
        let keep = leader::keep_buckets(&self.scheme, self.scheme.buckets.count());
        let mut seconds = WAIT.0;
        loop {
            let sql = match self.scheme.dialect {
                Dialect::Postgres => format!(
                    "BEGIN; SET LOCAL lock_timeout = '{seconds}s'; {rename}; {keep}; COMMIT"
                ),
                _ => format!("SET SESSION lock_wait_timeout = {seconds}; {rename}; {keep}"),
            };
            match leader.run(&sql).await {
                Err(error) if LockFailure::of(&error) == LockFailure::NotGranted => {}
                renamed => return renamed.map_err(failed),
            }
            if self.scheme.dialect == Dialect::Postgres {
                leader.run("ROLLBACK").await.map_err(failed)?;
            }
            progress(Progress { phase: Phase::WaitingForHolders, done: 0, total: 0 });
            seconds = (seconds * 2).min(WAIT.1);
            tokio::time::sleep(GIVE_WAY).await;
        }
    }

    /// Deletes the rows of buckets that nobody counts to any more.
    async fn delete_surplus(
        &self,
        leader: &mut Session,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<u64> {
        let failed = |error| self.failed(error);
        let (table, count) = (self.scheme.quoted_table(), self.scheme.buckets.count());
        let mut end = u64::from(count);
        for level in 0..self.scheme.hierarchy.len() {
            let sql =
                format!("SELECT COALESCE(MAX(bucket) + 1, 0) FROM {table} WHERE level = {level}");
            end = end.max(number(leader, &sql).await.map_err(failed)?);
        }
        let chunks = self.chunks(count, u32::try_from(end).unwrap_or(u32::MAX));
        let pace = Pace::new(self.max_rows_per_second);
        let (mut deleted, mut done, total) = (0, 0, chunks.rows());
        for chunk in chunks.iter() {
            pace.wait(chunk.rows()).await;
            let sql = match self.scheme.dialect {
                Dialect::Postgres => {
                    format!("DELETE FROM {table} WHERE {}", within(chunk))
                }
                // A range would also lock what comes after it: the first row of the next level.
                _ => format!(
                    "DELETE t FROM ({}) v STRAIGHT_JOIN {table} t ON t.level = {} AND t.bucket = v.x",
                    self.series.select("x", chunk.first, chunk.last),
                    chunk.level
                ),
            };
            deleted += leader.affected(&sql).await.map_err(failed)?;
            done += chunk.rows();
            progress(Progress { phase: Phase::Deleting, done, total });
        }
        Ok(deleted)
    }
}
