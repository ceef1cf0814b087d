//! What an acquire locks for its own length, in the order of the core's plan: so that of two acquires that
//! could be in each other's way one sees what the other has done, and so that they never deadlock.
//!
//! Rows on MySQL and MariaDB, which are there for nothing else. PostgreSQL has locks without rows: those with
//! two numbers, which have nothing to do with the core's, of one. SQLite needs none: there a writer is alone.

#[cfg(feature = "_server")]
pub(super) use on_servers::{Scheme, lock, scheme, statements};
#[cfg(not(feature = "_server"))]
pub(super) use without_servers::{Scheme, lock, scheme, statements};

use crate::database::Driver;
use crate::hierarchy::Hierarchy;

pub(super) const TABLE: &str = "hier_lease_slots";

/// So many rows for each level: an acquire is short, so a few are enough.
const ROWS: u32 = 256;

/// What makes the rows that are missing.
pub(super) fn fill(driver: Driver) -> Option<String> {
    let (last, levels) = (ROWS - 1, Hierarchy::MAX_LEVELS);
    let fill = || {
        format!(
            "INSERT IGNORE INTO {TABLE} (level, bucket) \
         WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) \
         SELECT levels.n, buckets.n FROM numbers levels, numbers buckets \
         WHERE levels.n < {levels} ORDER BY levels.n, buckets.n"
        )
    };
    (driver == Driver::Mysql).then(fill)
}

#[cfg(feature = "_server")]
mod on_servers;

/// SQLite needs no slots.
#[cfg(not(feature = "_server"))]
mod without_servers {
    use crate::database::Driver;
    use crate::error::Result;
    use crate::hierarchy::Hierarchy;
    use crate::target::Target;

    /// There is none.
    #[derive(Debug)]
    pub(in crate::lease) enum Scheme {}

    pub(in crate::lease) fn scheme(_: Driver, _: &Hierarchy) -> Option<Scheme> {
        None
    }

    pub(in crate::lease) fn statements(_: Driver) -> Vec<String> {
        Vec::new()
    }

    pub(in crate::lease) fn lock(scheme: &Scheme, _: &Target) -> Result<(String, usize)> {
        match *scheme {}
    }
}
