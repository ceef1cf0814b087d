//! Which lock is in the way of which request, by the words in which the engines write their modes. Pure.

use crate::observation::{LockKind, Thing};

/// Is `held` in the way of `wanted`? Both are on the same thing, of two sessions. `None` if the words of the
/// modes are not enough to say.
pub(crate) fn conflicts(wanted: &Thing, held: &Thing) -> Option<bool> {
    match wanted.kind {
        LockKind::Row | LockKind::Gap if wanted.index.is_some() => {
            let is_supremum = wanted.record.as_deref() == Some("supremum");
            let (wanted, held) = (InnodbMode::parse(&wanted.mode)?, InnodbMode::parse(&held.mode)?);
            Some(wanted.waits_for(&held, is_supremum))
        }
        LockKind::Row => rows_conflict(&wanted.mode, &held.mode),
        LockKind::Table => tables_conflict(&wanted.mode, &held.mode),
        _ => None,
    }
}

/// A mode of InnoDB, from the words of MySQL's table of locks: `X,REC_NOT_GAP`, `S,GAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InnodbMode<'a> {
    /// `X`, `S`, `IX`, `IS`, `AUTO_INC`.
    pub(crate) strength: &'a str,
    pub(crate) is_gap: bool,
    pub(crate) is_record_only: bool,
    pub(crate) is_insert: bool,
}

impl<'a> InnodbMode<'a> {
    fn parse(words: &'a str) -> Option<Self> {
        let strength = words.split(',').next().filter(|word| !word.is_empty())?;
        let has = |word: &str| words.split(',').any(|one| one == word);
        Some(Self {
            strength,
            is_gap: has("GAP"),
            is_record_only: has("REC_NOT_GAP"),
            is_insert: has("INSERT_INTENTION"),
        })
    }

    /// Must a request for a record wait for a lock on the same record? As InnoDB itself decides.
    pub(crate) fn waits_for(&self, held: &Self, is_supremum: bool) -> bool {
        let in_gap = self.is_gap || is_supremum;
        let needs_not = [
            innodb_compatible(self.strength, held.strength),
            // Gaps are held side by side; only who inserts into one waits.
            in_gap && !self.is_insert,
            // A record is not the gap before it, nor the other way round.
            held.is_gap && !self.is_insert,
            in_gap && held.is_record_only,
            // Nobody waits for one who only wants to insert.
            held.is_insert,
        ];
        !needs_not.contains(&true)
    }
}

/// Modes of InnoDB that can be held side by side.
pub(crate) fn innodb_compatible(a: &str, b: &str) -> bool {
    matches!(
        (a, b),
        ("IS", "IS" | "IX" | "S" | "AUTO_INC")
            | ("IX", "IS" | "IX" | "AUTO_INC")
            | ("S", "IS" | "S")
            | ("AUTO_INC", "IS" | "IX")
    )
}

/// How strong a row lock of PostgreSQL is, from 0: as the extension pgrowlocks, the tuple lock of one who
/// waits, or an error message says it.
pub(crate) fn row_strength(mode: &str) -> Option<usize> {
    Some(match mode.strip_prefix("For ").unwrap_or(mode) {
        "Key Share" | "AccessShareLock" => 0,
        "Share" | "RowShareLock" => 1,
        "No Key Update" | "ExclusiveLock" => 2,
        "Update" | "AccessExclusiveLock" | "deleting" => 3,
        _ => return None,
    })
}

fn rows_conflict(wanted: &str, held: &str) -> Option<bool> {
    const CONFLICTS: [[bool; 4]; 4] = [
        [false, false, false, true],
        [false, false, true, true],
        [false, true, true, true],
        [true, true, true, true],
    ];
    let held = row_strength(held)?;
    if wanted == "updating" {
        // It depends on whether the key is changed.
        return (held > 0).then_some(true);
    }
    Some(CONFLICTS[row_strength(wanted)?][held])
}

/// Modes of tables: those of PostgreSQL from the weakest to the strongest, those of InnoDB.
fn tables_conflict(wanted: &str, held: &str) -> Option<bool> {
    const MODES: [&str; 8] = [
        "AccessShareLock",
        "RowShareLock",
        "RowExclusiveLock",
        "ShareUpdateExclusiveLock",
        "ShareLock",
        "ShareRowExclusiveLock",
        "ExclusiveLock",
        "AccessExclusiveLock",
    ];
    // For each mode, those that it conflicts with: as in the manual.
    const CONFLICTS: [u8; 8] = [
        0b1000_0000,
        0b1100_0000,
        0b1111_0000,
        0b1111_1000,
        0b1110_1100,
        0b1111_1100,
        0b1111_1110,
        0b1111_1111,
    ];
    let number = |mode: &str| MODES.iter().position(|known| *known == mode);
    match (number(wanted), number(held)) {
        (Some(wanted), Some(held)) => Some(CONFLICTS[wanted] & (1 << held) != 0),
        (None, None) => {
            let is_innodb = |mode| matches!(mode, "X" | "S" | "IX" | "IS" | "AUTO_INC");
            let known = is_innodb(wanted) && is_innodb(held);
            known.then(|| !innodb_compatible(wanted, held))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(kind: LockKind, index: Option<&str>, mode: &str) -> Thing {
        Thing {
            kind,
            object: "t".to_owned(),
            index: index.map(str::to_owned),
            record: Some("1".to_owned()),
            mode: mode.to_owned(),
        }
    }

    /// The rules of InnoDB, as a table: wanted, held, must it wait?
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
            let row = |mode| thing(LockKind::Row, Some("PRIMARY"), mode);
            assert_eq!(conflicts(&row(wanted), &row(held)), Some(waits), "{wanted} behind {held}");
        }
    }

    /// The tables of PostgreSQL's manual.
    #[test]
    fn rows_and_tables_conflict_as_in_postgres() {
        let row = |mode| thing(LockKind::Row, None, mode);
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
        let table = |mode| thing(LockKind::Table, None, mode);
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
