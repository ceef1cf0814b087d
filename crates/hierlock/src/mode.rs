//! Lock modes: those that a caller requests, those of a slot, and the table of their conflicts. Independent of paths,
//! plans and backends.

use std::fmt;

/// The mode that a caller requests for a target.
///
/// The ancestors of the target are locked in the mode that protects it (see [`SlotMode`]).
///
/// ```
/// use hierlock::Mode;
/// assert!("shared".parse::<Mode>()? < Mode::Exclusive);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// To read the node and everything below it; others can read as well.
    Shared,
    /// To read now and write later: compatible with readers, not with another `Update`.
    /// [`Guard::upgrade`](crate::Guard::upgrade) makes it exclusive.
    Update,
    /// Excludes all others from the node and everything below it.
    #[default]
    Exclusive,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Shared, Mode::Update, Mode::Exclusive];
}

/// The name of the slot mode of the same strength.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ModeSet::Intentions.target(*self, true).fmt(f)
    }
}

impl std::str::FromStr for Mode {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        named.ok_or_else(|| crate::error::TargetError::Mode { text: text.to_owned() }.into())
    }
}

/// The mode of one slot: the three modes of a caller, and the intention modes of ancestors, on backends that have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SlotMode {
    /// A node below is locked shared.
    IntentShared,
    /// A node below is locked exclusively or for update.
    IntentExclusive,
    /// The node and everything below it are read.
    Shared,
    /// Read now, written later: one holder at a time, beside readers.
    Update,
    /// The node and everything below it are read, and a node below is locked exclusively.
    SharedIntentExclusive,
    /// Compatible with no other mode.
    Exclusive,
}

use SlotMode::{
    Exclusive as X, IntentExclusive as IX, IntentShared as IS, Shared as S,
    SharedIntentExclusive as SIX, Update as U,
};

/// **The conflict table.** Row: the mode of a holder; column: 1 if another owner can hold that mode at the same time.
const COMPATIBLE: [ModeBits; SlotMode::COUNT] = [
    //         X SIX U S IX IS
    /* IS  */ ModeBits(0b0_1_1_1_1_1),
    /* IX  */ ModeBits(0b0_0_0_0_1_1),
    /* S   */ ModeBits(0b0_0_1_1_0_1),
    /* U   */ ModeBits(0b0_0_0_1_0_1),
    /* SIX */ ModeBits(0b0_0_0_0_0_1),
    /* X   */ ModeBits(0b0_0_0_0_0_0),
];

/// The weakest mode that is as strong as both: the mode of a slot that is needed twice.
#[rustfmt::skip]
const JOIN: [[SlotMode; SlotMode::COUNT]; SlotMode::COUNT] =
    //         IS   IX   S    U    SIX  X
    [/* IS  */ [IS,  IX,  S,   U,   SIX, X],
     /* IX  */ [IX,  IX,  SIX, SIX, SIX, X],
     /* S   */ [S,   SIX, S,   U,   SIX, X],
     /* U   */ [U,   SIX, U,   U,   SIX, X],
     /* SIX */ [SIX, SIX, SIX, SIX, SIX, X],
     /* X   */ [X,   X,   X,   X,   X,   X]];

impl SlotMode {
    /// The number of modes.
    pub const COUNT: usize = 6;
    /// All modes, weakest first.
    pub const ALL: [SlotMode; Self::COUNT] = [IS, IX, S, U, SIX, X];

    /// Returns whether two owners can hold one slot in these modes at the same time.
    ///
    /// ```
    /// use hierlock::SlotMode::{Exclusive, IntentExclusive, Shared, Update};
    /// assert!(IntentExclusive.is_compatible_with(IntentExclusive));
    /// assert!(Update.is_compatible_with(Shared));
    /// assert!(!Update.is_compatible_with(Update));
    /// assert!(!Exclusive.is_compatible_with(Shared));
    /// ```
    pub const fn is_compatible_with(self, other: SlotMode) -> bool {
        COMPATIBLE[self as usize].has(other)
    }

    /// Returns the weakest mode that is at least as strong as both.
    ///
    /// ```
    /// use hierlock::SlotMode::{IntentExclusive, Shared, SharedIntentExclusive};
    /// assert_eq!(Shared.join(IntentExclusive), SharedIntentExclusive);
    /// ```
    pub const fn join(self, other: SlotMode) -> SlotMode {
        JOIN[self as usize][other as usize]
    }

    /// Returns the name used in messages, tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            IS => "intent-shared",
            IX => "intent-exclusive",
            S => "shared",
            U => "update",
            SIX => "shared-intent-exclusive",
            X => "exclusive",
        }
    }
}

impl fmt::Display for SlotMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of slot modes, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModeBits(u8);

impl ModeBits {
    pub(crate) const fn with(self, mode: SlotMode) -> Self {
        Self(self.0 | 1 << mode as u8)
    }

    pub(crate) const fn without(self, mode: SlotMode) -> Self {
        Self(self.0 & !(1 << mode as u8))
    }

    pub(crate) const fn has(self, mode: SlotMode) -> bool {
        self.0 & 1 << mode as u8 != 0
    }

    /// Returns whether `mode` is compatible with every mode of the set.
    pub(crate) const fn all_compatible_with(self, mode: SlotMode) -> bool {
        self.0 & !COMPATIBLE[mode as usize].0 == 0
    }
}

