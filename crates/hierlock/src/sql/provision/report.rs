//! How large a lock table becomes, how far provisioning has come, and what it has done.

use crate::sql::{Dialect, Scheme, Strategy};
use std::time::Duration;

/// How far provisioning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvisionProgress {
    /// What is being done.
    pub phase: ProvisionPhase,
    /// How many rows are done, in this phase.
    pub done: u64,
    /// How many rows there are to do; 0 where they are not counted.
    pub total: u64,
}

/// What provisioning is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProvisionPhase {
    /// Rows are inserted, where they are missing.
    Filling,
    /// The primary key is made.
    Indexing,
    /// A change waits until locks that are held have been released.
    WaitingForHolders,
    /// Rows that nobody needs any more are deleted.
    Deleting,
    /// Rows are counted.
    Checking,
}

impl ProvisionPhase {
    /// Returns its name, for a person.
    pub fn name(self) -> &'static str {
        match self {
            ProvisionPhase::Filling => "filling",
            ProvisionPhase::Indexing => "making the primary key",
            ProvisionPhase::WaitingForHolders => "waiting for holders",
            ProvisionPhase::Deleting => "deleting",
            ProvisionPhase::Checking => "checking",
        }
    }
}

/// What provisioning has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvisionReport {
    /// How many rows there are for clients to lock. Of rows by ID: 0, for nobody counts them.
    pub rows: u64,
    /// How many of them are new.
    pub inserted: u64,
    /// How many were one too many.
    pub deleted: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// How large a table of rows becomes, from the layout of its pages. Tested against the real size on each server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// How many rows there are in the end.
    pub rows: u64,
    /// About how many bytes they take on the server, index included.
    pub bytes: u64,
}

/// Hundredths of a byte a row, on InnoDB: a header of 5 bytes and a NULL bit, the key (1 + 4), the numbers of a
/// transaction (6 + 7), and a directory entry for every few rows, on pages that are full but for a sixteenth.
const INNODB_ROW: u64 = 2640;
/// The same on PostgreSQL: a tuple of 32 bytes behind a pointer of 4, and in the index 16 behind 4, on pages that are
/// full but for a tenth.
const POSTGRES_ROW: u64 = 5880;

impl Prediction {
    /// Rows by ID come with the nodes, so nobody knows how many.
    pub(super) fn of(scheme: &Scheme) -> Self {
        let rows = match scheme.strategy {
            Strategy::Striped => scheme.hierarchy.len() as u64 * u64::from(scheme.buckets.count()),
            _ => 0,
        };
        let row = if scheme.dialect == Dialect::Postgres { POSTGRES_ROW } else { INNODB_ROW };
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
