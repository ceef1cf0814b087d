//! Expectations written back in the language of scenarios, so that reports and `--bless` say them as
//! a file would. Whatever is written here reads back as the same; a test holds it to that.

use super::file::{Actor, Expectation, Expected, ExpectedCell, ExpectedRows};
use crate::observation::LockKind;
use std::fmt::{self, Display, Formatter};

impl Display for Actor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Session(name) => name.fmt(f),
            Actor::Victim => f.pad("victim"),
            Actor::Survivor => f.pad("survivor"),
        }
    }
}

/// `done or deadlock, A or B`
impl Display for Expectation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        separated(f, &self.either, " or ")
    }
}

impl Display for Expected {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Done { rows: None, changed: None } => f.write_str("done"),
            Expected::Done { rows: None, changed: Some(count) } => write!(f, "changed {count}"),
            Expected::Done { rows: Some(rows), changed } => {
                let count = changed.map(|count| format!(", changed {count}")).unwrap_or_default();
                let order = if rows.any_order { ", in any order" } else { "" };
                write!(f, "{rows}{count}{order}")
            }
            Expected::Blocked { by, kind, object } => {
                f.write_str("blocked")?;
                if !by.is_empty() {
                    f.write_str(" by ")?;
                    separated(f, by, " and ")?;
                }
                let Some(kind) = kind else { return Ok(()) };
                write!(f, " on {}", kind.name())?;
                match (object, kind) {
                    (None, _) => Ok(()),
                    // It is itself what is locked, not a part of it.
                    (Some(object), LockKind::Table | LockKind::Node | LockKind::Advisory) => {
                        write!(f, " {}", inline(object))
                    }
                    (Some(object), _) => write!(f, " of {}", inline(object)),
                }
            }
            Expected::Deadlock { victims } if victims.is_empty() => f.write_str("deadlock"),
            Expected::Deadlock { victims } => {
                f.write_str("deadlock, ")?;
                separated(f, victims, " or ")
            }
            Expected::TimedOut => f.write_str("timed out"),
            Expected::Refused => f.write_str("refused"),
            Expected::Conflict => f.write_str("conflict"),
            Expected::Error { code, says } => {
                f.write_str("error")?;
                if let Some(code) = code {
                    write!(f, " {code}")?;
                }
                match says {
                    Some(says) => write!(f, " {}", quoted(says)),
                    None => Ok(()),
                }
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
                cells => {
                    f.write_str(" (")?;
                    separated(f, cells, ", ")?;
                    f.write_str(")")?;
                }
            }
        }
        Ok(())
    }
}

impl ExpectedRows {
    /// As lines of their own: each row without its first `|`, the cells below each other.
    pub fn lines(&self) -> Vec<String> {
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(in_block).collect()).collect();
        super::layout::aligned(&rows)
    }
}

/// As it stands in `rows …`.
impl Display for ExpectedCell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ExpectedCell::Null => f.pad("null"),
            ExpectedCell::Anything => f.pad("*"),
            ExpectedCell::Value(text) => f.pad(&inline(text)),
        }
    }
}

/// As it stands behind a `|`, where blanks and commas need no quotes.
fn in_block(cell: &ExpectedCell) -> String {
    let ExpectedCell::Value(text) = cell else { return cell.to_string() };
    let special = text.is_empty()
        || text == "null"
        || text == "*"
        || text.trim() != text
        || text.contains(['|', '\'', '"', '`', '#', '{', '(', ')'])
        || text.contains(char::is_control);
    if special { quoted(text) } else { text.clone() }
}

/// A value in a line: in quotes if it would be read as something else.
fn inline(text: &str) -> String {
    let special = text.is_empty()
        || matches!(text, "null" | "*" | "or" | "of")
        || text.contains(char::is_whitespace)
        || text.contains([',', '(', ')', '|', '\'', '"', '`', '#', '{'])
        || text.contains(char::is_control);
    if special { quoted(text) } else { text.to_owned() }
}

/// `'it''s'`
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn separated<T: Display>(f: &mut Formatter<'_>, items: &[T], by: &str) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(by)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}
