//! What must be seen of a step. Whatever is written here reads back as the same.

use super::format::aligned;
use crate::observation::{LockKind, SessionName};
use crate::text::join;
use std::fmt::{self, Display, Formatter};

/// The session that a step is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionSelector {
    Session(SessionName),
    /// Whoever was chosen to end the last deadlock.
    Victim,
    /// The other one.
    Survivor,
}

impl SessionSelector {
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text {
            "victim" => Some(Self::Victim),
            "survivor" => Some(Self::Survivor),
            name => SessionName::new(name).map(Self::Session),
        }
    }
}

/// What must be seen: one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// In the order of the file; there is at least one.
    pub alternatives: Vec<ExpectedOutcome>,
}

/// One thing that may be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedOutcome {
    /// `done`, `rows …`, `changed 1`.
    Done {
        rows: Option<ExpectedRows>,
        changed: Option<u64>,
    },
    /// `blocked by A and B on gap`
    Blocked {
        /// By exactly these, if any are named.
        by: Vec<SessionSelector>,
        kind: Option<LockKind>,
        object: Option<String>,
    },
    /// `deadlock`, `deadlock, A or B`: one of these is chosen to end it; the session itself, if nobody is named.
    Deadlock {
        victims: Vec<SessionName>,
    },
    TimedOut,
    Refused,
    Conflict,
    /// `error`, `error 1062`, `error 'not provisioned'`
    Error {
        code: Option<String>,
        /// Part of what it says, if it matters.
        says: Option<String>,
    },
}

impl ExpectedOutcome {
    pub(crate) const DONE: Self = Self::Done { rows: None, changed: None };
}

impl Default for Expectation {
    fn default() -> Self {
        Expectation { alternatives: vec![ExpectedOutcome::DONE] }
    }
}

/// Rows that must be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRows {
    /// Cells as written; `null` is null, `*` is anything, quotes make a text of either.
    pub rows: Vec<Vec<ExpectedCell>>,
    pub any_order: bool,
}

/// A cell that must be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedCell {
    Null,
    Anything,
    /// Equal as a number if both are numbers, else as a text.
    Value(String),
}

impl Display for SessionSelector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(name) => name.fmt(f),
            Self::Victim => f.pad("victim"),
            Self::Survivor => f.pad("survivor"),
        }
    }
}

/// `done or deadlock, A or B`
impl Display for Expectation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.alternatives, " or "))
    }
}

impl Display for ExpectedOutcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { rows: None, changed: None } => f.write_str("done"),
            Self::Done { rows: None, changed: Some(count) } => {
                write!(f, "changed {count}")
            }
            Self::Done { rows: Some(rows), changed } => {
                let count = changed.map(|count| format!(", changed {count}")).unwrap_or_default();
                let order = if rows.any_order { ", in any order" } else { "" };
                write!(f, "{rows}{count}{order}")
            }
            Self::Blocked { by, kind, object } => {
                f.write_str("blocked")?;
                if !by.is_empty() {
                    write!(f, " by {}", join(by, " and "))?;
                }
                let Some(kind) = kind else { return Ok(()) };
                write!(f, " on {}", kind.name())?;
                let Some(object) = object else { return Ok(()) };
                // A table, a node or a key is itself what is locked; others are part of it.
                let is_itself =
                    matches!(kind, LockKind::Table | LockKind::Node | LockKind::Advisory);
                write!(f, "{} {}", if is_itself { "" } else { " of" }, inline(object))
            }
            Self::Deadlock { victims } if victims.is_empty() => f.write_str("deadlock"),
            Self::Deadlock { victims } => {
                write!(f, "deadlock, {}", join(victims, " or "))
            }
            Self::TimedOut => f.write_str("timed out"),
            Self::Refused => f.write_str("refused"),
            Self::Conflict => f.write_str("conflict"),
            Self::Error { code, says } => {
                let code = code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
                let says = says.as_ref().map(|says| format!(" {}", quoted(says)));
                write!(f, "error{code}{}", says.unwrap_or_default())
            }
        }
    }
}

/// On one line: `rows 30 10`, `rows (1, 30) (2, 10)`, `no rows`.
impl Display for ExpectedRows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return f.write_str("no rows");
        }
        f.write_str("rows")?;
        for row in &self.rows {
            match row.as_slice() {
                [cell] => write!(f, " {cell}")?,
                cells => write!(f, " ({})", join(cells, ", "))?,
            }
        }
        Ok(())
    }
}

impl ExpectedRows {
    /// As lines of their own: each row without its first `|`, the cells below each other.
    pub fn lines(&self) -> Vec<String> {
        let row = |row: &Vec<ExpectedCell>| row.iter().map(in_block).collect();
        aligned(&self.rows.iter().map(row).collect::<Vec<_>>())
    }
}

/// As it stands in `rows …`.
impl Display for ExpectedCell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.pad("null"),
            Self::Anything => f.pad("*"),
            Self::Value(text) => f.pad(&inline(text)),
        }
    }
}

/// As it stands behind a `|`, where blanks and commas need no quotes.
fn in_block(cell: &ExpectedCell) -> String {
    let ExpectedCell::Value(text) = cell else { return cell.to_string() };
    let special = matches!(text.as_str(), "" | "null" | "*")
        || text.trim() != text
        || text.contains(['|', '\'', '"', '`', '#', '{', '(', ')'])
        || text.contains(char::is_control);
    if special { quoted(text) } else { text.clone() }
}

/// A value in a line: in quotes if it would be read as something else.
fn inline(text: &str) -> String {
    let special = matches!(text, "" | "null" | "*" | "or" | "of")
        || text.contains(char::is_whitespace)
        || text.contains([',', '(', ')', '|', '\'', '"', '`', '#', '{'])
        || text.contains(char::is_control);
    if special { quoted(text) } else { text.to_owned() }
}

/// `'it''s'`
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
