//! The holders of row locks on a lock table of PostgreSQL. Pure code; [`LockInspector`](super::LockInspector) runs the
//! query.
//!
//! The server stores row locks in the rows, not in `pg_locks`. Labels name paths, so the rows of these paths can be read by
//! primary key. The system column `xmax` of a row identifies the last transactions that have locked it:
//!
//! | locked by | `xmax` |
//! |---|---|
//! | one transaction, in any mode | its transaction id; after a savepoint, the id of the subtransaction |
//! | several transactions | a *multixact* id: `pg_get_multixact_members` lists transactions and modes |
//!
//! `xmax` stays when these transactions have ended. So a lock is reported only if its transaction is still running, that is,
//! if a session has the lock that every transaction has on its own id. (A subtransaction releases that lock at RELEASE
//! SAVEPOINT, and is not found afterwards.)
//!
//! 1. Transaction ids and multixact ids both have 32 bits, and SQL does not show which of them an `xmax` is. If it may be
//!    either, only the locks on which both readings agree are reported.
//! 2. SQL does not show the mode of a lock that one transaction has alone. The mode is taken from the label.

use super::LockSlot;
use super::lock_tables::LockTable;
use crate::sql::SessionLabel;
use crate::sql::statement::{Literal as _, hex};
use crate::{SlotMode, Target};
use hierlock_engine::introspection::{LockKind, LockTarget, SessionLock};
use hierlock_engine::{CellRow, cell, number_cell};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of rows that are read from a table.
const MAX_ROWS: usize = 4_000;

/// The modes of multixact members, ascending by strength, with the lock clauses of the statements that take them.
const MEMBER_MODES: [(&str, &str); 6] = [
    ("keysh", "For Key Share"),
    ("sh", "For Share"),
    ("fornokeyupd", "For No Key Update"),
    ("nokeyupd", "No Key Update"),
    ("forupd", "For Update"),
    ("upd", "Update"),
];

/// A query for the holders of rows of a table.
#[derive(Debug)]
pub(super) struct RowQuery<'a> {
    table: &'a LockTable,
    slots: Vec<LockSlot>,
    /// Whether some rows are left out because of [`MAX_ROWS`].
    pub(super) is_cut: bool,
}

