//! Locks, waits and deadlocks, in the same terms for all servers.

use serde::Serialize;
use std::fmt;

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// A row, or an index record.
    Row,
    /// The gap before an index record, also for an insert into it.
    Gap,
    /// A table, locked by a statement on its rows or by LOCK TABLES.
    Table,
    /// The definition of a table.
    Metadata,
    /// An advisory key, or a user-level lock (GET_LOCK).
    Advisory,
    /// The end of another transaction: on PostgreSQL, a wait for a row is a wait for its transaction.
    Transaction,
    /// A node of a lock tree, which a library locks by other means. No server lists it.
    Node,
    /// Any other object, which is named.
    Other,
}

impl LockKind {
    /// All kinds.
    pub const ALL: [LockKind; 8] = [
        LockKind::Row,
        LockKind::Gap,
        LockKind::Table,
        LockKind::Metadata,
        LockKind::Advisory,
        LockKind::Transaction,
        LockKind::Node,
        LockKind::Other,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            LockKind::Row => "row",
            LockKind::Gap => "gap",
            LockKind::Table => "table",
            LockKind::Metadata => "metadata",
            LockKind::Advisory => "advisory",
            LockKind::Transaction => "transaction",
            LockKind::Node => "node",
            LockKind::Other => "other",
        }
    }
}

/// The object of a lock and its mode, as far as the server reports them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct LockTarget {
    /// The kind.
    pub kind: LockKind,
    /// The database (MySQL, MariaDB) or schema (PostgreSQL) of the object, if it is in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The table, key or other object.
    pub object: String,
    /// The index, for a row or a gap of InnoDB.
    pub index: Option<String>,
    /// The record, or the record after the gap, such as `1` or `supremum`.
    pub record: Option<String>,
    /// The mode as the server writes it: `X,REC_NOT_GAP`, `AccessExclusiveLock`.
    pub mode: String,
}

impl LockTarget {
    /// Returns a target without schema, index and record.
    pub fn new(kind: LockKind, object: impl ToString, mode: impl ToString) -> Self {
        let (object, mode) = (object.to_string(), mode.to_string());
        Self { kind, schema: None, object, index: None, record: None, mode }
    }

    /// Returns a table, or an object that belongs to one.
    pub(super) fn of_table(kind: LockKind, schema: &str, table: &str, mode: &str) -> Self {
        let schema = (!schema.is_empty()).then(|| schema.to_owned());
        Self { schema, ..Self::new(kind, table, mode) }
    }

    /// Returns a row or a gap of InnoDB, from the modes of MySQL's `data_locks`: `X,REC_NOT_GAP`,
    /// `X,GAP,INSERT_INTENTION`.
    pub(super) fn of_record(index: [&str; 3], record: Option<String>, mode: &str) -> Self {
        let [schema, table, index] = index;
        let is_supremum = record.as_ref().is_some_and(|record| record.starts_with("supremum"));
        let is_gap =
            is_supremum || mode.split(',').any(|word| word == "GAP" || word == "INSERT_INTENTION");
        let kind = if is_gap { LockKind::Gap } else { LockKind::Row };
        Self {
            index: Some(index.to_owned()),
            record: if is_supremum { Some("supremum".to_owned()) } else { record },
            ..Self::of_table(kind, schema, table, mode)
        }
    }
}

/// `row 1 of app.numbers (PRIMARY), X`
impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            LockKind::Gap => write!(f, "gap before ")?,
            kind => write!(f, "{} ", kind.name())?,
        }
        if let Some(record) = &self.record {
            write!(f, "{record} of ")?;
        }
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        write!(f, "{}", self.object)?;
        if let Some(index) = &self.index {
            write!(f, " ({index})")?;
        }
        if self.mode.is_empty() { Ok(()) } else { write!(f, ", {}", self.mode) }
    }
}

/// A session that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The process id of the waiting session.
    pub waiter: i64,
    /// The blockers, ascending. Empty if the server does not report them. On PostgreSQL 0 is a prepared transaction,
    /// which has no session.
    pub blockers: Vec<i64>,
    /// The lock that is waited for, if the server reports it.
    pub wanted: Option<LockTarget>,
}

/// A lock that a session holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionLock {
    /// The process id.
    pub session: i64,
    /// The object and mode.
    pub target: LockTarget,
    /// Whether the lock is held, not only wanted.
    pub granted: bool,
}

/// The locks of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockList {
    /// The locks, sorted, without duplicates.
    pub locks: Vec<SessionLock>,
    /// The sessions whose locks are not all listed.
    pub incomplete: Vec<IncompleteLocks>,
}

/// A remark that not all locks of a session are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteLocks {
    /// The process id; None for all sessions.
    pub session: Option<i64>,
    /// The reason, as a sentence.
    pub reason: String,
}

/// A resolved deadlock, as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockReport {
    /// Distinguishes deadlocks. Empty on PostgreSQL, which reports a deadlock only to its victim.
    pub id: String,
    /// The waits: each session waits for the next, the last for the first.
    pub waits: Vec<DeadlockWait>,
}

/// One wait of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockWait {
    /// The process id of the waiting session.
    pub waiter: i64,
    /// The process id of its blocker.
    pub holder: i64,
    /// The lock that was waited for, if the server reports it.
    pub wanted: Option<LockTarget>,
    /// The locks and queued requests of the blocker that caused the wait, as far as they are reported.
    pub blocking: Vec<SessionLock>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_printed_with_its_record_table_index_and_mode() {
        let row = LockTarget {
            index: Some("PRIMARY".to_owned()),
            record: Some("1".to_owned()),
            ..LockTarget::of_table(LockKind::Row, "app", "numbers", "X")
        };
        assert_eq!(row.to_string(), "row 1 of app.numbers (PRIMARY), X");
        let gap = LockTarget { kind: LockKind::Gap, schema: None, mode: String::new(), ..row };
        assert_eq!(gap.to_string(), "gap before 1 of numbers (PRIMARY)");
        let key = LockTarget::new(LockKind::Advisory, "7", "ExclusiveLock");
        assert_eq!(key.to_string(), "advisory 7, ExclusiveLock");
    }
}