/// The modes that a backend has. A mode that it lacks is rounded **up**, never down (rule 4 in `DESIGN.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModeSet {
    /// All six: `memory:`.
    Intentions,
    /// Shared and exclusive: `file:`, MySQL, MariaDB, advisory keys.
    SharedExclusive,
    /// Shared, update and exclusive: PostgreSQL rows.
    SharedUpdateExclusive,
}

impl ModeSet {
    /// Returns the mode in which a node is locked for a target at or below it. **The rule of ancestors and targets.**
    pub(crate) const fn of_node(self, requested: Mode, is_target: bool, is_leaf: bool) -> SlotMode {
        if is_target { self.target(requested, is_leaf) } else { self.ancestor(requested) }
    }

    /// Returns the mode in which the ancestors of a target are locked.
    pub const fn ancestor(self, requested: Mode) -> SlotMode {
        match (self, requested) {
            (ModeSet::Intentions, Mode::Shared) => IS,
            // An update lock becomes exclusive later. If its ancestors were only IS, it would not conflict with an
            // update lock of an ancestor.
            (ModeSet::Intentions, Mode::Update | Mode::Exclusive) => IX,
            (ModeSet::SharedExclusive | ModeSet::SharedUpdateExclusive, _) => S,
        }
    }

    /// Returns the mode in which the target itself is locked.
    ///
    /// Without intention modes an inner node can only be locked exclusively: writers below it hold it shared, so a shared
    /// or update lock of it would not exclude them.
    ///
    /// ```
    /// use hierlock::{Mode, ModeSet, SlotMode};
    /// let leaf = true;
    /// assert_eq!(ModeSet::SharedExclusive.target(Mode::Shared, leaf), SlotMode::Shared);
    /// assert_eq!(ModeSet::SharedExclusive.target(Mode::Shared, !leaf), SlotMode::Exclusive);
    /// ```
    pub const fn target(self, requested: Mode, is_leaf: bool) -> SlotMode {
        match (self, requested, is_leaf) {
            (_, Mode::Exclusive, _) => X,
            (ModeSet::Intentions, Mode::Shared, _) => S,
            (ModeSet::Intentions, Mode::Update, _) => U,
            (_, _, false) => X,
            (_, Mode::Shared, true) => S,
            (ModeSet::SharedUpdateExclusive, Mode::Update, true) => U,
            (ModeSet::SharedExclusive, Mode::Update, true) => X,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs<T: Copy, const N: usize>(all: [T; N]) -> impl Iterator<Item = (T, T)> {
        all.into_iter().flat_map(move |a| all.map(|b| (a, b)))
    }

    #[test]
    fn compatibility_is_symmetric() {
        for (a, b) in pairs(SlotMode::ALL) {
            assert_eq!(a.is_compatible_with(b), b.is_compatible_with(a), "{a} {b}");
        }
    }

    #[test]
    fn join_is_the_weakest_mode_with_the_conflicts_of_both() {
        let compatible = |mode: SlotMode| COMPATIBLE[mode as usize].0;
        for (a, b) in pairs(SlotMode::ALL) {
            let is_as_strong =
                |mode: &SlotMode| compatible(*mode) & !(compatible(a) & compatible(b)) == 0;
            let strong = SlotMode::ALL.into_iter().filter(is_as_strong);
            let least = strong.max_by_key(|mode| compatible(*mode).count_ones());
            assert_eq!(Some(a.join(b)), least, "{a} {b}");
        }
    }

    /// Also where one target is an ancestor of the other: the modes of the upper node must conflict whenever the requested
    /// modes do.
    #[test]
    fn a_missing_mode_is_never_rounded_down() {
        let requested = |mode| ModeSet::Intentions.target(mode, true);
        for set in [ModeSet::Intentions, ModeSet::SharedExclusive, ModeSet::SharedUpdateExclusive] {
            for (above, below) in pairs(Mode::ALL) {
                for leaf in [true, false] {
                    let taken = set.target(above, leaf);
                    assert_eq!(taken.join(requested(above)), taken, "{set:?} {above} leaf={leaf}");
                }
                let is_compatible = requested(above).is_compatible_with(requested(below));
                let taken = set.target(above, false).is_compatible_with(set.ancestor(below));
                assert!(is_compatible || !taken, "{set:?}: {above} over {below} is too weak");
            }
        }
    }

    #[test]
    fn a_set_of_modes_agrees_with_the_conflict_table() {
        for (held, also) in pairs(SlotMode::ALL) {
            let set = ModeBits::default().with(held).with(also);
            for wanted in SlotMode::ALL {
                let expected = held.is_compatible_with(wanted) && also.is_compatible_with(wanted);
                assert_eq!(set.all_compatible_with(wanted), expected, "{held} {also} {wanted}");
            }
            assert_eq!(set.without(held).without(also), ModeBits::default());
        }
    }

    #[test]
    fn names_parse_back() {
        for (mode, name) in Mode::ALL.into_iter().zip(["shared", "update", "exclusive"]) {
            assert_eq!(mode.to_string(), name);
            assert_eq!(name.parse::<Mode>().unwrap(), mode);
        }
        let message = "write".parse::<Mode>().unwrap_err().to_string();
        assert!(message.contains("shared, update or exclusive"), "{message}");
    }
}
