//! What an acquire locks for its own length, in the order of the core's plan: so that of two acquires that
//! could be in each other's way one sees what the other has done, and so that they never deadlock.
//!
//! Rows on MySQL and MariaDB, which are there for nothing else. PostgreSQL has locks without rows: those with
//! two numbers, which have nothing to do with the core's, of one. SQLite needs none: there a writer is alone.

use crate::database::Driver;
use crate::hierarchy::Hierarchy;
#[cfg(feature = "_server")]
use crate::{
    error::Result,
    key::Buckets,
    mode::{Mode, SlotMode},
    plan::{Claim, Plan, Step},
    sql::{Dialect, Scheme, Strategy},
    target::Target,
};

pub(super) const TABLE: &str = "hier_lease_slots";

/// So many rows for each level on MySQL and MariaDB: an acquire is short, so a few are enough.
const ROWS_PER_LEVEL: u32 = 256;

/// So many numbers for each level on PostgreSQL, where they cost nothing.
#[cfg(feature = "_server")]
const NUMBERS_PER_LEVEL: u32 = 1 << LEVEL_SHIFT;
#[cfg(feature = "_server")]
const LEVEL_SHIFT: usize = 24;

/// The first number of PostgreSQL's: whose locks they are.
#[cfg(feature = "_server")]
const LOCK_CLASS: i32 = i32::from_be_bytes(*b"leas");

/// How nodes become slots, and which are locked in what order. SQLite has none.
#[cfg(feature = "_server")]
pub(super) fn scheme(driver: Driver, hierarchy: &Hierarchy) -> Option<Scheme> {
    let (dialect, buckets) = match driver {
        // Both understand it.
        Driver::Mysql => (Dialect::Mariadb, ROWS_PER_LEVEL),
        Driver::Postgres => (Dialect::Postgres, NUMBERS_PER_LEVEL),
        Driver::Sqlite => return None,
    };
    let scheme = Scheme::new(dialect).strategy(Strategy::Striped).and_then(|s| s.table(TABLE));
    let buckets = Buckets::new(buckets).expect("it is a count of buckets");
    let scheme = scheme.expect("every server has rows, and the name is plain");
    Some(scheme.buckets(buckets).hierarchy(hierarchy.clone()))
}

/// Returns what locks the slots of a node and of those above it, and how many rows come back if all are there.
#[cfg(feature = "_server")]
pub(super) fn lock(scheme: &Scheme, target: &Target) -> Result<(String, usize)> {
    let plan = scheme.plan([Claim { target: target.clone(), mode: Mode::Exclusive }])?;
    Ok(match scheme.dialect() {
        Dialect::Postgres => (lock_numbers(&plan), 1),
        Dialect::Mysql | Dialect::Mariadb => scheme.lock_and_rows(&plan),
    })
}

/// What makes the table and its rows; each may be run again.
pub(super) fn statements(driver: Driver) -> Vec<String> {
    #[cfg(feature = "_server")]
    if driver == Driver::Mysql {
        let table = scheme(driver, &Hierarchy::default()).and_then(|scheme| scheme.create_rows());
        return table.into_iter().chain(fill(driver)).collect();
    }
    let _ = driver;
    Vec::new()
}

/// What makes the rows that are missing.
pub(super) fn fill(driver: Driver) -> Option<String> {
    let (last, levels) = (ROWS_PER_LEVEL - 1, Hierarchy::MAX_LEVELS);
    let fill = format!(
        "INSERT IGNORE INTO {TABLE} (level, bucket) \
         WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) \
         SELECT levels.n, buckets.n FROM numbers levels, numbers buckets \
         WHERE levels.n < {levels} ORDER BY levels.n, buckets.n"
    );
    (driver == Driver::Mysql).then_some(fill)
}

/// They are taken from left to right.
#[cfg(feature = "_server")]
fn lock_numbers(plan: &Plan) -> String {
    let lock = |step: Step| {
        let shared = if step.mode == SlotMode::Shared { "_shared" } else { "" };
        let number = (step.level << LEVEL_SHIFT) as u64 | step.slot;
        format!("pg_advisory_xact_lock{shared}({LOCK_CLASS}, {number})")
    };
    format!("SELECT {}", plan.steps().map(lock).collect::<Vec<_>>().join(", "))
}

#[cfg(all(test, feature = "_server"))]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_numbers_of_its_own() {
        let scheme = scheme(Driver::Postgres, &Hierarchy::default()).unwrap();
        let target: Target = "u/a/r".parse().unwrap();
        let number = |level: usize| {
            let bucket = target.ancestor(level).bucket(Buckets::new(NUMBERS_PER_LEVEL).unwrap());
            (1 << 24) * level as u64 + u64::from(bucket)
        };
        let (sql, rows) = lock(&scheme, &target).unwrap();
        let [user, account, resource] = [0, 1, 2].map(number);
        let expected = format!(
            "SELECT pg_advisory_xact_lock_shared(1818583411, {user}), \
             pg_advisory_xact_lock_shared(1818583411, {account}), \
             pg_advisory_xact_lock(1818583411, {resource})"
        );
        assert_eq!((sql, rows), (expected, 1));
        // The server's are signed.
        let most = (Hierarchy::MAX_LEVELS << LEVEL_SHIFT) as u64;
        assert!(most < i32::MAX as u64);
    }
}
