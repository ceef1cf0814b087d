//! The rows that an acquire locks for its own length, in the order of the core's plan: so that of two
//! acquires that could be in each other's way one sees what the other has done, and so that they never
//! deadlock.

use crate::database::Kind;
use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use crate::mode::Mode;
use crate::plan::Claim;
use crate::sql::{Dialect, Scheme, Strategy};
use crate::target::Target;

/// An acquire is short, so a few rows for each level are enough.
const BUCKETS: u32 = 256;
const TABLE: &str = "hier_lease_slots";

/// How the slots are locked. SQLite needs none: there a writer is alone.
pub(super) fn scheme(kind: Kind) -> Option<Scheme> {
    let dialect = match kind {
        // Both understand it.
        Kind::Innodb => Dialect::Mariadb,
        Kind::Postgres => Dialect::Postgres,
        Kind::Sqlite => return None,
    };
    let scheme = Scheme::new(dialect).strategy(Strategy::Striped).and_then(|s| s.table(TABLE));
    let buckets = Buckets::new(BUCKETS).expect("256 is a count of buckets");
    Some(scheme.expect("every server has rows, and the name is plain").buckets(buckets))
}

/// What makes the table and its rows; each may be run again.
pub(super) fn statements(scheme: &Scheme) -> Vec<String> {
    let (ignore, on_conflict) = match scheme.dialect() {
        Dialect::Postgres => ("", " ON CONFLICT DO NOTHING"),
        Dialect::Mysql | Dialect::Mariadb => ("IGNORE ", ""),
    };
    let last = BUCKETS - 1;
    let levels = Hierarchy::MAX_LEVELS;
    let fill = format!(
        "INSERT {ignore}INTO {TABLE} (level, bucket) \
         WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) \
         SELECT levels.n, buckets.n FROM numbers levels, numbers buckets \
         WHERE levels.n < {levels} ORDER BY levels.n, buckets.n{on_conflict}"
    );
    scheme.create_rows().into_iter().chain([fill]).collect()
}

/// What locks the slots of a node and of those above it, and how many rows come back if all are there.
pub(super) fn lock(scheme: &Scheme, target: &Target) -> Result<(String, usize)> {
    let plan = scheme.plan([Claim { target: target.clone(), mode: Mode::Exclusive }])?;
    Ok(scheme.lock_and_rows(&plan))
}
