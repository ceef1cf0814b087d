//! Lock steps: `lock shared within 300ms u1/a1`.

use super::diagnostic::{ParseError, nearest};
use super::reader::{Reader, duration};
use hierlock::{Hierarchy, Mode, Target};
use std::time::Duration;

const MODES: [&str; 3] = ["shared", "update", "exclusive"];

/// What a lock step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAction {
    /// `lock [shared|update|exclusive] [within 300ms] PATH…`
    Lock(LockRequest),
    /// `try [shared|update|exclusive] PATH…`: without waiting.
    Try(LockRequest),
    /// `extend [shared|update|exclusive] [within 300ms] PATH…`: more, under the same guard.
    Extend(LockRequest),
    /// `upgrade`: what is held as update or shared becomes exclusive.
    Upgrade,
    /// `release`: all that the session holds.
    Release,
}

/// The nodes of a lock step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub mode: Mode,
    pub targets: Vec<Target>,
    /// How long it may wait.
    pub within: Option<Duration>,
}

impl LockAction {
    /// Returns the nodes that it takes, if it takes any.
    pub(crate) fn request(&self) -> Option<&LockRequest> {
        match self {
            Self::Lock(request) | Self::Try(request) | Self::Extend(request) => Some(request),
            Self::Upgrade | Self::Release => None,
        }
    }
}

/// Is this a lock step, and not SQL? `lock tables …`, `lock instance for backup`, `lock t in share mode`
/// and `release savepoint …` are SQL, and so is anything whose first word is in capitals.
pub(crate) fn is_lock_step(statement: &str) -> bool {
    let first = statement.split_whitespace().next().unwrap_or_default();
    matches!(first, "lock" | "try" | "extend" | "upgrade" | "release") && !is_sql(statement)
}

/// Is this a statement of a server that begins with a word of ours?
fn is_sql(statement: &str) -> bool {
    let statement = statement.to_lowercase();
    let words: Vec<&str> =
        statement.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
    match words.as_slice() {
        ["lock", "table" | "tables", ..] | ["release", "savepoint", ..] => true,
        // MySQL's, and one of its relatives.
        ["lock", "instance" | "binlog", "for", "backup"] => true,
        // PostgreSQL's, where the word `table` may be left out.
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
            .fail(format!("`{verb}` stands alone; it is about all that the session holds"));
    }
    Ok(action)
}

fn mode(reader: &mut Reader<'_>) -> Result<Mode, ParseError> {
    let here = *reader;
    let word = reader.word();
    if let Ok(mode) = word.parse() {
        return Ok(mode);
    }
    // `lock exlusive u1` would lock the user `exlusive`.
    let meant = nearest(word, &MODES).filter(|_| !reader.is_over() && !word.contains('/'));
    *reader = here;
    match meant {
        Some(near) => here.fail(format!(
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
    let here = *reader;
    duration(reader.word(), Duration::ZERO).map(Some).or_else(|message| here.fail(message))
}

fn targets(reader: &mut Reader<'_>) -> Result<Vec<Target>, ParseError> {
    let tree = Hierarchy::default();
    let mut targets = Vec::new();
    while !reader.is_over() {
        let here = *reader;
        let Some(path) = reader.word_or_quoted()? else {
            return here.unexpected("paths are separated by blanks");
        };
        if path.starts_with('{') && path.ends_with('}') {
            return here.fail(format!("`{path}` is not the name of an axis"));
        }
        targets.push(tree.parse(&path).or_else(|error| here.fail(error.to_string()))?);
    }
    if targets.is_empty() {
        return reader.fail("a path is missing; it is `u1`, `u1/a1` or `u1/a1/r1`");
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_steps_and_sql_are_told_apart() {
        for (statement, is) in [
            ("lock u1", true),
            ("lock\n  u1", true),
            ("upgrade", true),
            ("release", true),
            ("try shared u1/a1", true),
            ("lock tables t write", false),
            ("lock TABLE t in share mode", false),
            ("LOCK numbers in share mode", false),
            ("release savepoint s", false),
            // Was read as a lock of the nodes `instance`, `for` and `backup`.
            ("lock instance for backup", false),
            ("lock instance\n  for backup;", false),
            ("lock instance u1", true),
            ("lock numbers in share mode", false),
            ("lock only numbers in access exclusive mode nowait", false),
            ("lock shared mode", true),
            ("RELEASE s", false),
            ("select 1", false),
            ("", false),
        ] {
            assert_eq!(is_lock_step(statement), is, "{statement}");
        }
    }

    #[test]
    fn lock_steps_are_read() {
        let request = |mode, paths: &[&str], within| LockRequest {
            mode,
            targets: paths.iter().map(|path| path.parse().unwrap()).collect(),
            within,
        };
        let long = request(Mode::Shared, &["u1/a1", "u2"], Some(Duration::from_secs(90)));
        let quoted = request(Mode::Exclusive, &["share", "u1"], None);
        for (text, action) in [
            ("lock u1", LockAction::Lock(request(Mode::Exclusive, &["u1"], None))),
            ("lock shared within 1.5m u1/a1 u2", LockAction::Lock(long)),
            ("try 'share' u1", LockAction::Try(quoted)),
            ("extend update u1", LockAction::Extend(request(Mode::Update, &["u1"], None))),
            ("upgrade", LockAction::Upgrade),
            ("release", LockAction::Release),
        ] {
            assert_eq!(read(text), Ok(action), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_lock_step_is_said() {
        for (text, at, says) in [
            ("lock", 4, "a path is missing"),
            ("lock exlusive u1", 5, "did you mean `exclusive`"),
            ("lock within u1", 12, "`u1` is not a time"),
            ("lock u1/a1/r1/x", 5, "levels"),
            ("lock u1//r1", 5, "not a path"),
            ("lock u1, u2", 7, "separated by blanks"),
            ("lock 'u1", 5, "not closed"),
            ("lock {held}", 5, "not the name of an axis"),
            ("try within 5s u1", 4, "never waits"),
            ("release u1", 8, "stands alone"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(says), "{text}: {}", error.message);
            assert_eq!(error.at, at, "{text}");
        }
    }
}
