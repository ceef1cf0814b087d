//! The slot of a server's lock, and the nodes in a slot. Pure code.

use super::lock_tables::LockTable;
use crate::Target;
use crate::sql::{Scheme, Strategy, update_keys};
use hierlock_engine::introspection::{LockKind, LockTarget};
use std::collections::BTreeSet;
use std::fmt;

/// A slot of a server or a lock file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LockSlot {
    /// A bucket row, which several nodes may share.
    Bucket {
        /// The lock table.
        table: String,
        /// The level of its nodes.
        level: usize,
        /// The number of the bucket.
        bucket: u32,
    },
    /// The row of one node.
    Row {
        /// The lock table.
        table: String,
        /// The node.
        node: Target,
    },
    /// An advisory key of PostgreSQL.
    AdvisoryKey(i64),
    /// The advisory key of update locks on a row of PostgreSQL, if the row is unknown. The key is a hash of the row's slot.
    UpdateKey {
        /// The table of the row.
        table: String,
        /// The second number of the key, which is the hash.
        key: u32,
    },
    /// A byte of a lock file.
    Byte(u64),
}

/// `bucket 2/1358050`
impl fmt::Display for LockSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockSlot::Bucket { level, bucket, .. } => write!(f, "bucket {level}/{bucket}"),
            LockSlot::Row { node, .. } => write!(f, "row of {node}"),
            LockSlot::AdvisoryKey(key) => write!(f, "advisory key {key}"),
            LockSlot::UpdateKey { table, key } => write!(f, "update key {key} of {table}"),
            LockSlot::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

impl LockSlot {
    /// Returns the slot of a node under a scheme.
    pub(super) fn of(scheme: &Scheme, node: &Target) -> Self {
        let table = || scheme.rows_table().to_owned();
        match scheme.strategy {
            Strategy::Striped => {
                let (level, bucket) = (node.level(), node.bucket(scheme.buckets));
                LockSlot::Bucket { table: table(), level, bucket }
            }
            Strategy::PerId | Strategy::OnDemand => {
                LockSlot::Row { table: table(), node: node.clone() }
            }
            Strategy::Advisory => LockSlot::AdvisoryKey(node.key_hash().cast_signed()),
        }
    }

    /// Returns the slot of a lock, if it is on one of these lock tables. `database` is that of the session.
    pub(super) fn locked_by(
        target: &LockTarget,
        database: Option<&str>,
        tables: &[LockTable],
    ) -> Option<Self> {
        if let Some(key) = update_key(target, database, tables) {
            return Some(key);
        }
        let table = tables.iter().find(|table| table.has(target, database))?;
        let (scheme, name) = (&table.scheme, table.scheme.rows_table().to_owned());
        match scheme.strategy {
            Strategy::Advisory => target.object.parse().ok().map(LockSlot::AdvisoryKey),
            Strategy::Striped => {
                let (level, bucket) = target.record.as_deref()?.split_once(", ")?;
                let (level, bucket) = (level.parse().ok()?, bucket.parse().ok()?);
                Some(LockSlot::Bucket { table: name, level, bucket })
            }
            Strategy::PerId | Strategy::OnDemand => {
                let node = node_of_key(target.record.as_deref()?)?;
                Some(LockSlot::Row { table: name, node })
            }
        }
    }

    /// Returns those of the nodes that are in this slot.
    pub(super) fn nodes_among(
        &self,
        nodes: &BTreeSet<Target>,
        tables: &[LockTable],
    ) -> Vec<Target> {
        if let LockSlot::Row { node, .. } = self {
            return vec![node.clone()];
        }
        let is_in = |table: &LockTable, node: &Target| {
            let slot = Self::of(&table.scheme, node);
            slot == *self || slot.update_key().as_ref() == Some(self)
        };
        let is_here = |node: &&Target| tables.iter().any(|table| is_in(table, node));
        nodes.iter().filter(is_here).cloned().collect()
    }

    /// Returns the advisory key that update locks take before the row of this slot. `None` if the slot is no row.
    pub(super) fn update_key(&self) -> Option<Self> {
        let (table, key) = match self {
            LockSlot::Bucket { table, level, bucket } => {
                (table, update_keys::key_of_bucket(*level, (*bucket).into()))
            }
            LockSlot::Row { table, node } => (table, update_keys::key_of_row(node)),
            _ => return None,
        };
        // The server shows the key as an unsigned number.
        Some(LockSlot::UpdateKey { table: table.clone(), key: key.cast_unsigned() })
    }
}

