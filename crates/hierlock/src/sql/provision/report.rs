//! The size estimate, the progress and the result of provisioning.

use crate::sql::{Dialect, Scheme, Strategy};
use std::time::Duration;

/// The progress of provisioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvisionProgress {
    /// The current phase.
    pub phase: ProvisionPhase,
    /// The number of rows that are done in this phase.
    pub done: u64,
    /// The number of rows of this phase, or 0 if it does not count rows.
    pub total: u64,
}

/// A phase of provisioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProvisionPhase {
    /// Inserts missing rows.
    Filling,
    /// Creates the primary key.
    Indexing,
    /// Waits until clients have released their locks.
    WaitingForHolders,
    /// Deletes rows beyond the bucket count.
    Deleting,
    /// Counts rows.
    Checking,
}

impl ProvisionPhase {
    /// Returns the name of the phase for messages.
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

/// The result of provisioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvisionReport {
    /// The number of rows that clients can lock. Rows by ID are not counted: 0.
    pub rows: u64,
    /// The number of inserted rows.
    pub inserted: u64,
    /// The number of deleted rows.
    pub deleted: u64,
    /// The duration.
    pub elapsed: Duration,
}

/// The estimated size of a lock table, and the estimated time to fill it.
///
/// ```
/// use hierlock::sql::{Dialect, Prediction, Scheme};
/// let prediction = Prediction::of(&Scheme::new(Dialect::Mysql));
/// assert_eq!((prediction.rows, prediction.bytes), (30_000_000, 792_000_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// The number of rows.
    pub rows: u64,
    /// The approximate size on the server in bytes with the index, computed from the layout of its pages. Tests compare it
    /// with the real size on each server.
    pub bytes: u64,
    /// The approximate time to insert the rows, as measured on a server with two cores that does not sync to disk.
    pub duration: Duration,
}

/// The size of a row on InnoDB in hundredths of a byte: a header of 5 bytes and a NULL bit, the key (1 + 4), transaction id
/// and roll pointer (6 + 7), and a directory entry for every few rows, on pages that are 15/16 full.
const INNODB_ROW: u64 = 2640;
/// The size of a row on PostgreSQL in hundredths of a byte: a tuple of 32 bytes with a pointer of 4, and an index entry of 16
/// bytes with a pointer of 4, on index pages that are 9/10 full.
const POSTGRES_ROW: u64 = 5880;
/// Rows per second on InnoDB. Measured: 450,000 to 600,000 on MySQL, 290,000 to 350,000 on MariaDB.
const INNODB_RATE: u64 = 300_000;
/// Rows per second on PostgreSQL. Measured: 800,000 to 1,000,000.
const POSTGRES_RATE: u64 = 800_000;

impl Prediction {
    /// Returns the estimate for striped rows. The number of rows by ID is unknown: 0.
    pub fn of(scheme: &Scheme) -> Self {
        let rows = match scheme.strategy {
            Strategy::Striped => scheme.hierarchy.len() as u64 * u64::from(scheme.buckets.count()),
            _ => 0,
        };
        let (row, rate) = match scheme.dialect {
            Dialect::Postgres => (POSTGRES_ROW, POSTGRES_RATE),
            Dialect::Mysql | Dialect::Mariadb => (INNODB_ROW, INNODB_RATE),
        };
        let duration = Duration::from_millis(rows * 1000 / rate);
        Self { rows, bytes: rows * row / 100, duration }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Buckets;

    #[test]
    fn the_number_of_rows_is_buckets_times_levels() {
        let scheme = Scheme::new(Dialect::Mysql).buckets(Buckets::new(1000).unwrap());
        let duration = Duration::from_millis(10);
        assert_eq!(Prediction::of(&scheme), Prediction { rows: 3000, bytes: 79_200, duration });
        let by_id = scheme.strategy(Strategy::PerId).unwrap();
        assert_eq!(Prediction::of(&by_id).rows, 0);
    }
}
