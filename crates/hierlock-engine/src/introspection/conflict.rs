//! Which lock is in the way of which request, by the words in which the servers write their modes. Pure.

/// Must a request for a record of InnoDB wait for a lock on it? None if a mode is none of MySQL's, as `X,REC_NOT_GAP`.
pub fn innodb_records_conflict(wanted: &str, held: &str, is_supremum: bool) -> Option<bool> {
    let (wanted, held) = (InnodbMode::parse(wanted)?, InnodbMode::parse(held)?);
    Some(wanted.waits_for(&held, is_supremum))
}

/// A mode of InnoDB, from the words of MySQL's table of locks: `X,REC_NOT_GAP`, `S,GAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InnodbMode<'a> {
    /// `X`, `S`, `IX`, `IS`, `AUTO_INC`.
    strength: &'a str,
    is_gap: bool,
    is_record_only: bool,
    is_insert: bool,
}

impl<'a> InnodbMode<'a> {
    pub(super) fn parse(words: &'a str) -> Option<Self> {
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
    pub(super) fn waits_for(&self, held: &Self, is_supremum: bool) -> bool {
        let in_gap = self.is_gap || is_supremum;
        let needs_not = self.is_compatible(held)
            // Gaps are held side by side; only who inserts into one waits.
            || in_gap && !self.is_insert
            // A record is not the gap before it, nor the other way round.
            || held.is_gap && !self.is_insert
            || in_gap && held.is_record_only
            // Nobody waits for one who only wants to insert.
            || held.is_insert;
        !needs_not
    }

    /// Can both be held side by side on the same table or record?
    pub(super) fn is_compatible(&self, held: &Self) -> bool {
        matches!(
            (self.strength, held.strength),
            ("IS", "IS" | "IX" | "S" | "AUTO_INC")
                | ("IX", "IS" | "IX" | "AUTO_INC")
                | ("S", "IS" | "S")
                | ("AUTO_INC", "IS" | "IX")
        )
    }

    fn is_known(&self) -> bool {
        matches!(self.strength, "X" | "S" | "IX" | "IS" | "AUTO_INC")
    }
}

/// Returns how strong a row lock of PostgreSQL is, from 0, by the words of pgrowlocks, `pg_locks` or an error message.
pub fn row_strength(mode: &str) -> Option<usize> {
    Some(match mode.strip_prefix("For ").unwrap_or(mode) {
        "Key Share" | "AccessShareLock" => 0,
        "Share" | "RowShareLock" => 1,
        "No Key Update" | "ExclusiveLock" => 2,
        "Update" | "AccessExclusiveLock" | "deleting" => 3,
        _ => return None,
    })
}

/// Must a request for a row of PostgreSQL wait for a lock on it? Modes as for [`row_strength`], or `updating`. None if
/// that is not enough to say.
pub fn postgres_rows_conflict(wanted: &str, held: &str) -> Option<bool> {
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

/// Must a request for a table wait for a lock on it, of PostgreSQL or of InnoDB? None if the modes are not known.
pub fn tables_conflict(wanted: &str, held: &str) -> Option<bool> {
    // Each mode with those that it conflicts with, the first being the lowest bit: as in PostgreSQL's manual.
    const MODES: [(&str, u8); 8] = [
        ("AccessShareLock", 0b1000_0000),
        ("RowShareLock", 0b1100_0000),
        ("RowExclusiveLock", 0b1111_0000),
        ("ShareUpdateExclusiveLock", 0b1111_1000),
        ("ShareLock", 0b1110_1100),
        ("ShareRowExclusiveLock", 0b1111_1100),
        ("ExclusiveLock", 0b1111_1110),
        ("AccessExclusiveLock", 0b1111_1111),
    ];
    let number = |mode: &str| MODES.iter().position(|(known, _)| *known == mode);
    if let (Some(wanted), Some(held)) = (number(wanted), number(held)) {
        return Some(MODES[wanted].1 & (1 << held) != 0);
    }
    let (wanted, held) = (InnodbMode::parse(wanted)?, InnodbMode::parse(held)?);
    (wanted.is_known() && held.is_known()).then(|| !wanted.is_compatible(&held))
}
