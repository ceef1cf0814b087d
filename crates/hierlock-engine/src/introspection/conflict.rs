//! The lock compatibility of InnoDB and PostgreSQL, by the names of the modes. Pure.

/// Returns whether a request for an InnoDB record waits for a lock on it. None if a mode is not in MySQL's format
/// (`X,REC_NOT_GAP`).
pub fn innodb_records_conflict(wanted: &str, held: &str, is_supremum: bool) -> Option<bool> {
    let (wanted, held) = (InnodbMode::parse(wanted)?, InnodbMode::parse(held)?);
    Some(wanted.waits_for(&held, is_supremum))
}

/// A mode of InnoDB, parsed from MySQL's `data_locks`: `X,REC_NOT_GAP`, `S,GAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InnodbMode<'a> {
    strength: &'a str,
    is_gap: bool,
    is_record_only: bool,
    is_insert: bool,
}

impl<'a> InnodbMode<'a> {
    fn parse(words: &'a str) -> Option<Self> {
        let strength = words.split(',').next()?;
        if !["X", "S", "IX", "IS", "AUTO_INC"].contains(&strength) {
            return None;
        }
        let has = |word: &str| words.split(',').any(|known| known == word);
        Some(Self {
            strength,
            is_gap: has("GAP"),
            is_record_only: has("REC_NOT_GAP"),
            is_insert: has("INSERT_INTENTION"),
        })
    }

    /// Returns whether a request for a record waits for a lock on the same record, by the rules of InnoDB.
    fn waits_for(&self, held: &Self, is_supremum: bool) -> bool {
        let in_gap = self.is_gap || is_supremum;
        let is_granted = self.is_compatible(held)
            // Gap locks are compatible with each other; only inserts wait for them.
            || in_gap && !self.is_insert
            // A lock on a record does not conflict with one on the gap before it.
            || held.is_gap && !self.is_insert
            || in_gap && held.is_record_only
            // No request waits for an insert intention.
            || held.is_insert;
        !is_granted
    }

    /// Returns whether both can be held on the same table or record.
    fn is_compatible(&self, held: &Self) -> bool {
        matches!(
            (self.strength, held.strength),
            ("IS", "IS" | "IX" | "S" | "AUTO_INC")
                | ("IX", "IS" | "IX" | "AUTO_INC")
                | ("S", "IS" | "S")
                | ("AUTO_INC", "IS" | "IX")
        )
    }
}

/// Returns the strength of a PostgreSQL row lock, from 0, by the mode in pgrowlocks, `pg_locks` or an error message.
pub fn row_strength(mode: &str) -> Option<usize> {
    Some(match mode.strip_prefix("For ").unwrap_or(mode) {
        "Key Share" | "AccessShareLock" => 0,
        "Share" | "RowShareLock" => 1,
        "No Key Update" | "ExclusiveLock" => 2,
        "Update" | "AccessExclusiveLock" | "deleting" => 3,
        _ => return None,
    })
}

/// Returns whether a request for a PostgreSQL row waits for a lock on it. Modes as for [`row_strength`], or `updating`.
/// None if the modes do not decide it.
pub fn postgres_rows_conflict(wanted: &str, held: &str) -> Option<bool> {
    const CONFLICTS: [[bool; 4]; 4] = [
        [false, false, false, true],
        [false, false, true, true],
        [false, true, true, true],
        [true, true, true, true],
    ];
    let held = row_strength(held)?;
    if wanted == "updating" {
        // The answer depends on whether the UPDATE changes the key.
        return (held > 0).then_some(true);
    }
    Some(CONFLICTS[row_strength(wanted)?][held])
}

/// Each mode of PostgreSQL with the set of conflicting modes, the first mode being the lowest bit. From its manual.
pub(super) const POSTGRES_MODES: [(&str, u8); 8] = [
    ("AccessShareLock", 0b1000_0000),
    ("RowShareLock", 0b1100_0000),
    ("RowExclusiveLock", 0b1111_0000),
    ("ShareUpdateExclusiveLock", 0b1111_1000),
    ("ShareLock", 0b1110_1100),
    ("ShareRowExclusiveLock", 0b1111_1100),
    ("ExclusiveLock", 0b1111_1110),
    ("AccessExclusiveLock", 0b1111_1111),
];

/// Returns whether a request for a table waits for a lock on it, on PostgreSQL or InnoDB. None for unknown modes.
pub fn tables_conflict(wanted: &str, held: &str) -> Option<bool> {
    let position = |mode: &str| POSTGRES_MODES.iter().position(|(known, _)| *known == mode);
    if let (Some(wanted), Some(held)) = (position(wanted), position(held)) {
        return Some(POSTGRES_MODES[wanted].1 & (1 << held) != 0);
    }
    let (wanted, held) = (InnodbMode::parse(wanted)?, InnodbMode::parse(held)?);
    Some(!wanted.is_compatible(&held))
}
