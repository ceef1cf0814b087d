//! Modes and their compatibility: what a caller may ask for, what a slot may be held in, and one
//! table that says which of those go together. Knows nothing of paths, plans or backends.

use std::fmt;

/// What a caller asks for on a target.
///
/// Its ancestors are taken in whatever mode protects it (see [`SlotMode`]).
///
/// ```
/// use hierlock::Mode;
/// assert!("shared".parse::<Mode>()? < Mode::Exclusive);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Reads the node and everything below it; others may read as well.
    Shared,
    /// Reads now and means to write: goes together with readers, not with another `Update`.
    /// [`Guard::upgrade`](crate::Guard::upgrade) turns it exclusive.
    Update,
    /// Nobody else is at the node or anywhere below it.
    #[default]
    Exclusive,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Shared, Mode::Update, Mode::Exclusive];
}

/// Named as the slot mode of the same strength.
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

/// What one slot is held in: the three modes of a caller, and the intentions that ancestors carry
/// where a backend knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SlotMode {
    /// Something below is read.
    IntentShared,
    /// Something below is written.
    IntentExclusive,
    /// The node and all below it are read.
    Shared,
    /// Read now, to be written: one at a time, beside readers.
    Update,
    /// All is read, and something below is written.
    SharedIntentExclusive,
    /// Held alone.
    Exclusive,
}

use SlotMode::{
    Exclusive as X, IntentExclusive as IX, IntentShared as IS, Shared as S,
    SharedIntentExclusive as SIX, Update as U,
};

/// **The rule of conflict.** Row: what somebody holds; column: whether somebody else can have that mode too.
const COMPATIBLE: [ModeBits; SlotMode::COUNT] = [
    //         X SIX U S IX IS
    /* IS  */ ModeBits(0b0_1_1_1_1_1),
    /* IX  */ ModeBits(0b0_0_0_0_1_1),
    /* S   */ ModeBits(0b0_0_1_1_0_1),
    /* U   */ ModeBits(0b0_0_0_1_0_1),
    /* SIX */ ModeBits(0b0_0_0_0_0_1),
    /* X   */ ModeBits(0b0_0_0_0_0_0),
];

/// The weakest mode that is as strong as both: what a slot is held in when it is needed twice.
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
    /// How many there are.
    pub const COUNT: usize = 6;
    /// All of them, weakest first.
    pub const ALL: [SlotMode; Self::COUNT] = [IS, IX, S, U, SIX, X];

    /// Can two owners hold one slot in these modes at the same time?
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

    /// The weakest mode that is at least as strong as both.
    ///
    /// ```
    /// use hierlock::SlotMode::{IntentExclusive, Shared, SharedIntentExclusive};
    /// assert_eq!(Shared.join(IntentExclusive), SharedIntentExclusive);
    /// ```
    pub const fn join(self, other: SlotMode) -> SlotMode {
        JOIN[self as usize][other as usize]
    }

    /// The name used in messages, tables and JSON.
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

    /// Can `mode` be held beside all of them?
    pub(crate) const fn all_compatible_with(self, mode: SlotMode) -> bool {
        self.0 & !COMPATIBLE[mode as usize].0 == 0
    }
}

/// The modes a backend really has. What it lacks is rounded **up**, never down (rule 5).
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
    /// The mode in which a node is taken on behalf of a target at or below it. **The rule of ancestors and targets.**
    pub(crate) const fn of_node(self, asked: Mode, is_target: bool, is_leaf: bool) -> SlotMode {
        if is_target { self.target(asked, is_leaf) } else { self.ancestor(asked) }
    }

    /// The mode in which the ancestors of a target are taken.
    pub const fn ancestor(self, asked: Mode) -> SlotMode {
        match (self, asked) {
            (ModeSet::Intentions, Mode::Shared) => IS,
            // An update lock will become a write: were its ancestors only IS, an update lock of an
            // ancestor would not notice it.
            (ModeSet::Intentions, Mode::Update | Mode::Exclusive) => IX,
            (ModeSet::SharedExclusive | ModeSet::SharedUpdateExclusive, _) => S,
        }
    }

    /// The mode in which the target itself is taken.
    ///
    /// Without intentions an inner node can only be locked exclusively: writers below it hold it
    /// shared, so a shared or update lock of it would not keep them out.
    ///
    /// ```
    /// use hierlock::{Mode, ModeSet, SlotMode};
    /// let leaf = true;
    /// assert_eq!(ModeSet::SharedExclusive.target(Mode::Shared, leaf), SlotMode::Shared);
    /// assert_eq!(ModeSet::SharedExclusive.target(Mode::Shared, !leaf), SlotMode::Exclusive);
    /// ```
    pub const fn target(self, asked: Mode, is_leaf: bool) -> SlotMode {
        match (self, asked, is_leaf) {
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

    /// Every mode with every mode.
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
    fn join_is_the_least_mode_that_conflicts_with_all_that_either_does() {
        let compatible = |mode: SlotMode| COMPATIBLE[mode as usize].0;
        for (a, b) in pairs(SlotMode::ALL) {
            let is_as_strong =
                |mode: &SlotMode| compatible(*mode) & !(compatible(a) & compatible(b)) == 0;
            let strong = SlotMode::ALL.into_iter().filter(is_as_strong);
            let least = strong.max_by_key(|mode| compatible(*mode).count_ones());
            assert_eq!(Some(a.join(b)), least, "{a} {b}");
        }
    }

    /// Also where one target is an ancestor of the other: the modes that meet at the upper one must conflict whenever the
    /// asked modes do.
    #[test]
    fn rounding_never_weakens() {
        let asked = |mode| ModeSet::Intentions.target(mode, true);
        for set in [ModeSet::Intentions, ModeSet::SharedExclusive, ModeSet::SharedUpdateExclusive] {
            for (above, below) in pairs(Mode::ALL) {
                for leaf in [true, false] {
                    let taken = set.target(above, leaf);
                    assert_eq!(taken.join(asked(above)), taken, "{set:?} {above} leaf={leaf}");
                }
                let as_asked = asked(above).is_compatible_with(asked(below));
                let taken = set.target(above, false).is_compatible_with(set.ancestor(below));
                assert!(as_asked || !taken, "{set:?}: {above} over {below} is too weak");
            }
        }
    }

    #[test]
    fn a_set_of_modes_says_what_the_table_says() {
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
