//! Is every row there, and none too many? Counts chunks; reads only those where something is missing.

use super::chunk::RowRange;
use super::fill::{missing, number};
use super::{Phase, Progress, Provision};
use crate::error::Result;
use crate::sql::agreement::State;
use futures_util::future::try_join_all;
use hierlock_engine::Session;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// So many ranges are named; of more, only the number of rows.
const NAMED: usize = 1000;
/// So many are kept in memory, as they come in chunk by chunk and not quite in order.
const KEPT: usize = 100_000;

/// What a lock table lacks, and what it has too many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
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

impl Check {
    /// Ready, nothing missing, nothing too many?
    pub fn is_clean(&self) -> bool {
        self.is_ready && self.missing_rows == 0 && self.extra_rows == 0
    }
}

impl Provision {
    pub(super) async fn check_rows(
        &self,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Check> {
        let failed = |error| self.failed(error);
        let mut session = self.session().await?;
        let state = self.agreed(&mut session).await?;
        let chunks = self.chunks(0, self.scheme.buckets.count());
        let total = chunks.rows();
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let found =
            Mutex::new(Found { rows: vec![0; self.scheme.hierarchy.len()], ranges: Vec::new() });
        let work = async |mut session: Session| {
            while let Some(chunk) = chunks.get(next.fetch_add(1, Relaxed)) {
                let missing = missing(&mut session, &self.scheme, chunk).await.map_err(failed)?;
                found.lock().unwrap_or_else(PoisonError::into_inner).add(missing);
                let done = done.fetch_add(chunk.rows(), Relaxed) + chunk.rows();
                progress(Progress { phase: Phase::Checking, done, total });
            }
            Ok::<_, crate::Error>(session)
        };
        let mut sessions = vec![session];
        while sessions.len() < self.connections.min(chunks.iter().count()) {
            sessions.push(self.session().await?);
        }
        let mut sessions = try_join_all(sessions.into_iter().map(work)).await?;
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let buckets = u64::from(self.scheme.buckets.count());
        let rows = found.rows.iter().map(|missing| buckets - missing).collect();
        let mut extra_rows = 0;
        if let Some(session) = sessions.first_mut() {
            for sql in self.count_extra() {
                extra_rows += number(session, &sql).await.map_err(failed)?;
            }
        }
        let missing_rows = found.rows.iter().sum();
        let missing = merge(found.ranges).into_iter().take(NAMED).collect();
        let is_ready = state == State::Ready;
        Ok(Check { rows, buckets, missing, missing_rows, extra_rows, is_ready })
    }

    /// Rows that nobody locks, found by the key.
    fn count_extra(&self) -> Vec<String> {
        let (table, levels) = (self.scheme.quoted_table(), self.scheme.hierarchy.len());
        let count = self.scheme.buckets.count();
        let beyond = format!("SELECT COUNT(*) FROM {table} WHERE level >= {levels}");
        (0..levels)
            .map(|level| {
                format!("SELECT COUNT(*) FROM {table} WHERE level = {level} AND bucket >= {count}")
            })
            .chain([beyond])
            .collect()
    }
}

/// What is missing, so far.
struct Found {
    /// Of each level.
    rows: Vec<u64>,
    ranges: Vec<RowRange>,
}

impl Found {
    fn add(&mut self, missing: Vec<RowRange>) {
        for range in missing {
            self.rows[range.level] += range.rows();
            if self.ranges.len() < KEPT {
                self.ranges.push(range);
            }
        }
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