impl<'a> RowQuery<'a> {
    /// Makes a query for the rows of these nodes, and for those of these slots that are rows of the table.
    pub(super) fn new<'b>(
        table: &'a LockTable,
        nodes: impl IntoIterator<Item = &'b Target>,
        slots: impl IntoIterator<Item = &'b LockSlot>,
    ) -> Self {
        let of_nodes = nodes.into_iter().map(|node| LockSlot::of(&table.scheme, node));
        let slots = slots.into_iter().filter(|slot| table.has_slot(slot)).cloned();
        let slots: BTreeSet<LockSlot> = slots.chain(of_nodes).collect();
        let is_cut = slots.len() > MAX_ROWS;
        Self { table, slots: slots.into_iter().take(MAX_ROWS).collect(), is_cut }
    }

    /// Returns the SQL, or `None` if there is no row to read. Each row of the answer has the position of a slot, from 1, a
    /// process id, and the mode if the session is a member of a multixact.
    pub(super) fn sql(&self) -> Option<String> {
        if self.slots.is_empty() {
            return None;
        }
        let dialect = self.table.scheme.dialect;
        let (list, columns, row) = if self.table.scheme.strategy.is_by_id() {
            let keys = self.slots.iter().filter_map(|slot| match slot {
                LockSlot::Row { node, .. } => Some(node.key().into_bytes()),
                _ => None,
            });
            (keys.collect::<Vec<_>>().literal(dialect), "k", "t.lock_key = v.k")
        } else {
            let buckets = self.slots.iter().filter_map(|slot| match slot {
                LockSlot::Bucket { level, bucket, .. } => Some((*level as i32, *bucket as i32)),
                _ => None,
            });
            let (levels, buckets): (Vec<i32>, Vec<i32>) = buckets.unzip();
            let list =
                format!("{}::int[], {}::int[]", levels.literal(dialect), buckets.literal(dialect));
            (list, "l, b", "t.level = v.l AND t.bucket = v.b")
        };
        let table = self.table.qualified_name();
        // LIMIT makes the server look up each row in the index, also without statistics of the table. The function fails for
        // an id that is no multixact of this table, so such ids are replaced by NULL.
        Some(format!(
            "WITH found AS MATERIALIZED (SELECT v.n, r.x, r.o FROM unnest({list}) WITH ORDINALITY v({columns}, n) \
             CROSS JOIN LATERAL (SELECT t.xmax AS x, t.tableoid AS o FROM {table} t WHERE {row} LIMIT 1) r \
             WHERE r.x <> '0'::xid), \
             running AS MATERIALIZED (SELECT transactionid AS x, pid FROM pg_locks \
             WHERE locktype = 'transactionid' AND granted AND mode = 'ExclusiveLock' AND pid IS NOT NULL) \
             SELECT f.n, s.pid, NULL FROM found f JOIN running s ON s.x = f.x \
             UNION ALL SELECT f.n, s.pid, m.mode FROM found f \
             JOIN pg_class c ON c.oid = f.o CROSS JOIN LATERAL pg_get_multixact_members(\
             CASE WHEN mxid_age(f.x) BETWEEN 1 AND mxid_age(c.relminmxid) THEN f.x END) m \
             JOIN running s ON s.x = m.xid"
        ))
    }

    /// Returns the locks in an answer. `labels` are the labels of the sessions by process id.
    pub(super) fn locks(
        &self,
        answer: &[CellRow],
        labels: &BTreeMap<i64, SessionLabel>,
    ) -> Vec<SessionLock> {
        let mut holders: BTreeMap<&LockSlot, RowHolders> = BTreeMap::new();
        for row in answer {
            let slot_at = |position: i64| self.slots.get(usize::try_from(position - 1).ok()?);
            let slot = number_cell(row, 0).and_then(slot_at);
            let (Some(slot), Some(pid)) = (slot, number_cell(row, 1)) else { continue };
            let holders = holders.entry(slot).or_default();
            match MEMBER_MODES.iter().position(|(mode, _)| *mode == cell(row, 2)) {
                Some(mode) => {
                    let strongest = holders.members.entry(pid).or_insert(mode);
                    *strongest = mode.max(*strongest);
                }
                None => {
                    holders.owner.insert(pid);
                }
            }
        }
        let label_modes: BTreeMap<i64, BTreeMap<LockSlot, SlotMode>> =
            labels.iter().map(|(pid, label)| (*pid, modes_of(label, self.table))).collect();
        let mut locks = Vec::new();
        for (slot, holders) in holders {
            for (session, mode) in holders.proven_holders() {
                let label_mode =
                    || label_modes.get(&session)?.get(slot).map(|mode| lock_clause(*mode));
                let mode = mode.or_else(label_mode).unwrap_or_default();
                let target = self.table.row_target(slot, mode);
                locks.push(SessionLock { session, target, granted: true });
            }
        }
        locks
    }
}

/// The possible holders of a row, by both readings of its `xmax`.
#[derive(Debug, Default)]
struct RowHolders {
    /// The session of the transaction with this id.
    owner: BTreeSet<i64>,
    /// The sessions in the multixact with this id, each with the index of its mode in [`MEMBER_MODES`].
    members: BTreeMap<i64, usize>,
}

impl RowHolders {
    /// Returns the sessions that certainly hold the row, with the mode if the server shows it.
    fn proven_holders(&self) -> Vec<(i64, Option<&'static str>)> {
        let Self { owner, members } = self;
        if owner.is_empty() {
            let member = |(pid, mode): (&i64, &usize)| (*pid, Some(MEMBER_MODES[*mode].1));
            return members.iter().map(member).collect();
        }
        let is_proven = |pid: &&i64| members.is_empty() || members.contains_key(pid);
        owner.iter().filter(is_proven).map(|pid| (*pid, None)).collect()
    }
}

/// Returns the modes of the slots that a label names. Empty if the label omits targets, which may need a stronger mode of
/// the same slots.
fn modes_of(label: &SessionLabel, table: &LockTable) -> BTreeMap<LockSlot, SlotMode> {
    let mut modes = BTreeMap::new();
    if label.omitted > 0 {
        return modes;
    }
    let slot = |node: &Target| LockSlot::of(&table.scheme, node);
    // Planning fails for paths that are not targets of this table.
    if let Ok(plan) = table.scheme.plan(label.claims.iter().cloned()) {
        modes.extend(plan.steps().map(|step| (slot(&step.target), step.mode)));
    }
    for node in label.nodes() {
        // The ancestors of a cut target are locked shared, unless another target needs a stronger mode.
        if !label.targets().any(|target| node.contains(target)) {
            modes.entry(slot(&node)).or_insert(SlotMode::Shared);
        }
    }
    modes
}

