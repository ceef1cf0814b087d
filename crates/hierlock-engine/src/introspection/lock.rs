//! Locks, waits and deadlocks, in the same words for all servers.

use std::fmt;

/// What kind of lock is held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// A row, or an index record.
    Row,
    /// The space before a record, also for an insert that wants into it.
    Gap,
    /// A whole table, by a statement on its rows or by LOCK TABLES.
    Table,
    /// The definition of a table.
    Metadata,
    /// An advisory key, or a lock by name (GET_LOCK).
    Advisory,
    /// The end of another transaction, on PostgreSQL: how a wait for a row shows there.
    Transaction,
    /// A node of a tree, which a library locks by other means. No server lists one.
    Node,
    /// Something else, which is named.
    Other,
}

impl LockKind {
    /// All of them.
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

    /// Returns its name.
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

/// What is locked, and in which mode: as much as the server tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockTarget {
    /// Its kind.
    pub kind: LockKind,
    /// The database (MySQL, MariaDB) or schema (PostgreSQL) of the object, if it is in one.
    pub schema: Option<String>,
    /// The table, the key, or what else it is.
    pub object: String,
    /// The index, for a row or a gap of InnoDB.
    pub index: Option<String>,
    /// Which record, or the record behind the gap, such as `1` or `supremum`.
    pub record: Option<String>,
    /// The mode, in the server's own words: `X,REC_NOT_GAP`, `AccessExclusiveLock`.
    pub mode: String,
}

impl LockTarget {
    /// Something that is in no schema and has no parts.
    pub(super) fn new(kind: LockKind, object: impl Into<String>, mode: &str) -> Self {
        let (object, mode) = (object.into(), mode.to_owned());
        Self { kind, schema: None, object, index: None, record: None, mode }
    }

    /// A table, or something that belongs to one.
    pub(super) fn of_table(kind: LockKind, schema: &str, table: &str, mode: &str) -> Self {
        let schema = (!schema.is_empty()).then(|| schema.to_owned());
        Self { schema, ..Self::new(kind, table, mode) }
    }

    /// A row or a gap of InnoDB, from the words of MySQL's tables of locks: `X,REC_NOT_GAP`, `X,GAP,INSERT_INTENTION`.
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

/// A session waits for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Who waits.
    pub waiter: i64,
    /// Who is in the way, ascending. Empty if the server does not tell. On PostgreSQL 0 is a prepared transaction, which
    /// has no session.
    pub blockers: Vec<i64>,
    /// For what, if the server tells.
    pub wanted: Option<LockTarget>,
}

/// A lock that a session has, or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionLock {
    /// Whose.
    pub session: i64,
    /// On what.
    pub target: LockTarget,
    /// Whether it is held, not only wanted.
    pub granted: bool,
}

/// The locks of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockList {
    /// In order, each once.
    pub locks: Vec<SessionLock>,
    /// Of whom there are more.
    pub incomplete: Vec<IncompleteLocks>,
}

/// Says that not all locks of a session are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteLocks {
    /// Whose; None for everybody's.
    pub session: Option<i64>,
    /// Why, in a sentence.
    pub reason: String,
}

/// A deadlock that is over, as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockReport {
    /// Tells it from another. Empty on PostgreSQL, which reports it to the victim alone.
    pub id: String,
    /// Each waits for the next, the last for the first.
    pub waits: Vec<DeadlockWait>,
}

/// One wait of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockWait {
    /// Who waited.
    pub waiter: i64,
    /// For whom.
    pub holder: i64,
    /// For what, if the server tells.
    pub wanted: Option<LockTarget>,
    /// The locks and queued requests of the holder that were in the way, as far as they are reported.
    pub blocking: Vec<SessionLock>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_a_person_would_say_them() {
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
