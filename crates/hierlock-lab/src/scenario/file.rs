//! A scenario file, as it was written: every part with its line, so that messages can point at it.

use super::only::{Dimension, Only};
use super::text::Text;
use crate::observation::{LockKind, Name};
use crate::place::Engine;
use hierlock::sql::Strategy;
use hierlock::{Mode, Target};
use std::time::Duration;

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// Its path below `scenarios/`, without the extension; the first part is its topic.
    pub name: String,
    /// Its path, for messages.
    pub file: String,
    /// The whole text; lines are counted in it.
    pub text: String,
    /// The first line of the opening comment.
    pub title: String,
    /// The rest of the opening comment: why this is worth knowing.
    pub why: String,
    /// Which parts of the seed documents it proves, such as `004 課題1`.
    pub seeds: Vec<String>,
    /// Where it runs, if it is not everywhere.
    pub(crate) engines: Option<Vec<Engine>>,
    /// With which strategies nodes are locked, if it is not with all.
    pub(crate) strategies: Option<Vec<Strategy>>,
    /// Into how many buckets a level is striped.
    pub(crate) buckets: Option<u32>,
    /// The anomaly it looks for, such as `G1a dirty read`; what would show it is marked with `!`.
    pub anomaly: Option<String>,
    /// How long a step may neither end nor be seen to wait.
    pub(crate) limit: Option<Duration>,
    /// What varies: a case for every combination.
    pub(crate) axes: Vec<Axis>,
    /// What sessions are set to before the first step.
    pub(crate) settings: Vec<Guarded<Setting>>,
    /// SQL before the sessions exist, a statement each.
    pub(crate) setup: Vec<Guarded<Text>>,
    /// The transcript.
    pub(crate) lines: Vec<Line>,
    /// SQL when it is all over, however it went.
    pub(crate) teardown: Vec<Guarded<Text>>,
    /// What to do about it.
    pub advice: String,
}

impl Scenario {
    /// The first part of its name.
    pub fn topic(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(topic, _)| topic)
    }
}

/// `for each held, wanted: u1, u1/a1 | u1/a1, u1`: names, and as many values in each turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Its line.
    pub line: usize,
    /// What is set: `isolation` sets that of all sessions, others replace `{name}` in the text.
    pub names: Vec<String>,
    /// One after the other.
    pub turns: Vec<Vec<String>>,
}

/// Something that is there only in some cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guarded<T> {
    /// Its line.
    pub line: usize,
    /// In which cases.
    pub only: Only,
    /// What is there.
    pub what: T,
}

/// Settings of one session, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Whose; of all, if nobody is named. What is said of one goes before what is said of all.
    pub session: Option<Name>,
    /// What, separated by commas.
    pub text: Text,
}

/// What a session can be set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// `isolation read committed`
    Isolation(String),
    /// `autocommit off`
    Autocommit(bool),
    /// `lock wait timeout 1s`
    LockWaitTimeout(Duration),
    /// `set NAME = VALUE`, in the engine's own words.
    Sql(String),
}

/// A line of the transcript with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The last line of its statement; expectations follow.
    pub end: usize,
    /// The last line of its expectations; the same as `end` if there are none.
    pub expects_end: usize,
    /// In which cases.
    pub only: Only,
    /// Whose.
    pub who: Actor,
    /// What is done.
    pub deed: Deed,
    /// What must be seen: the first that fits the case.
    pub expects: Vec<Guarded<Wanted>>,
    /// The same as a table.
    pub table: Option<Table>,
    /// `! rows 2`: what would show the anomaly.
    pub signs: Vec<Guarded<Wanted>>,
}

/// What must be seen, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// `done`, `blocked by A`; empty where only rows are written.
    pub text: Text,
    /// The `|` lines below it, without the first `|`.
    pub rows: Vec<Text>,
}

/// Who does a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A session.
    Session(Name),
    /// Whoever was chosen to end the last deadlock.
    Victim,
    /// The other one.
    Survivor,
}

/// What is done in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A statement, sent as it is.
    Sql(Text),
    /// Something on the tree.
    Lock(Text),
    /// `B<`: nothing; the last step of the session is looked at again.
    Look,
}

/// A lock step, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockDeed {
    /// `lock [shared|update|exclusive] [within 300ms] PATH…`
    Lock {
        /// How.
        mode: Mode,
        /// What.
        targets: Vec<Target>,
        /// How long it may wait.
        within: Option<Duration>,
    },
    /// `try [shared|update|exclusive] PATH…`: without waiting.
    Try {
        /// How.
        mode: Mode,
        /// What.
        targets: Vec<Target>,
    },
    /// `extend [shared|update|exclusive] [within 300ms] PATH…`: more, under the same guard.
    Extend {
        /// How.
        mode: Mode,
        /// What.
        targets: Vec<Target>,
        /// How long it may wait.
        within: Option<Duration>,
    },
    /// `upgrade`: what is held as update or shared becomes exclusive.
    Upgrade,
    /// `release`: all that the session holds.
    Release,
}

/// What must be seen: one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// In the order of the file; there is at least one.
    pub either: Vec<Expected>,
}

/// One thing that may be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// `done`, `rows …`, `changed 1`.
    Done {
        /// Its rows, if they matter.
        rows: Option<ExpectedRows>,
        /// How many it changed, if that matters.
        changed: Option<u64>,
    },
    /// `blocked by A and B on gap`
    Blocked {
        /// By exactly these, if any are named.
        by: Vec<Actor>,
        /// For what kind of lock, if that matters.
        kind: Option<LockKind>,
        /// On which table or node, if that matters.
        object: Option<String>,
    },
    /// `deadlock`, `deadlock, A or B`: one of these is chosen to end it; the session itself, if nobody
    /// is named.
    Deadlock {
        /// The candidates.
        victims: Vec<Name>,
    },
    /// `timed out`
    TimedOut,
    /// `refused`
    Refused,
    /// `conflict`
    Conflict,
    /// `error`, `error 1062`, `error 'not provisioned'`
    Error {
        /// The engine's code, if it matters.
        code: Option<String>,
        /// Part of what it says, if it matters.
        says: Option<String>,
    },
}

/// Rows that must be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRows {
    /// Cells as written; `null` is null, `*` is anything, quotes make a text of either.
    pub rows: Vec<Vec<ExpectedCell>>,
    /// They may come in any order.
    pub any_order: bool,
}

/// A cell that must be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedCell {
    /// `null`
    Null,
    /// `*`
    Anything,
    /// Equal as a number if both are numbers, else as a text.
    Value(String),
}

/// ```text
///  = by isolation     | mysql  | postgres
///  : read uncommitted | rows 2 | rows 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// The line of its head.
    pub line: usize,
    /// What the rows go by.
    pub by: Dimension,
    /// What the columns go by, if there is more than one.
    pub across: Option<Dimension>,
    /// The heads of the columns.
    pub columns: Vec<Label>,
    /// What must be seen in each column.
    pub rows: Vec<TableRow>,
}

/// A row of a [`Table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRow {
    /// Its line.
    pub line: usize,
    /// Its head.
    pub label: Label,
    /// One for each column.
    pub cells: Vec<Wanted>,
}

/// The head of a row or of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// One of these.
    Values(Vec<String>),
    /// `*`: all that have no row or column of their own.
    Others,
}
