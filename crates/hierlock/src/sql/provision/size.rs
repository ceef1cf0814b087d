//! How large a table of rows becomes, from the layout of its pages. Checked against the real size by a
//! test on each server.

use crate::sql::{Dialect, Scheme, Strategy};

/// What provisioning will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// How many rows there are in the end.
    pub rows: u64,
    /// About how many bytes they take on the server, index included.
    pub bytes: u64,
}

/// Hundredths of a byte a row.
///
/// InnoDB: a header of 5 bytes and a NULL bit, the key (1 + 4), the numbers of a transaction (6 + 7), and
/// a directory entry for every few rows; filled in the order of the key, its pages are full but for a
/// sixteenth.
const INNODB: u64 = 2640;
/// PostgreSQL: a tuple of 32 bytes behind a pointer of 4, and in the index 16 behind 4, on pages that are
/// full but for a tenth.
const POSTGRES: u64 = 5880;

impl Prediction {
    /// Rows by ID come with the nodes, so nobody knows how many.
    pub(super) fn of(scheme: &Scheme) -> Self {
        let rows = match scheme.strategy {
            Strategy::Striped => scheme.hierarchy.len() as u64 * u64::from(scheme.buckets.count()),
            _ => 0,
        };
        let row = if scheme.dialect == Dialect::Postgres { POSTGRES } else { INNODB };
        Self { rows, bytes: rows * row / 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Buckets;

    #[test]
    fn rows_are_buckets_times_levels() {
        let scheme = Scheme::new(Dialect::Mysql).buckets(Buckets::new(1000).unwrap());
        assert_eq!(Prediction::of(&scheme), Prediction { rows: 3000, bytes: 79_200 });
        let by_id = scheme.strategy(Strategy::PerId).unwrap();
        assert_eq!(Prediction::of(&by_id).rows, 0);
    }
}
