//! The slots that an acquire locks until it ends, in the order of a lock plan. So two conflicting acquires run one after
//! the other, and acquires never deadlock.
//!
//! Slots are rows of a table on MySQL and MariaDB. On PostgreSQL they are advisory locks with two numbers, which are
//! separate from those with one number that hierlock's locks use. SQLite needs no slots, since it has only one writer.

use super::schema::{SLOT_ROWS_PER_LEVEL, SLOT_TABLE};
use crate::database::Driver;
use crate::sql::{Dialect, Scheme, Strategy};
use crate::{Buckets, Claim, Hierarchy, Mode, Result, SlotMode, Step, Target};

/// The number of slots per level on PostgreSQL, where they cost nothing.
const NUMBERS_PER_LEVEL: u32 = 1 << LEVEL_SHIFT;
const LEVEL_SHIFT: usize = 24;

/// The first number of the advisory locks on PostgreSQL, which marks them as lease slots.
const LOCK_CLASS: i32 = i32::from_be_bytes(*b"leas");

/// Returns how nodes become slots. `None` on SQLite.
pub(super) fn scheme(driver: Driver, hierarchy: &Hierarchy) -> Option<Scheme> {
    let (dialect, buckets) = match driver {
        // The statements of MariaDB work on MySQL too.
        Driver::Mysql => (Dialect::Mariadb, SLOT_ROWS_PER_LEVEL),
        Driver::Postgres => (Dialect::Postgres, NUMBERS_PER_LEVEL),
        Driver::Sqlite => return None,
    };
    let scheme = Scheme::new(dialect).strategy(Strategy::Striped).and_then(|s| s.table(SLOT_TABLE));
    let buckets = Buckets::new(buckets).expect("the number of slots is a valid bucket count");
    let scheme =
        scheme.expect("every server has the striped strategy, and the table name is valid");
    Some(scheme.buckets(buckets).hierarchy(hierarchy.clone()))
}

/// Returns the statement that locks the slots of a node and its ancestors, and the number of rows that it returns if all
/// slots exist.
pub(super) fn lock(scheme: &Scheme, target: &Target) -> Result<(String, usize)> {
    let plan = scheme.plan([Claim { target: target.clone(), mode: Mode::Exclusive }])?;
    if scheme.dialect() != Dialect::Postgres {
        return Ok(scheme.lock_and_rows(&plan));
    }
    // One SELECT takes all advisory locks: PostgreSQL evaluates it from left to right.
    let lock = |step: Step| {
        let shared = if step.mode == SlotMode::Shared { "_shared" } else { "" };
        let number = (step.level << LEVEL_SHIFT) as u64 | step.slot;
        format!("pg_advisory_xact_lock{shared}({LOCK_CLASS}, {number})")
    };
    Ok((format!("SELECT {}", plan.steps().map(lock).collect::<Vec<_>>().join(", ")), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_own_lock_numbers() {
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
        // The server's numbers are signed.
        let end = (Hierarchy::MAX_LEVELS << LEVEL_SHIFT) as u64;
        assert!(end < i32::MAX as u64);
    }
}
