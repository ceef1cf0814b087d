//! Lock steps: `lock shared within 300ms u1/a1`. Knows which words begin one and how the rest reads;
//! everything else is SQL.

use super::file::LockDeed;
use super::mistake::{Slip, nearest};
use super::reader::{DURATION, Reader, duration};
use hierlock::{Hierarchy, Mode, Target};
use std::time::Duration;

const MODES: [&str; 3] = ["shared", "update", "exclusive"];

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

/// Reads a lock step.
pub(crate) fn read(text: &str) -> Result<LockDeed, Slip> {
    let mut reader = Reader::new(text);
    let verb = reader.word();
    let deed = match verb {
        "lock" => {
            let (mode, within) = (mode(&mut reader)?, within(&mut reader)?);
            LockDeed::Lock { mode, within, targets: targets(&mut reader)? }
        }
        "try" => {
            let mode = mode(&mut reader)?;
            if reader.peek() == "within" {
                return reader.slip("`try` never waits; with a time it is `lock within …`");
            }
            LockDeed::Try { mode, targets: targets(&mut reader)? }
        }
        "extend" => {
            let (mode, within) = (mode(&mut reader)?, within(&mut reader)?);
            LockDeed::Extend { mode, within, targets: targets(&mut reader)? }
        }
        "upgrade" => LockDeed::Upgrade,
        "release" => LockDeed::Release,
        _ => return Reader::new(text).slip("this is not a lock step"),
    };
    if !reader.is_over() {
        return reader
            .slip(format!("`{verb}` stands alone; it is about all that the session holds"));
    }
    Ok(deed)
}

fn mode(reader: &mut Reader<'_>) -> Result<Mode, Slip> {
    let here = *reader;
    let word = reader.word();
    if let Ok(mode) = word.parse() {
        return Ok(mode);
    }
    // `lock exlusive u1` would lock the user `exlusive`.
    let meant = nearest(word, &MODES).filter(|_| !reader.is_over() && !word.contains('/'));
    *reader = here;
    match meant {
        Some(near) => here.slip(format!(
            "`{word}` is not a mode; did you mean `{near}`? (A user of that name is written \
                 in quotes.)"
        )),
        None => Ok(Mode::Exclusive),
    }
}

fn within(reader: &mut Reader<'_>) -> Result<Option<Duration>, Slip> {
    if !reader.take("within") {
        return Ok(None);
    }
    let here = *reader;
    match duration(reader.word()) {
        Some(time) => Ok(Some(time)),
        None => here.slip(format!("{} is not {DURATION}", here.found())),
    }
}

fn targets(reader: &mut Reader<'_>) -> Result<Vec<Target>, Slip> {
    let tree = Hierarchy::default();
    let mut targets = Vec::new();
    while !reader.is_over() {
        let here = *reader;
        let Some(path) = reader.word_or_quoted()? else {
            return here.slip(format!(
                "{} cannot stand here; paths are separated by blanks",
                here.found()
            ));
        };
        if path.starts_with('{') && path.ends_with('}') {
            return here.slip(format!("`{path}` is not the name of an axis"));
        }
        match tree.parse(&path) {
            Ok(target) => targets.push(target),
            Err(error) => return here.slip(error.to_string()),
        }
    }
    if targets.is_empty() {
        return reader.slip("a path is missing; it is `u1`, `u1/a1` or `u1/a1/r1`");
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
        let target = |path: &str| path.parse::<Target>().unwrap();
        for (text, deed) in [
            (
                "lock u1",
                LockDeed::Lock { mode: Mode::Exclusive, targets: vec![target("u1")], within: None },
            ),
            (
                "lock shared within 300ms u1/a1 u2",
                LockDeed::Lock {
                    mode: Mode::Shared,
                    targets: vec![target("u1/a1"), target("u2")],
                    within: Some(Duration::from_millis(300)),
                },
            ),
            (
                "try 'share' u1",
                LockDeed::Try {
                    mode: Mode::Exclusive,
                    targets: vec![target("share"), target("u1")],
                },
            ),
            (
                "extend update u1",
                LockDeed::Extend { mode: Mode::Update, targets: vec![target("u1")], within: None },
            ),
            ("upgrade", LockDeed::Upgrade),
            ("release", LockDeed::Release),
        ] {
            assert_eq!(read(text), Ok(deed), "{text}");
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
            let slip = read(text).unwrap_err();
            assert!(slip.message.contains(says), "{text}: {}", slip.message);
            assert_eq!(slip.at, at, "{text}");
        }
    }
}
