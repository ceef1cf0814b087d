//! Is every row there, and none too many? Counts chunks; reads only those where something is missing.

use super::chunk::RowRange;
use super::fill::{count, missing};
use super::{OnProgress, Provision, ProvisionPhase};
use crate::sql::agreement::ProvisionState;
use crate::sql::lock_table::Result;
use hierlock_engine::Session;
use parking_lot::Mutex;

/// So many ranges are named; of more, only the number of rows.
const MAX_NAMED_RANGES: usize = 1000;
/// So many are kept in memory, as they come in chunk by chunk and not quite in order.
const MAX_RANGES: usize = 100_000;

/// What a lock table lacks, and what it has too many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableCheck {
    /// How many rows there are of each level, those too many not counted.
    pub rows: Vec<u64>,
    /// How many each level must have.
    pub buckets: u64,
    /// Which are missing, in order: the first thousand ranges of them.
    pub missing: Vec<RowRange>,
    /// How many rows are missing.
    pub missing_rows: u64,
    /// How many rows no client would lock: of a bucket or a level that there is not. They do no harm.
    pub extra_rows: u64,
    /// Has provisioning come to its end?
    pub is_ready: bool,
}

impl TableCheck {
    /// Returns whether it is ready, with nothing missing and nothing too many.
    pub fn is_clean(&self) -> bool {
        self.is_ready && self.missing_rows == 0 && self.extra_rows == 0
    }
}

impl Provision {
    pub(super) async fn check_rows(&self, progress: OnProgress<'_>) -> Result<TableCheck> {
        let mut session = self.session().await?;
        let is_ready = self.agreed_state(&mut session).await? == ProvisionState::Ready;
        let (levels, buckets) = (self.scheme.hierarchy.len(), self.scheme.buckets.count());
        let chunks = self.chunks(0, buckets);
        // The rows that are there of each level, and the ranges that are not.
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
        // Rows that nobody locks, found by the key.
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

/// In order, and neighbours as one: a range may go on in the next chunk.
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
    fn neighbours_become_one() {
        let range = |level, first, last| RowRange { level, first, last };
        let found = vec![range(1, 10, 19), range(0, 30, 39), range(1, 0, 9), range(1, 21, 21)];
        assert_eq!(merge(found), [range(0, 30, 39), range(1, 0, 19), range(1, 21, 21)]);
    }
}
