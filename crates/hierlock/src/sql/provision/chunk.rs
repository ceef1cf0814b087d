//! The rows of a striped table, in chunks. Pure code.

use std::fmt;

/// A range of rows of one level, both ends included.
///
/// ```
/// use hierlock::sql::RowRange;
/// assert_eq!(RowRange { level: 1, first: 1000, last: 1999 }.to_string(), "level 1: 1000..=1999");
/// assert_eq!(RowRange { level: 1, first: 5, last: 5 }.to_string(), "level 1: 5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The level of the tree.
    pub level: usize,
    /// The first bucket.
    pub first: u32,
    /// The last bucket.
    pub last: u32,
}

impl RowRange {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }
}

impl fmt::Display for RowRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, first, last } = self;
        if first == last {
            write!(f, "level {level}: {first}")
        } else {
            write!(f, "level {level}: {first}..={last}")
        }
    }
}

/// A range of buckets on every level, in chunks that are numbered in the order of the primary key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    pub(super) levels: usize,
    /// The first bucket, and the first after the range.
    pub(super) buckets: (u32, u32),
    /// The number of rows of a chunk. The last chunk of a level may have fewer.
    pub(super) size: u32,
}

impl Chunks {
    pub(super) fn rows(&self) -> u64 {
        self.levels as u64 * u64::from(self.buckets.1 - self.buckets.0)
    }

    pub(super) fn get(&self, number: usize) -> Option<RowRange> {
        let per_level = (self.buckets.1 - self.buckets.0).div_ceil(self.size) as usize;
        let level = number.checked_div(per_level).filter(|level| *level < self.levels)?;
        let first = self.buckets.0 + (number % per_level) as u32 * self.size;
        let last = first.saturating_add(self.size - 1).min(self.buckets.1 - 1);
        Some(RowRange { level, first, last })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RowRange> + use<> {
        let chunks = *self;
        (0..).map_while(move |number| chunks.get(number))
    }
}

/// Returns the gaps in a range, from the existing buckets in ascending order.
pub(super) fn gaps(range: RowRange, existing: impl IntoIterator<Item = u64>) -> Vec<RowRange> {
    let RowRange { level, first, last } = range;
    let mut gaps = Vec::new();
    // 64 bits, because the bucket after the last one may not fit into 32.
    let mut expected = u64::from(first);
    for bucket in existing.into_iter().chain([u64::from(last) + 1]) {
        if bucket > expected {
            // Both are inside the range, so they fit into 32 bits.
            gaps.push(RowRange { level, first: expected as u32, last: (bucket - 1) as u32 });
        }
        expected = bucket + 1;
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_contain_every_row_once_in_order(
            levels in 1..5_usize, first in 0..50_u32, count in 0..200_u32, size in 1..60_u32
        ) {
            let chunks = Chunks { levels, buckets: (first, first + count), size };
            let rows: Vec<(usize, u32)> = chunks
                .iter()
                .flat_map(|chunk| (chunk.first..=chunk.last).map(move |b| (chunk.level, b)))
                .collect();
            let all: Vec<(usize, u32)> = (0..levels)
                .flat_map(|level| (first..first + count).map(move |b| (level, b)))
                .collect();
            prop_assert_eq!(rows.len() as u64, chunks.rows());
            prop_assert_eq!(rows, all);
            prop_assert!(chunks.iter().all(|chunk| chunk.rows() <= u64::from(size)));
        }

        #[test]
        fn gaps_are_exactly_the_missing_rows(
            first in 0..20_u32, count in 1..40_u32, keep in prop::collection::vec(any::<bool>(), 60)
        ) {
            let range = RowRange { level: 1, first, last: first + count - 1 };
            let existing: Vec<u32> =
                (range.first..=range.last).filter(|b| keep[*b as usize]).collect();
            let gaps = gaps(range, existing.iter().copied().map(u64::from));
            let missing: Vec<u32> = gaps.iter().flat_map(|gap| gap.first..=gap.last).collect();
            let right: Vec<u32> =
                (range.first..=range.last).filter(|b| !keep[*b as usize]).collect();
            prop_assert_eq!(missing, right);
            prop_assert!(gaps.windows(2).all(|two| two[0].last + 1 < two[1].first));
        }
    }

    #[test]
    fn the_largest_bucket_does_not_overflow() {
        let end = 0x7fff_ffff;
        let chunks = Chunks { levels: 2, buckets: (0, end), size: 1_000_000 };
        assert_eq!(chunks.iter().map(|chunk| chunk.rows()).sum::<u64>(), chunks.rows());
        let whole = RowRange { level: 0, first: 0, last: u32::MAX };
        assert_eq!(gaps(whole, []), [whole]);
        assert_eq!(gaps(whole, [u32::MAX.into()])[0].last, u32::MAX - 1);
    }
}
