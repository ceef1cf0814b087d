//! Whether a held lock blocks a requested one: the engine's rules, applied to locks that the lab has read. Pure.

use crate::observation::{LockKind, LockTarget};
use hierlock_engine::introspection::conflict;

pub(crate) use conflict::row_strength;

/// Returns whether `held` blocks `wanted` on the same object; `None` if the modes do not decide it.
pub(crate) fn conflicts(wanted: &LockTarget, held: &LockTarget) -> Option<bool> {
    match wanted.kind {
        LockKind::Row | LockKind::Gap if wanted.index.is_some() => {
            let is_supremum = wanted.record.as_deref() == Some("supremum");
            conflict::innodb_records_conflict(&wanted.mode, &held.mode, is_supremum)
        }
        LockKind::Row => conflict::postgres_rows_conflict(&wanted.mode, &held.mode),
        LockKind::Table => conflict::tables_conflict(&wanted.mode, &held.mode),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: LockKind, index: Option<&str>, mode: &str) -> LockTarget {
        let (index, record) = (index.map(str::to_owned), Some("1".to_owned()));
        LockTarget { index, record, ..LockTarget::new(kind, "t", mode) }
    }

    /// The rules of InnoDB as a table: the wanted mode, the held mode, whether the request waits.
    #[test]
    fn records_and_gaps_conflict_as_in_innodb() {
        for (wanted, held, waits) in [
            ("X,REC_NOT_GAP", "X,REC_NOT_GAP", true),
            ("S,REC_NOT_GAP", "S,REC_NOT_GAP", false),
            ("X,REC_NOT_GAP", "S,REC_NOT_GAP", true),
            ("X,REC_NOT_GAP", "X,GAP", false),
            ("X", "X", true),
            ("X", "S,GAP", false),
            ("X,GAP", "X,GAP", false),
            ("X,GAP", "X", false),
            ("X,GAP,INSERT_INTENTION", "X,GAP", true),
            ("X,GAP,INSERT_INTENTION", "S,GAP", true),
            ("X,GAP,INSERT_INTENTION", "X,REC_NOT_GAP", false),
            ("X,GAP,INSERT_INTENTION", "X,GAP,INSERT_INTENTION", false),
            ("X,GAP,INSERT_INTENTION", "X", true),
        ] {
            let row = |mode| target(LockKind::Row, Some("PRIMARY"), mode);
            assert_eq!(conflicts(&row(wanted), &row(held)), Some(waits), "{wanted} behind {held}");
        }
    }

    /// The conflict tables of PostgreSQL's manual.
    #[test]
    fn rows_and_tables_conflict_as_in_postgres() {
        let row = |mode| target(LockKind::Row, None, mode);
        for (wanted, held, waits) in [
            ("AccessShareLock", "For No Key Update", Some(false)),
            ("AccessShareLock", "For Update", Some(true)),
            ("RowShareLock", "Share", Some(false)),
            ("ExclusiveLock", "For Key Share", Some(false)),
            ("ExclusiveLock", "For Share", Some(true)),
            ("AccessExclusiveLock", "For Key Share", Some(true)),
            ("updating", "Share", Some(true)),
            ("updating", "Key Share", None),
            ("deleting", "Key Share", Some(true)),
            ("locking", "Share", None),
        ] {
            assert_eq!(conflicts(&row(wanted), &row(held)), waits, "{wanted} behind {held}");
        }
        let table = |mode| target(LockKind::Table, None, mode);
        for (wanted, held, waits) in [
            ("AccessShareLock", "ExclusiveLock", false),
            ("AccessShareLock", "AccessExclusiveLock", true),
            ("RowExclusiveLock", "ShareLock", true),
            ("ShareLock", "ShareLock", false),
            ("ShareLock", "RowExclusiveLock", true),
            ("ShareUpdateExclusiveLock", "ShareUpdateExclusiveLock", true),
            ("IX", "S", true),
            ("IX", "IX", false),
        ] {
            assert_eq!(conflicts(&table(wanted), &table(held)), Some(waits), "{wanted}, {held}");
        }
    }
}
