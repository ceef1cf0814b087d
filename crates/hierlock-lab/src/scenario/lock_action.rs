//! Lock steps: `lock shared within 300ms u1/a1`.

use super::diagnostic::{ParseError, nearest};
use super::reader::{Reader, duration};
use hierlock::{Hierarchy, Mode, Target};
use std::time::Duration;

const MODES: [&str; 3] = ["shared", "update", "exclusive"];

/// The action of a lock step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// `lock [shared|update|exclusive] [within 300ms] PATH…`
    Lock(LockRequest),
    /// `try [shared|update|exclusive] PATH…`: does not wait.
    Try(LockRequest),
    /// `extend [shared|update|exclusive] [within 300ms] PATH…`: adds nodes to the guard.
    Extend(LockRequest),
    /// `upgrade`: shared and update locks become exclusive.
    Upgrade,
    /// `release`: releases all locks of the session.
    Release,
}

/// The nodes of a lock step, with mode and limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub mode: Mode,
    pub targets: Vec<Target>,
    /// The limit for the wait.
    pub within: Option<Duration>,
}

impl LockAction {
    /// Returns the request, if the action has one.
    pub(crate) fn request(&self) -> Option<&LockRequest> {
        match self {
            Self::Lock(request) | Self::Try(request) | Self::Extend(request) => Some(request),
            Self::Upgrade | Self::Release => None,
        }
    }
}

/// Returns whether a statement is a lock step, and not SQL. `lock tables …`, `lock instance for backup`, `lock t in
/// share mode` and `release savepoint …` are SQL, and so is any statement whose first word is in capitals.
pub(crate) fn is_lock_step(statement: &str) -> bool {
    let first = statement.split_whitespace().next().unwrap_or_default();
    matches!(first, "lock" | "try" | "extend" | "upgrade" | "release") && !is_sql(statement)
}

/// Returns whether this is SQL that begins with a verb of lock steps.
fn is_sql(statement: &str) -> bool {
    let statement = statement.to_lowercase();
    let words: Vec<&str> =
        statement.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
    match words.as_slice() {
        ["lock", "table" | "tables", ..] | ["release", "savepoint", ..] => true,
        // MySQL, and a fork of it.
        ["lock", "instance" | "binlog", "for", "backup"] => true,
        // PostgreSQL, where the word `table` may be left out.
        ["lock", .., "mode"] | ["lock", .., "mode", "nowait"] => words.contains(&"in"),
        _ => false,
    }
}

pub(crate) fn read(text: &str) -> Result<LockAction, ParseError> {
    let mut reader = Reader::new(text);
    let verb = reader.word();
    let action = match verb {
        "upgrade" => LockAction::Upgrade,
        "release" => LockAction::Release,
        _ => {
            let mode = mode(&mut reader)?;
            if verb == "try" && reader.peek() == "within" {
                return reader.fail("`try` never waits; with a time it is `lock within …`");
            }
            let (within, targets) = (within(&mut reader)?, targets(&mut reader)?);
            let request = LockRequest { mode, targets, within };
            match verb {
                "lock" => LockAction::Lock(request),
                "extend" => LockAction::Extend(request),
                _ => LockAction::Try(request),
            }
        }
    };
    if !reader.is_over() {
        return reader
            .fail(format!("`{verb}` takes no path; it applies to all that the session holds"));
    }
    Ok(action)
}

fn mode(reader: &mut Reader<'_>) -> Result<Mode, ParseError> {
    let start = *reader;
    let word = reader.word();
    if let Ok(mode) = word.parse() {
        return Ok(mode);
    }
    // `lock exlusive u1` would lock a user named `exlusive`.
    let meant = nearest(word, &MODES).filter(|_| !reader.is_over() && !word.contains('/'));
    *reader = start;
    match meant {
        Some(near) => start.fail(format!(
            "`{word}` is not a mode; did you mean `{near}`? (A user of that name is written in \
             quotes.)"
        )),
        None => Ok(Mode::Exclusive),
    }
}

fn within(reader: &mut Reader<'_>) -> Result<Option<Duration>, ParseError> {
    if !reader.take("within") {
        return Ok(None);
    }
    let start = *reader;
    duration(reader.word(), Duration::ZERO).map(Some).or_else(|message| start.fail(message))
}

fn targets(reader: &mut Reader<'_>) -> Result<Vec<Target>, ParseError> {
    let tree = Hierarchy::default();
    let mut targets = Vec::new();
    while !reader.is_over() {
        let start = *reader;
        let Some(path) = reader.word_or_quoted()? else {
            return start.unexpected("paths are separated by blanks");
        };
        if path.starts_with('{') && path.ends_with('}') {
            return start.fail(format!("`{path}` is not the name of an axis"));
        }
        targets.push(tree.parse(&path).or_else(|error| start.fail(error.to_string()))?);
    }
    if targets.is_empty() {
        return reader.fail("a path is missing; it is `u1`, `u1/a1` or `u1/a1/r1`");
    }
    Ok(targets)
}
