//! Changes the number of buckets while clients lock.
//!
//! Two clients with different counts would lock different rows for one node. So at every moment exactly one count works: the
//! one in the name of a column, which every lock statement selects.
//!
//! ```text
//!   grow:    fill the new rows ─► rename the column ─► write the agreement
//!   shrink:                       rename the column ─► write the agreement ─► delete the surplus
//! ```
//!
//! 1. No client locks rows beyond its bucket count, so filling the new rows disturbs no client.
//! 2. RENAME COLUMN waits until every transaction that has used the table has ended. So no lock with the old count is left.
//!    From then on the old count is an unknown column.
//! 3. A client whose statement fails with an unknown column reads the agreement again and adopts it. If its URL names the
//!    count, it fails.
//! 4. If the change is interrupted at any point, the same call continues it. MySQL and MariaDB cannot rename the column and
//!    write the agreement in one transaction. In between, the name of the column is right.
//!
//! While RENAME COLUMN waits, new lock statements wait behind it. So it waits only for a short time, pauses, and tries again.

use super::fill::{count, within};
use super::rate_limit::RateLimit;
use super::{OnProgress, Provision, ProvisionPhase, ProvisionProgress};
use crate::key::Buckets;
use crate::sql::lock_table::{LockTableError, Result};
use crate::sql::{Agreement, Dialect};
use hierlock_engine::{ErrorClass, Session};
use std::time::Duration;

/// The first and the longest wait of RENAME COLUMN, in seconds. Clients wait behind it, so it is shorter than their
/// `silence_ms`.
const FIRST_LOCK_WAIT: u32 = 1;
const MAX_LOCK_WAIT: u32 = 4;
/// The pause before the next attempt, in which clients can lock.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

impl Provision {
    /// Changes the number of buckets. Returns the numbers of inserted and deleted rows.
    pub(super) async fn change_buckets(
        &self,
        new: Buckets,
        progress: OnProgress<'_>,
    ) -> Result<(u64, u64)> {
        let mut leader = self.leader().await?;
        let stored =
            self.read_agreement(&mut leader).await?.ok_or_else(|| self.scheme.no_table())?;
        // A count in the URL must be the old or the new one.
        let (old, asked) = (stored.buckets, self.scheme.buckets.count());
        if !self.scheme.follows_table && asked != old && asked != new.count() {
            self.scheme.compare(&stored).map_err(LockTableError::Unusable)?;
        }
        let to = self.with_buckets(new);
        let changed = Agreement { buckets: new.count(), is_ready: true, ..stored.clone() };
        to.scheme.compare(&changed).map_err(LockTableError::Unusable)?;
        let mut inserted = 0;
        if stored.is_ready && new.count() > old {
            let chunks = to.chunks(old, new.count());
            inserted += to.fill(chunks, false, progress).await?;
        }
        if new.count() != old {
            to.rename_column(&mut leader, old, progress).await?;
        }
        if !stored.is_ready {
            inserted += to.finish(&mut leader, progress).await?;
        }
        let deleted = to.delete_surplus(&mut leader, progress).await?;
        Ok((inserted, deleted))
    }

    /// Renames the column with the bucket count and writes the agreement.
    async fn rename_column(
        &self,
        leader: &mut Session,
        old: u32,
        progress: OnProgress<'_>,
    ) -> Result<()> {
        let (table, column) = (self.scheme.quoted_table(), self.scheme.selected_column());
        let rename = format!("ALTER TABLE {table} RENAME COLUMN of_{old} TO {column}");
        let update = self.scheme.update_buckets(self.scheme.buckets.count());
        let mut seconds = FIRST_LOCK_WAIT;
        loop {
            let sql = match self.scheme.dialect {
                Dialect::Postgres => format!(
                    "BEGIN; SET LOCAL lock_timeout = '{seconds}s'; {rename}; {update}; COMMIT"
                ),
                _ => format!("SET SESSION lock_wait_timeout = {seconds}; {rename}; {update}"),
            };
            match leader.run(&sql).await {
                Err(error) if ErrorClass::of(&error).is_not_granted() => {}
                renamed => return Ok(renamed?),
            }
            if self.scheme.dialect == Dialect::Postgres {
                leader.run("ROLLBACK").await?;
            }
            let phase = ProvisionPhase::WaitingForHolders;
            progress(ProvisionProgress { phase, done: 0, total: 0 });
            seconds = (seconds * 2).min(MAX_LOCK_WAIT);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Deletes the rows beyond the bucket count. Returns their number.
    async fn delete_surplus(&self, leader: &mut Session, progress: OnProgress<'_>) -> Result<u64> {
        let (table, buckets) = (self.scheme.quoted_table(), self.scheme.buckets.count());
        let mut end = u64::from(buckets);
        for level in 0..self.scheme.hierarchy.len() {
            let sql =
                format!("SELECT COALESCE(MAX(bucket) + 1, 0) FROM {table} WHERE level = {level}");
            end = end.max(count(leader, &sql).await?);
        }
        let chunks = self.chunks(buckets, u32::try_from(end).unwrap_or(u32::MAX));
        let limit = RateLimit::new(self.max_rows_per_second);
        let (mut deleted, mut done, total) = (0, 0, chunks.rows());
        for chunk in chunks.iter() {
            limit.wait(chunk.rows()).await;
            let sql = match self.scheme.dialect {
                Dialect::Postgres => format!("DELETE FROM {table} WHERE {}", within(chunk)),
                // On InnoDB a range would also lock the row after it: the first row of the next level.
                _ => format!(
                    "DELETE t FROM ({}) v STRAIGHT_JOIN {table} t ON t.level = {} AND t.bucket = v.x",
                    self.series.select("", chunk.first, chunk.last),
                    chunk.level
                ),
            };
            deleted += leader.as_ref().affected(&sql).await?;
            done += chunk.rows();
            progress(ProvisionProgress { phase: ProvisionPhase::Deleting, done, total });
        }
        Ok(deleted)
    }
}