/// Returns the update key of a lock of a session in `database`, if it is one: an advisory key of two numbers, of which the
/// first is the oid of a lock table.
fn update_key(
    target: &LockTarget,
    database: Option<&str>,
    tables: &[LockTable],
) -> Option<LockSlot> {
    if target.kind != LockKind::Advisory {
        return None;
    }
    let (oid, key) = target.object.split_once(", ")?;
    let (oid, key) = (oid.parse().ok()?, key.parse().ok()?);
    let table = tables.iter().find(|table| table.oid == Some(oid))?;
    // Each database has its own advisory keys, and `tables` are those of one database.
    let is_here = tables.iter().any(|it| !it.has_rows() && Some(&*it.schema) == database);
    is_here.then(|| LockSlot::UpdateKey { table: table.scheme.rows_table().to_owned(), key })
}

impl LockTable {
    /// Returns whether a lock of a session in `database` is on a row of this table, or on an advisory key.
    fn has(&self, target: &LockTarget, database: Option<&str>) -> bool {
        if self.has_rows() {
            return target.kind == LockKind::Row && self.is_of(target);
        }
        // Each database has its own advisory keys.
        target.kind == LockKind::Advisory && database == Some(&*self.schema)
    }

    /// Returns whether a lock is on this table: on a row, on the whole table or on its definition.
    pub(super) fn is_of(&self, target: &LockTarget) -> bool {
        self.has_rows()
            && target.object == self.scheme.rows_table()
            && target.schema.as_deref() == Some(&*self.schema)
    }
}

/// Parses the node of a row from its key in hexadecimal: `0x307C323A75312C` on InnoDB, `\x307c…` on PostgreSQL.
fn node_of_key(record: &str) -> Option<Target> {
    let hex = record.strip_prefix("0x").or_else(|| record.strip_prefix("\\x"))?;
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    Target::from_key(&String::from_utf8(bytes?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Dialect, SessionLabel};

    #[test]
    fn only_locks_on_the_lock_tables_have_a_slot() {
        let per_id = Scheme::new(Dialect::Mysql).strategy(Strategy::PerId).unwrap();
        let tables = [Scheme::new(Dialect::Mysql), per_id, Scheme::new(Dialect::Postgres)]
            .map(|scheme| LockTable::new(scheme, "app"));
        let key = |object| LockTarget::new(LockKind::Advisory, object, "X");
        let row = |schema: &str, object, record: &str| LockTarget {
            schema: Some(schema.to_owned()),
            record: Some(record.to_owned()),
            ..LockTarget::new(LockKind::Row, object, "X")
        };
        for (lock, slot) in [
            (row("app", "hier_lock_buckets", "2, 1358050"), Some("bucket 2/1358050")),
            (row("other", "hier_lock_buckets", "2, 1358050"), None),
            (row("app", "numbers", "2, 1358050"), None),
            (row("app", "hier_lock_buckets", "(0,1)"), None),
            (row("app", "hier_locks", "0x307C323A75312C"), Some("row of u1")),
            (row("app", "hier_locks", "\\x307c323a75312c"), Some("row of u1")),
            (row("app", "hier_locks", "0x307C323A7531…"), None),
            (key("-77"), Some("advisory key -77")),
            (key("7, 7"), None),
        ] {
            let found = LockSlot::locked_by(&lock, Some("app"), &tables);
            assert_eq!(found.map(|slot| slot.to_string()).as_deref(), slot, "{lock}");
        }
        let slot = LockSlot::locked_by(&key("-77"), Some("other"), &tables);
        assert_eq!(slot, None, "another database");
    }

    /// A stale label must not name a node.
    #[test]
    fn a_path_is_used_only_for_its_own_slots() {
        let tables = [LockTable::new(Scheme::new(Dialect::Mysql), "app")];
        let label = SessionLabel::parse("p@h:1 u1/a1/r1 u1/a1/r313").unwrap();
        for (level, bucket, nodes) in [
            (0, 2_652_417, &["u1"][..]),
            (1, 4_854_276, &["u1/a1"]),
            (2, 1_358_050, &["u1/a1/r1"]),
            // The bucket of r313 and of r36750.
            (2, 1_374_946, &["u1/a1/r313"]),
            (1, 1_358_050, &[]),
            (2, 7_882_385, &[]),
        ] {
            let slot = LockSlot::Bucket { table: "hier_lock_buckets".to_owned(), level, bucket };
            let found: Vec<String> =
                slot.nodes_among(&label.nodes(), &tables).iter().map(Target::to_string).collect();
            assert_eq!(found, nodes, "{slot}");
        }
    }
}
