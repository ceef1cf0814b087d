//! Checks that a table has exactly its rows. Counts the rows of each chunk, and reads only chunks with missing rows.

use super::chunk::RowRange;
use super::fill::{count, missing};
use super::{OnProgress, Provision, ProvisionPhase};
use crate::sql::lock_table::Result;
use hierlock_engine::Session;
use parking_lot::Mutex;

/// The maximum number of missing ranges in a [`TableCheck`].
const MAX_NAMED_RANGES: usize = 1000;
/// The maximum number of missing ranges in memory. Sessions find them in any order, so more are collected than reported.
const MAX_RANGES: usize = 100_000;

/// The result of a check: missing and extra rows of a lock table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableCheck {
    /// The number of existing rows of each level, without extra rows.
    pub rows: Vec<u64>,
    /// The number of rows that each level must have.
    pub buckets: u64,
    /// The missing rows, in order: at most the first thousand ranges.
    pub missing: Vec<RowRange>,
    /// The number of missing rows.
    pub missing_rows: u64,
    /// The number of rows of buckets or levels that do not exist. No client locks them, and they do no harm.
    pub extra_rows: u64,
    /// Whether provisioning has completed.
    pub is_ready: bool,
}

impl TableCheck {
    /// Returns whether the table is ready, without missing or extra rows.
    pub fn is_clean(&self) -> bool {
        self.is_ready && self.missing_rows == 0 && self.extra_rows == 0
    }
}

impl Provision {
    pub(super) async fn check_rows(&self, progress: OnProgress<'_>) -> Result<TableCheck> {
        let mut session = self.session().await?;
        let is_ready = self.checked_agreement(&mut session).await?.is_ready;
        let (levels, buckets) = (self.scheme.hierarchy.len(), self.scheme.buckets.count());
        let chunks = self.chunks(0, buckets);
        // The number of existing rows of each level, and the missing ranges.
        let found = Mutex::new((vec![u64::from(buckets); levels], Vec::new()));
        let all_found = &found;
        let check = |mut session: Session, chunk: RowRange| async move {
            for range in missing(&mut session, &self.scheme, chunk).await? {
                let mut found = all_found.lock();
                found.0[range.level] -= range.rows();
                if found.1.len() < MAX_RANGES {
                    found.1.push(range);
                }
            }
            Ok(session)
        };
        self.for_each_chunk(chunks, ProvisionPhase::Checking, progress, check).await?;
        // Extra rows, found by the primary key.
        let table = self.scheme.quoted_table();
        let beyond = |level| format!("level = {level} AND bucket >= {buckets}");
        let mut extra_rows = 0;
        for rows in (0..levels).map(beyond).chain([format!("level >= {levels}")]) {
            let sql = format!("SELECT COUNT(*) FROM {table} WHERE {rows}");
            extra_rows += count(&mut session, &sql).await?;
        }
        let (rows, ranges) = found.into_inner();
        let missing_rows = chunks.rows() - rows.iter().sum::<u64>();
        let missing = merge(ranges).into_iter().take(MAX_NAMED_RANGES).collect();
        let buckets = buckets.into();
        Ok(TableCheck { rows, buckets, missing, missing_rows, extra_rows, is_ready })
    }
}

/// Sorts ranges and merges adjacent ones, since a range may continue in the next chunk.
fn merge(mut ranges: Vec<RowRange>) -> Vec<RowRange> {
    ranges.sort_unstable_by_key(|range| (range.level, range.first));
    ranges.dedup_by(|next, one| {
        let goes_on = one.level == next.level && one.last.checked_add(1) == Some(next.first);
        if goes_on {
            one.last = next.last;
        }
        goes_on
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_merged() {
        let range = |level, first, last| RowRange { level, first, last };
        let found = vec![range(1, 10, 19), range(0, 30, 39), range(1, 0, 9), range(1, 21, 21)];
        assert_eq!(merge(found), [range(0, 30, 39), range(1, 0, 19), range(1, 21, 21)]);
    }
}
