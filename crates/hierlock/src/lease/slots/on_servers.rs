//! The slots of leases on MySQL, MariaDB and PostgreSQL.

use super::{ROWS, TABLE, fill};
use crate::database::Driver;
use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan, Step};
pub(in crate::lease) use crate::sql::Scheme;
use crate::sql::{Dialect, Strategy};
use crate::target::Target;

/// So many numbers for each level, where they cost nothing.
const NUMBERS: u32 = 1 << LEVEL_SHIFT;
const LEVEL_SHIFT: usize = 24;

/// The first number of PostgreSQL's: whose locks they are.
const OURS: i32 = i32::from_be_bytes(*b"leas");

/// How nodes become slots, and which are locked in what order.
pub(in crate::lease) fn scheme(driver: Driver, hierarchy: &Hierarchy) -> Option<Scheme> {
    let (dialect, buckets) = match driver {
        // Both understand it.
        Driver::Mysql => (Dialect::Mariadb, ROWS),
        Driver::Postgres => (Dialect::Postgres, NUMBERS),
        Driver::Sqlite => return None,
    };
    let scheme = Scheme::new(dialect).strategy(Strategy::Striped).and_then(|s| s.table(TABLE));
    let buckets = Buckets::new(buckets).expect("it is a count of buckets");
    let scheme = scheme.expect("every server has rows, and the name is plain");
    Some(scheme.buckets(buckets).hierarchy(hierarchy.clone()))
}

/// What makes the table and its rows; each may be run again.
pub(in crate::lease) fn statements(driver: Driver) -> Vec<String> {
    let scheme = scheme(driver, &Hierarchy::default());
    let (Driver::Mysql, Some(scheme)) = (driver, scheme) else { return Vec::new() };
    scheme.create_rows().into_iter().chain(fill(driver)).collect()
}

/// What locks the slots of a node and of those above it, and how many rows come back if all are there.
pub(in crate::lease) fn lock(scheme: &Scheme, target: &Target) -> Result<(String, usize)> {
    let plan = scheme.plan([Claim { target: target.clone(), mode: Mode::Exclusive }])?;
    Ok(match scheme.dialect() {
        Dialect::Postgres => (lock_numbers(&plan), 1),
        Dialect::Mysql | Dialect::Mariadb => scheme.lock_and_rows(&plan),
    })
}

/// They are taken from left to right.
fn lock_numbers(plan: &Plan) -> String {
    let lock = |step: Step| {
        let shared = if step.mode == SlotMode::Shared { "_shared" } else { "" };
        let number = (step.level << LEVEL_SHIFT) as u64 | step.slot;
        format!("pg_advisory_xact_lock{shared}({OURS}, {number})")
    };
    format!("SELECT {}", plan.steps().map(lock).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_numbers_of_its_own() {
        let scheme = scheme(Driver::Postgres, &Hierarchy::default()).unwrap();
        let target: Target = "u/a/r".parse().unwrap();
        let number = |level: usize| {
            let bucket = target.ancestor(level).bucket(Buckets::new(NUMBERS).unwrap());
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
