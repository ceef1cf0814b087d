//! Locks on a server that is already there.
//!
//! [`Dialect`] is pure text: the SQL of a plan, taking rows or keys in the order of the plan. The
//! backend of `postgres:` runs it: each hold is a transaction on a connection of its own, which
//! belongs to a *keeper*, a task that no caller can drop.

mod backend;
mod keeper;
mod mariadb;
mod mysql;
mod pool;
mod postgres;
mod session;

pub(crate) use backend::{SqlBackend, SqlHold};

use crate::key::Buckets;
use crate::mode::{ModeSet, SlotMode};
use crate::plan::{Plan, Slots, Step};
use std::fmt;

/// The table of bucket rows.
pub const BUCKET_TABLE: &str = "hier_lock_buckets";

/// A server that hierlock can lock on, with its default strategy.
///
/// ```
/// use hierlock::{Claim, Hierarchy, Mode, Plan, Target, sql::Dialect};
///
/// let claim = Claim { target: Target::user("u1")?, mode: Mode::Exclusive };
/// let (slots, modes) = (Dialect::Mysql.slots(Default::default()), Dialect::Mysql.modes());
/// let plan = Plan::new(&Hierarchy::default(), [claim], slots, modes)?;
/// assert_eq!(
///     Dialect::Mysql.lock(&plan),
///     "(SELECT bucket FROM hier_lock_buckets WHERE level = 0 AND bucket = 2652417 FOR UPDATE)"
/// );
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// MySQL 8.0 and newer: bucket rows.
    Mysql,
    /// MariaDB 10.6 and newer: bucket rows.
    Mariadb,
    /// PostgreSQL 13 and newer: advisory keys.
    Postgres,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Dialect; 3] = [Dialect::Mysql, Dialect::Mariadb, Dialect::Postgres];

    /// How a node becomes a slot.
    pub fn slots(self, buckets: Buckets) -> Slots {
        match self {
            Dialect::Mysql | Dialect::Mariadb => Slots::Buckets(buckets),
            Dialect::Postgres => Slots::Keys,
        }
    }

    /// The modes that its slots have.
    pub fn modes(self) -> ModeSet {
        ModeSet::SharedExclusive
    }

    /// What takes all locks of a plan, to be run in a transaction at READ COMMITTED; ROLLBACK
    /// releases them.
    pub fn lock(self, plan: &Plan) -> String {
        match self {
            Dialect::Mysql => mysql::lock(plan),
            Dialect::Mariadb => mariadb::lock(plan),
            Dialect::Postgres => postgres::lock(plan),
        }
    }

    /// Its name, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Mysql => "mysql",
            Dialect::Mariadb => "mariadb",
            Dialect::Postgres => "postgres",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One locking SELECT a row, in order: InnoDB runs the branches of a UNION ALL one after the other,
/// and each locks its one record.
fn union_of_rows(plan: &Plan, clause: impl Fn(SlotMode) -> &'static str) -> String {
    let select = |Step { level, slot, mode, .. }: Step| {
        format!(
            "(SELECT bucket FROM {BUCKET_TABLE} WHERE level = {level} AND bucket = {slot} {})",
            clause(mode)
        )
    };
    plan.steps().map(select).collect::<Vec<_>>().join("\nUNION ALL ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, Hierarchy, Mode};

    fn sql(dialect: Dialect) -> String {
        let claim = Claim { target: "u1/a1".parse().unwrap(), mode: Mode::Exclusive };
        let slots = dialect.slots(Buckets::default());
        let plan = Plan::new(&Hierarchy::default(), [claim], slots, dialect.modes()).unwrap();
        dialect.lock(&plan)
    }

    #[test]
    fn each_dialect_takes_the_slots_in_order() {
        assert_eq!(
            sql(Dialect::Mysql),
            "(SELECT bucket FROM hier_lock_buckets WHERE level = 0 AND bucket = 2652417 FOR SHARE)\n\
             UNION ALL (SELECT bucket FROM hier_lock_buckets WHERE level = 1 AND bucket = 4854276 FOR UPDATE)"
        );
        assert_eq!(
            sql(Dialect::Mariadb),
            "(SELECT bucket FROM hier_lock_buckets WHERE level = 0 AND bucket = 2652417 LOCK IN SHARE MODE)\n\
             UNION ALL (SELECT bucket FROM hier_lock_buckets WHERE level = 1 AND bucket = 4854276 FOR UPDATE)"
        );
        let keys = ["u1", "u1/a1"].map(|p| p.parse::<crate::Target>().unwrap().key_hash() as i64);
        assert_eq!(
            sql(Dialect::Postgres),
            format!(
                "SELECT pg_advisory_xact_lock_shared({});\nSELECT pg_advisory_xact_lock({});",
                keys[0], keys[1]
            )
        );
    }
}
