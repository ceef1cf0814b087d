//! The expectation of a step. `Display` writes text that parses to the same value.

use super::format::aligned;
use crate::observation::{LockKind, SessionName};
use crate::text::join;
use std::fmt::{self, Display, Formatter};

/// The session of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionSelector {
    Session(SessionName),
    /// The victim of the last deadlock.
    Victim,
    /// The other session of the last deadlock.
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

/// The expected outcome: one of several alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The alternatives, in the order of the file; there is at least one.
    pub alternatives: Vec<ExpectedOutcome>,
}

/// One alternative of an expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedOutcome {
    /// `done`, `rows …`, `changed 1`.
    Done {
        rows: Option<ExpectedRows>,
        changed: Option<u64>,
    },
    /// `blocked by A and B on gap`.
    Blocked {
        /// Exactly these blockers; any, if empty.
        by: Vec<SessionSelector>,
        kind: Option<LockKind>,
        object: Option<String>,
    },
    /// `deadlock`, `deadlock, A or B`: one of these is the victim; the session itself, if none is named.
    Deadlock {
        victims: Vec<SessionName>,
    },
    TimedOut,
    Refused,
    Conflict,
    /// `error`, `error 1062`, `error 'not provisioned'`.
    Error {
        code: Option<String>,
        /// A part of the message.
        message: Option<String>,
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

/// The expected rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRows {
    /// The cells; `null` is null, `*` matches anything, a text in quotes is always a value.
    pub rows: Vec<Vec<ExpectedCell>>,
    pub any_order: bool,
}

/// An expected cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedCell {
    Null,
    Anything,
    /// Compared as a number if both are numbers, else as a text.
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

/// Writes `done or deadlock, A or B`.
impl Display for Expectation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.alternatives, " or "))
    }
}

impl Display for ExpectedOutcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { rows: None, changed: None } => f.write_str("done"),
            Self::Done { rows: None, changed: Some(count) } => write!(f, "changed {count}"),
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
                // A table, a node or a key is locked itself; the other kinds are locks on a part of an object.
                let is_itself =
                    matches!(kind, LockKind::Table | LockKind::Node | LockKind::Advisory);
                write!(f, "{} {}", if is_itself { "" } else { " of" }, inline(object))
            }
            Self::Deadlock { victims } if victims.is_empty() => f.write_str("deadlock"),
            Self::Deadlock { victims } => write!(f, "deadlock, {}", join(victims, " or ")),
            Self::TimedOut => f.write_str("timed out"),
            Self::Refused => f.write_str("refused"),
            Self::Conflict => f.write_str("conflict"),
            Self::Error { code, message } => {
                let code = code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
                let message = message.as_ref().map(|message| format!(" {}", quoted(message)));
                write!(f, "error{code}{}", message.unwrap_or_default())
            }
        }
    }
}

/// Writes the rows on one line: `rows 30 10`, `rows (1, 30) (2, 10)`, `no rows`.
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
    /// Returns the rows as separate lines, with aligned cells and without the first `|`.
    pub fn lines(&self) -> Vec<String> {
        let row = |row: &Vec<ExpectedCell>| row.iter().map(in_block).collect();
        aligned(&self.rows.iter().map(row).collect::<Vec<_>>())
    }
}

/// Writes the cell as it is in `rows …`.
impl Display for ExpectedCell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.pad("null"),
            Self::Anything => f.pad("*"),
            Self::Value(text) => f.pad(&inline(text)),
        }
    }
}

/// Returns the cell as it is after a `|`, where blanks and commas need no quotes.
fn in_block(cell: &ExpectedCell) -> String {
    let ExpectedCell::Value(text) = cell else { return cell.to_string() };
    let special = matches!(text.as_str(), "" | "null" | "*")
        || text.trim() != text
        || text.contains(['|', '\'', '"', '`', '#', '{', '(', ')'])
        || text.contains(char::is_control);
    if special { quoted(text) } else { text.clone() }
}

/// Returns a value on one line, with quotes if it would be parsed as something else.
fn inline(text: &str) -> String {
    let special = matches!(text, "" | "null" | "*" | "or" | "of")
        || text.contains(char::is_whitespace)
        || text.contains([',', '(', ')', '|', '\'', '"', '`', '#', '{'])
        || text.contains(char::is_control);
    if special { quoted(text) } else { text.to_owned() }
}

/// Returns `'it''s'`.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
