//! PostgreSQL's rows have no mode for an update lock that could be trusted: one that goes with readers, but
//! not with itself. `FOR NO KEY UPDATE` beside `FOR KEY SHARE` looks like it, but the server may grant
//! `FOR KEY SHARE` beside a `FOR UPDATE` that has come a moment before (`docs/backends.md`). So readers and
//! updaters share a row, and updaters exclude each other by an advisory key.
//!
//! All keys of a plan are taken before its rows, in their order: so nobody waits for a key with rows that
//! the holder of the key might want.

use super::statement::{Literal as _, LockStatement};
use super::{Dialect, Scheme, Strategy};
use crate::key::{FNV_32, fnv1a_32};
use crate::{SlotMode, Step};
use hierlock_engine::LockWaitPolicy;

/// How the server's answer begins, if a session waits for the second number of a key.
pub(super) const NAME: &str = "updater ";

/// The SQLSTATE of a division by zero, by which a key that is not free is refused.
const DIVISION_BY_ZERO: &str = "22012";

/// The second number, where an update lock of the step needs a key.
fn key(scheme: &Scheme, step: &Step) -> Option<i32> {
    let has_rows = scheme.strategy != Strategy::Advisory;
    let needs_one = scheme.dialect == Dialect::Postgres && has_rows;
    (needs_one && step.mode == SlotMode::Update).then(|| {
        let slot = if scheme.strategy.is_by_id() {
            step.target.key()
        } else {
            format!("{},{}", step.level, step.slot)
        };
        fnv1a_32(FNV_32, slot.as_bytes()) as i32
    })
}

/// What it is called when the server says that a session waits for it.
pub(super) fn name(scheme: &Scheme, step: &Step) -> Option<String> {
    // The server shows it without a sign.
    key(scheme, step).map(|key| format!("{NAME}{}", key as u32))
}

/// What takes the keys of these steps, if there are any. One that is not free, and not to be waited for,
/// is a division by zero.
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
    // The first number is the server's for the table: there may be one of that name in each schema.
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

/// Was a key not free?
pub(super) fn is_refusal(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(DIVISION_BY_ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Mode;
    use crate::plan::Claim;

    fn steps(scheme: &Scheme, mode: Mode) -> Vec<Step> {
        let target = "u1/a1/r1".parse().unwrap();
        scheme.plan([Claim { target, mode }]).unwrap().steps().collect()
    }

    #[test]
    fn only_update_locks_on_rows_of_postgres_have_keys() {
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
    fn each_statement_belongs_to_a_step() {
        let scheme = Scheme::new(Dialect::Postgres).strategy(Strategy::PerId).unwrap();
        let steps = [steps(&scheme, Mode::Update), steps(&scheme, Mode::Exclusive)].concat();
        let (sql, places) = scheme.take_singly(&steps);
        assert_eq!(sql.split(";\n").count(), places.len());
        assert_eq!(places, [0, 1, 2, 2, 3, 4, 5]);
    }

    /// The vectors of `docs/keys.md`.
    #[test]
    fn the_vectors_of_the_contract_hold() {
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
