//! Update locks on rows of PostgreSQL: `FOR SHARE` and an advisory key.
//!
//! An update lock is compatible with readers and excludes other update locks. PostgreSQL has no reliable row mode for it:
//! beside readers with `FOR KEY SHARE`, `FOR NO KEY UPDATE` would do, but the server may grant `FOR KEY SHARE` beside a
//! `FOR UPDATE` of a moment before (`docs/backends.md`). So readers and updaters share the row, and updaters exclude each
//! other by the key.
//!
//! All keys of a plan are taken in order before its rows. So no session waits for a key while it has rows that the holder
//! of the key may want.

use super::statement::{Literal as _, LockStatement};
use super::{Dialect, Scheme};
use crate::key::{FNV_32, fnv1a_32};
use crate::{SlotMode, Step, Target};
use hierlock_engine::LockWaitPolicy;

/// The prefix of the name of a key, if a session waits for a key instead of a row.
pub(super) const NAME_PREFIX: &str = "updater ";

/// The SQLSTATE of a division by zero, which the statement causes if a key is not free.
const DIVISION_BY_ZERO: &str = "22012";

/// Returns the second number of the advisory key of a step, if the step needs one. Only rows of PostgreSQL have update locks
/// ([`Scheme::modes`]).
fn key(scheme: &Scheme, step: &Step) -> Option<i32> {
    (step.mode == SlotMode::Update).then(|| {
        if scheme.strategy.is_by_id() {
            key_of_row(&step.target)
        } else {
            key_of_bucket(step.level, step.slot)
        }
    })
}

/// Returns the second number of the key for the row of a node.
pub(super) fn key_of_row(node: &Target) -> i32 {
    fnv1a_32(FNV_32, node.key().as_bytes()) as i32
}

/// Returns the second number of the key for a bucket.
pub(super) fn key_of_bucket(level: usize, bucket: u64) -> i32 {
    fnv1a_32(FNV_32, format!("{level},{bucket}").as_bytes()) as i32
}

/// Returns the name of the key of a step, as [`LockPool::waits_for`](super::LockPool::waits_for) returns it.
pub(super) fn name(scheme: &Scheme, step: &Step) -> Option<String> {
    // `pg_locks` shows the number as unsigned.
    key(scheme, step).map(|key| format!("{NAME_PREFIX}{}", key as u32))
}

/// Returns the statement that takes the keys of these steps, if there are any. If it does not wait, a key that is not free
/// causes a division by zero.
pub(super) fn take(
    scheme: &Scheme,
    steps: &[Step],
    policy: LockWaitPolicy,
) -> Option<LockStatement> {
    let mut keys: Vec<i32> = steps.iter().filter_map(|step| key(scheme, step)).collect();
    if keys.is_empty() {
        return None;
    }
    keys.sort_unstable();
    keys.dedup();
    // The first number of the key is the oid of the table, since each schema can have a table of this name.
    let table = format!("'{}'::regclass::oid::int", scheme.rows_table());
    let lock = match policy {
        LockWaitPolicy::Wait => format!("pg_advisory_xact_lock({table}, k)"),
        _ => format!("1 / pg_try_advisory_xact_lock({table}, k)::int"),
    };
    let rows = keys.len();
    let keys = keys.literal(Dialect::Postgres);
    let sql = format!("SELECT {lock} FROM unnest({keys}::int[]) k");
    Some(LockStatement { rows, ..LockStatement::text(sql) })
}

/// Returns whether a statement failed because a key was not free.
pub(super) fn is_refusal(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(DIVISION_BY_ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Strategy;
    use crate::{Claim, Mode};

    fn steps(scheme: &Scheme, mode: Mode) -> Vec<Step> {
        let target = "u1/a1/r1".parse().unwrap();
        scheme.plan([Claim { target, mode }]).unwrap().steps().collect()
    }

    #[test]
    fn only_update_locks_on_rows_of_postgres_have_advisory_keys() {
        let strategies = [Strategy::Striped, Strategy::PerId, Strategy::OnDemand];
        for strategy in strategies {
            let scheme = Scheme::new(Dialect::Postgres).strategy(strategy).unwrap();
            for mode in [Mode::Shared, Mode::Update, Mode::Exclusive] {
                let taken = take(&scheme, &steps(&scheme, mode), LockWaitPolicy::Wait);
                assert_eq!(taken.is_some(), mode == Mode::Update, "{strategy} {mode}");
            }
        }
        for scheme in [Dialect::Postgres, Dialect::Mysql, Dialect::Mariadb].map(Scheme::new) {
            assert_eq!(take(&scheme, &steps(&scheme, Mode::Update), LockWaitPolicy::Wait), None);
        }
    }

    #[test]
    fn statements_for_single_steps_map_to_their_steps() {
        let scheme = Scheme::new(Dialect::Postgres).strategy(Strategy::PerId).unwrap();
        let steps = [steps(&scheme, Mode::Update), steps(&scheme, Mode::Exclusive)].concat();
        let (sql, indices) = scheme.take_singly(&steps);
        assert_eq!(sql.split(";\n").count(), indices.len());
        assert_eq!(indices, [0, 1, 2, 2, 3, 4, 5]);
    }

    /// The vectors of `docs/keys.md`.
    #[test]
    fn the_keys_match_the_published_test_vectors() {
        let scheme = |strategy| Scheme::new(Dialect::Postgres).strategy(strategy).unwrap();
        let sql = |scheme: &Scheme| {
            take(scheme, &steps(scheme, Mode::Update), LockWaitPolicy::Wait)
                .map(|statement| statement.sql)
        };
        let lock = |table, key| {
            Some(format!(
                "SELECT pg_advisory_xact_lock('{table}'::regclass::oid::int, k) \
                 FROM unnest('{{{key}}}'::int[]) k"
            ))
        };
        assert_eq!(sql(&scheme(Strategy::Striped)), lock("hier_lock_buckets", -1_438_805_069));
        assert_eq!(sql(&scheme(Strategy::PerId)), lock("hier_locks", -253_609_246));
    }
}