/// Returns the lock clause of a mode. An update lock is a shared lock of the row, and an advisory key.
fn lock_clause(mode: SlotMode) -> &'static str {
    if mode == SlotMode::Exclusive { "For Update" } else { "For Share" }
}

impl LockTable {
    /// Returns whether a slot is a row of this table.
    fn has_slot(&self, slot: &LockSlot) -> bool {
        let is_by_id = self.scheme.strategy.is_by_id();
        match slot {
            LockSlot::Bucket { table, .. } => !is_by_id && table == self.scheme.rows_table(),
            LockSlot::Row { table, .. } => is_by_id && table == self.scheme.rows_table(),
            _ => false,
        }
    }

    /// Returns the quoted name of the table with its schema.
    pub(super) fn qualified_name(&self) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        format!("{}.{}", quoted(&self.schema), quoted(self.scheme.rows_table()))
    }

    /// Returns the lock on a row in the form in which servers list locks.
    fn row_target(&self, slot: &LockSlot, mode: &str) -> LockTarget {
        let record = match slot {
            LockSlot::Bucket { level, bucket, .. } => Some(format!("{level}, {bucket}")),
            LockSlot::Row { node, .. } => Some(format!("\\x{}", hex(node.key().as_bytes()))),
            _ => None,
        };
        let schema = Some(self.schema.clone());
        LockTarget {
            schema,
            record,
            ..LockTarget::new(LockKind::Row, self.scheme.rows_table(), mode)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buckets;
    use crate::sql::{Dialect, Scheme, Strategy};

    fn table(strategy: Strategy) -> LockTable {
        let scheme = Scheme::new(Dialect::Postgres).strategy(strategy).unwrap();
        LockTable::new(scheme.buckets(Buckets::new(100).unwrap()), "it's \"here\"")
    }

    fn labels(labels: &[(i64, &str)]) -> BTreeMap<i64, SessionLabel> {
        let parse = |(pid, text): &(i64, &str)| (*pid, SessionLabel::parse(text).unwrap());
        labels.iter().map(parse).collect()
    }

    /// Returns the reported locks as `slot pid mode`. The answer of the server has rows of `(node, pid, mode of a member)`.
    fn reported_locks(
        strategy: Strategy,
        label_texts: &[(i64, &str)],
        answer: &[(&str, i64, Option<&str>)],
    ) -> Vec<String> {
        let (table, labels) = (table(strategy), labels(label_texts));
        let nodes: BTreeSet<Target> = labels.values().flat_map(SessionLabel::nodes).collect();
        let query = RowQuery::new(&table, &nodes, []);
        let position = |path: &str| {
            let slot = LockSlot::of(&table.scheme, &path.parse().unwrap());
            query.slots.iter().position(|it| *it == slot).unwrap() + 1
        };
        let row = |(path, pid, mode): &(&str, i64, Option<&str>)| {
            vec![Some(position(path).to_string()), Some(pid.to_string()), mode.map(str::to_owned)]
        };
        let answer: Vec<CellRow> = answer.iter().map(row).collect();
        let locks = query.locks(&answer, &labels).into_iter().map(|lock| {
            let slot = LockSlot::locked_by(&lock.target, None, std::slice::from_ref(&table));
            let slot = slot.unwrap().to_string();
            format!("{slot} {} {}", lock.session, lock.target.mode)
        });
        locks.collect()
    }

    #[test]
    fn a_lock_is_reported_if_a_running_transaction_has_it() {
        // The row has one holder, so the server shows no mode.
        const SOLE_HOLDER: Option<&str> = None;
        let (share, update) = (Some("sh"), Some("forupd"));
        let one = &[(7, "p@h:1 u1/a1")][..];
        let two = &[(7, "p@h:1 u1/a1"), (8, "p@h:2 u1/a2=S")];
        for (label_texts, answer, expected) in [
            // A label without a locked row is no lock.
            (one, &[][..], &[][..]),
            // The modes of a sole holder are taken from its label.
            (
                one,
                &[("u1", 7, SOLE_HOLDER), ("u1/a1", 7, SOLE_HOLDER)],
                &["row of u1 7 For Share", "row of u1/a1 7 For Update"],
            ),
            // The session has locked only its first row so far.
            (one, &[("u1", 7, SOLE_HOLDER)], &["row of u1 7 For Share"]),
            // The server shows the modes of several holders. A shared target that is no leaf is locked exclusively.
            (
                two,
                &[("u1", 7, share), ("u1", 8, share), ("u1/a2", 8, SOLE_HOLDER)],
                &["row of u1 7 For Share", "row of u1 8 For Share", "row of u1/a2 8 For Update"],
            ),
            // Two locks of one session: one of them was taken after a savepoint.
            (one, &[("u1/a1", 7, share), ("u1/a1", 7, update)], &["row of u1/a1 7 For Update"]),
            // `xmax` may be a transaction id or a multixact id.
            (two, &[("u1", 7, SOLE_HOLDER), ("u1", 8, share)], &[]),
            (two, &[("u1", 7, SOLE_HOLDER), ("u1", 7, share)], &["row of u1 7 For Share"]),
            // The label of the holder does not name the row, so the mode is unknown.
            (
                two,
                &[("u1/a2", 7, SOLE_HOLDER), ("u1", 9, SOLE_HOLDER)],
                &["row of u1 9 ", "row of u1/a2 7 "],
            ),
            // An omitted target may need a stronger mode.
            (&[(7, "p@h:1 u1/a1 +1")], &[("u1", 7, SOLE_HOLDER)], &["row of u1 7 "]),
            // A cut target is below the visible part of its path.
            (&[(7, "p@h:1 u1/a1/0*")], &[("u1", 7, SOLE_HOLDER)], &["row of u1 7 For Share"]),
            (&[(7, "p@h:1 u1 u1/a1/0*")], &[("u1", 7, SOLE_HOLDER)], &["row of u1 7 For Update"]),
            // Leaves.
            (
                &[(7, "p@h:1 u1/a1/r1=S")],
                &[("u1/a1/r1", 7, SOLE_HOLDER)],
                &["row of u1/a1/r1 7 For Share"],
            ),
            (
                &[(7, "p@h:1 u1/a1/r1=U")],
                &[("u1/a1/r1", 7, SOLE_HOLDER)],
                &["row of u1/a1/r1 7 For Share"],
            ),
        ] {
            let locks = reported_locks(Strategy::PerId, label_texts, answer);
            assert_eq!(locks, expected, "{label_texts:?} {answer:?}");
        }
        let bucket = "u1".parse::<Target>().unwrap().bucket(Buckets::new(100).unwrap());
        assert_eq!(
            reported_locks(Strategy::Striped, one, &[("u1", 7, SOLE_HOLDER)]),
            [format!("bucket 0/{bucket} 7 For Share")]
        );
    }

    #[test]
    fn a_bounded_number_of_rows_is_read_by_key() {
        let striped = table(Strategy::Striped);
        let slot =
            |bucket| LockSlot::Bucket { table: "hier_lock_buckets".to_owned(), level: 1, bucket };
        let other = LockSlot::AdvisoryKey(7);
        let query = RowQuery::new(&striped, [], [&slot(5), &slot(3), &other, &slot(5)]);
        let sql = query.sql().unwrap();
        assert!(sql.contains("unnest('{1,1}'::int[], '{3,5}'::int[])"), "{sql}");
        assert!(sql.contains("\"it's \"\"here\"\"\".\"hier_lock_buckets\""), "{sql}");
        assert!(RowQuery::new(&striped, [], [&other]).sql().is_none());
        let many: Vec<LockSlot> = (0..=MAX_ROWS as u32).map(slot).collect();
        let query = RowQuery::new(&striped, [], &many[1..]);
        assert_eq!((query.slots.len(), query.is_cut), (MAX_ROWS, false));
        let query = RowQuery::new(&striped, [], &many);
        assert_eq!((query.slots.len(), query.is_cut), (MAX_ROWS, true));
        let by_id = table(Strategy::OnDemand);
        let node = "u1".parse().unwrap();
        let sql = RowQuery::new(&by_id, [&node], &many).sql().unwrap();
        assert!(sql.contains("ARRAY[E'\\\\x307c323a75312c'::bytea]::bytea[]"), "{sql}");
    }
}
