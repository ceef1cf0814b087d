//! Does what was seen agree with what the file expects? Pure: observations in, a sentence out.

use crate::observation::{Answer, Failure, FailureKind, Name, Observation, Wait};
use crate::scenario::{Actor, Expectation, Expected, ExpectedCell, ExpectedRows};

/// What a step is judged by.
pub(crate) struct Seen<'a> {
    /// Whose step it is.
    pub(crate) session: &'a Name,
    /// What it was seen to be.
    pub(crate) observation: &'a Observation,
    /// Sessions that were chosen to end a deadlock during it.
    pub(crate) victims: &'a [Name],
    /// Who `victim` and `survivor` are, if there was a deadlock of two.
    pub(crate) pair: Option<&'a Pair>,
}

/// The two of a deadlock.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) victim: Name,
    /// Unknown, where the engine does not tell the circle.
    pub(crate) survivor: Option<Name>,
}

impl Pair {
    /// Who is meant.
    pub(crate) fn resolve<'a>(pair: Option<&'a Pair>, who: &'a Actor) -> Option<&'a Name> {
        match who {
            Actor::Session(name) => Some(name),
            Actor::Victim => pair.map(|pair| &pair.victim),
            Actor::Survivor => pair.and_then(|pair| pair.survivor.as_ref()),
        }
    }
}

/// The difference between what was expected and what was seen, in a sentence; `None` if they agree.
/// A step of which nothing is expected must be done.
pub(crate) fn difference(expected: Option<&Expectation>, seen: &Seen<'_>) -> Option<String> {
    let Some(expected) = expected else {
        return match seen.observation {
            Observation::Done(_) => None,
            other => Some(format!("it should be done, but it {}", predicate(other))),
        };
    };
    let mut differences = Vec::new();
    for one in &expected.either {
        differences.push(difference_from(one, seen)?);
    }
    // With several the first differences would only confuse: all of them are in the expectation.
    match <[String; 1]>::try_from(differences) {
        Ok([only]) => Some(only),
        Err(_) => Some(format!("expected `{expected}`, but it {}", predicate(seen.observation))),
    }
}

/// Whether what was seen is what is described.
pub(crate) fn fits(expected: &Expectation, seen: &Seen<'_>) -> bool {
    difference(Some(expected), seen).is_none()
}

fn difference_from(expected: &Expected, seen: &Seen<'_>) -> Option<String> {
    let instead =
        |should: &str| format!("it should {should}, but it {}", predicate(seen.observation));
    match (expected, seen.observation) {
        (Expected::Done { rows, changed }, Observation::Done(answer)) => rows
            .as_ref()
            .and_then(|rows| rows_differ(rows, answer))
            .or_else(|| changed.and_then(|changed| changed_differs(changed, answer))),
        (Expected::Blocked { by, kind, object }, Observation::Blocked(wait)) => {
            blockers_differ(by, wait, seen.pair).or_else(|| {
                let thing = wait.thing.as_ref();
                let of_kind = kind.is_none_or(|kind| thing.is_some_and(|thing| thing.kind == kind));
                let of_object = object
                    .as_ref()
                    .is_none_or(|object| thing.is_some_and(|thing| thing.object == *object));
                (!of_kind || !of_object).then(|| match thing {
                    Some(thing) => format!("expected `{expected}`, but it waits for {thing}"),
                    None => format!(
                        "expected `{expected}`, but the engine does not say for what it waits"
                    ),
                })
            })
        }
        (Expected::Deadlock { victims }, observation) => {
            victims_differ(victims, seen.session, seen.victims, observation)
        }
        (Expected::TimedOut, Observation::Failed(failure))
            if failure.kind == FailureKind::TimedOut =>
        {
            None
        }
        (Expected::Refused, Observation::Failed(failure))
            if failure.kind == FailureKind::Refused =>
        {
            None
        }
        (Expected::Conflict, Observation::Failed(failure))
            if failure.kind == FailureKind::Conflict =>
        {
            None
        }
        (Expected::Error { code, says }, Observation::Failed(failure)) => {
            error_differs(code.as_deref(), says.as_deref(), failure)
        }
        (Expected::Done { .. }, _) => Some(instead("be done")),
        (Expected::Blocked { .. }, _) => Some(instead(&format!("be {expected}"))),
        (Expected::TimedOut, _) => Some(instead("time out")),
        (Expected::Refused, _) => Some(instead("be refused")),
        (Expected::Conflict, _) => Some(instead("fail with a conflict")),
        (Expected::Error { .. }, _) => Some(instead("fail")),
    }
}

fn changed_differs(changed: u64, answer: &Answer) -> Option<String> {
    (answer.changed != changed).then(|| {
        let did = if answer.is_matched { "matched" } else { "changed" };
        format!("it should change {changed} rows, but it {did} {}", answer.changed)
    })
}

fn blockers_differ(by: &[Actor], wait: &Wait, pair: Option<&Pair>) -> Option<String> {
    if by.is_empty() {
        return None;
    }
    let mut expected = Vec::new();
    for who in by {
        match Pair::resolve(pair, who) {
            Some(name) => expected.push(name),
            None => {
                return Some(format!(
                    "expected to be blocked by `{who}`, but there was no deadlock of two"
                ));
            }
        }
    }
    expected.sort();
    let same = !wait.strangers && wait.blockers.iter().collect::<Vec<_>>() == expected;
    (!same).then(|| {
        let by: Vec<&str> = expected.iter().map(|name| name.as_str()).collect();
        format!("it should be blocked by {}, but it {}", by.join(" and "), blocked_by(wait))
    })
}

fn victims_differ(
    expected: &[Name],
    session: &Name,
    victims: &[Name],
    observation: &Observation,
) -> Option<String> {
    let own = [session.clone()];
    let candidates = if expected.is_empty() { &own[..] } else { expected };
    match victims {
        [victim] if candidates.contains(victim) => None,
        [] => Some(format!("there should be a deadlock, but it {}", predicate(observation))),
        others => {
            let chosen: Vec<&str> = others.iter().map(Name::as_str).collect();
            let candidates: Vec<&str> = candidates.iter().map(Name::as_str).collect();
            Some(format!(
                "{} should be chosen to end the deadlock, but the engine chose {}",
                candidates.join(" or "),
                chosen.join(" and ")
            ))
        }
    }
}

fn error_differs(code: Option<&str>, says: Option<&str>, failure: &Failure) -> Option<String> {
    let same_code = code.is_none_or(|code| failure.code == code);
    let same_words = says.is_none_or(|says| failure.message.contains(says));
    (!same_code || !same_words).then(|| {
        let wanted = [code.map(str::to_owned), says.map(|says| format!("`{says}`"))];
        let wanted: Vec<String> = wanted.into_iter().flatten().collect();
        format!("it should fail with {}, but it {}", wanted.join(" "), failed(failure))
    })
}

fn rows_differ(expected: &ExpectedRows, answer: &Answer) -> Option<String> {
    let none = Vec::new();
    let rows = answer.rows.as_ref().unwrap_or(&none);
    let agree = match expected.any_order {
        true => agree_in_any_order(&expected.rows, rows),
        false => {
            expected.rows.len() == rows.len()
                && expected.rows.iter().zip(rows).all(|(expected, row)| row_agrees(expected, row))
        }
    };
    (!agree).then(|| format!("expected `{expected}`, but it gave {}", gave(answer)))
}

/// Each expected row is found among those that are left: a cell may be anything, so that which row
/// is taken for which matters. Rows of transcripts are few.
fn agree_in_any_order(expected: &[Vec<ExpectedCell>], rows: &[Vec<Option<String>>]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return rows.is_empty() };
    expected.len() == rows.len()
        && (0..rows.len()).any(|at| {
            row_agrees(first, &rows[at]) && {
                let mut left = rows.to_vec();
                left.remove(at);
                agree_in_any_order(rest, &left)
            }
        })
}

fn row_agrees(expected: &[ExpectedCell], row: &[Option<String>]) -> bool {
    expected.len() == row.len()
        && expected.iter().zip(row).all(|(expected, cell)| match (expected, cell) {
            (ExpectedCell::Anything, _) | (ExpectedCell::Null, None) => true,
            (ExpectedCell::Value(expected), Some(cell)) => same_value(expected, cell),
            _ => false,
        })
}

/// As numbers if both are, as truths if both are, else as texts.
fn same_value(a: &str, b: &str) -> bool {
    let number = |text: &str| decimal(text);
    let truth = |text: &str| match text {
        "t" | "true" => Some(true),
        "f" | "false" => Some(false),
        _ => None,
    };
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b || truth(a).is_some_and(|a| truth(b) == Some(a)),
    }
}

/// A decimal number in its shortest form: exact, whatever its length.
fn decimal(text: &str) -> Option<(bool, String, String)> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || digits.ends_with('.') {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let zero = whole.is_empty() && fraction.is_empty();
    Some((negative && !zero, whole.to_owned(), fraction.to_owned()))
}

/// `was done`, `is blocked by A (row 1 of t)`, `failed: …`: what follows "but it".
pub(crate) fn predicate(observation: &Observation) -> String {
    match observation {
        Observation::Done(answer) if answer.rows.is_some() => format!("gave {}", gave(answer)),
        Observation::Done(_) => "was done".to_owned(),
        Observation::Blocked(wait) => blocked_by(wait),
        Observation::Failed(failure) => failed(failure),
        Observation::Stuck => "neither ended nor was seen to wait".to_owned(),
    }
}

fn gave(answer: &Answer) -> String {
    let Some(rows) = answer.rows.as_ref().filter(|rows| !rows.is_empty()) else {
        return "no rows".to_owned();
    };
    let row = |row: &Vec<Option<String>>| {
        let cells: Vec<&str> = row.iter().map(|cell| cell.as_deref().unwrap_or("null")).collect();
        format!("({})", cells.join(", "))
    };
    rows.iter().map(row).collect::<Vec<_>>().join(" ")
}

fn blocked_by(wait: &Wait) -> String {
    let mut by: Vec<&str> = wait.blockers.iter().map(Name::as_str).collect();
    if wait.strangers {
        by.push("somebody outside of the scenario");
    }
    let by = match by.is_empty() {
        true => "is blocked, the engine does not say by whom".to_owned(),
        false => format!("is blocked by {}", by.join(" and ")),
    };
    match &wait.thing {
        Some(thing) => format!("{by} ({thing})"),
        None => by,
    }
}

fn failed(failure: &Failure) -> String {
    let Failure { kind, code, message, .. } = failure;
    let what = match kind {
        FailureKind::Deadlock => "was chosen to end a deadlock",
        FailureKind::TimedOut => "timed out",
        FailureKind::Refused => "was refused",
        FailureKind::Conflict => "failed with a conflict",
        FailureKind::Cancelled => "was ended by the lab",
        FailureKind::Other => "failed",
    };
    match code.is_empty() {
        true => format!("{what}: {message}"),
        false => format!("{what}: {code} {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{LockKind, LockedObject};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn judge(expected: Expected, observation: &Observation, victims: &[Name]) -> Option<String> {
        let expected = Expectation { either: vec![expected] };
        let seen = Seen { session: &name("B"), observation, victims, pair: None };
        difference(Some(&expected), &seen)
    }

    fn answer(rows: &[&[Option<&str>]]) -> Observation {
        let cell = |cell: &Option<&str>| cell.map(str::to_owned);
        let rows = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        Observation::Done(Answer { rows: Some(rows), changed: 0, is_matched: false })
    }

    fn rows(rows: &[&[&str]], any_order: bool) -> Expected {
        let cell = |cell: &&str| match *cell {
            "null" => ExpectedCell::Null,
            "*" => ExpectedCell::Anything,
            text => ExpectedCell::Value(text.to_owned()),
        };
        let rows = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        Expected::Done { rows: Some(ExpectedRows { rows, any_order }), changed: None }
    }

    #[test]
    fn values() {
        let same = [
            ("30", "30.00"),
            ("-0", "0"),
            ("007", "7"),
            ("true", "t"),
            ("a b", "a b"),
            ("12345678901234567890.10", "12345678901234567890.1"),
        ];
        for (a, b) in same {
            assert!(same_value(a, b) && same_value(b, a), "{a} {b}");
        }
        let different = [
            ("30", "31"),
            ("-1", "1"),
            ("a", "A"),
            ("t", "f"),
            ("1", "true"),
            ("1.", "1"),
            ("12345678901234567890", "12345678901234567891"),
            ("", "0"),
        ];
        for (a, b) in different {
            assert!(!same_value(a, b) && !same_value(b, a), "{a} {b}");
        }
    }

    #[test]
    fn rows_in_order_and_not() {
        let seen = answer(&[&[Some("1"), None], &[Some("2"), Some("x")]]);
        assert_eq!(judge(rows(&[&["1", "null"], &["2", "*"]], false), &seen, &[]), None);
        assert!(judge(rows(&[&["2", "x"], &["1", "null"]], false), &seen, &[]).is_some());
        assert_eq!(judge(rows(&[&["2", "x"], &["1", "null"]], true), &seen, &[]), None);
        // The first that fits is not always the right one.
        assert_eq!(judge(rows(&[&["*", "*"], &["1", "null"]], true), &seen, &[]), None);
        assert!(judge(rows(&[&["1", "null"]], false), &seen, &[]).is_some());
        assert!(judge(rows(&[&["1", "null"]], true), &seen, &[]).is_some());
        assert!(judge(rows(&[&["1"], &["2"]], false), &seen, &[]).is_some());
    }

    #[test]
    fn blockers() {
        let thing = LockedObject {
            kind: LockKind::Gap,
            object: "demo".to_owned(),
            index: None,
            record: None,
            mode: "X".to_owned(),
        };
        let wait = |strangers| {
            Observation::Blocked(Wait {
                waiter: name("B"),
                blockers: vec![name("A")],
                strangers,
                thing: Some(thing.clone()),
            })
        };
        let blocked = |by: &[&str], kind, object: Option<&str>| Expected::Blocked {
            by: by.iter().map(|by| Actor::Session(name(by))).collect(),
            kind,
            object: object.map(str::to_owned),
        };
        for agrees in [blocked(&[], None, None), blocked(&["A"], Some(LockKind::Gap), Some("demo"))]
        {
            assert_eq!(judge(agrees, &wait(false), &[]), None);
        }
        for differs in [
            blocked(&["C"], None, None),
            blocked(&["A", "C"], None, None),
            blocked(&["A"], Some(LockKind::Row), None),
            blocked(&["A"], None, Some("t")),
        ] {
            assert!(judge(differs, &wait(false), &[]).is_some());
        }
        assert!(judge(blocked(&["A"], None, None), &wait(true), &[]).is_some());
    }

    #[test]
    fn victims() {
        let done = answer(&[]);
        let deadlock = |victims: &[&str]| Expected::Deadlock {
            victims: victims.iter().map(|v| name(v)).collect(),
        };
        assert_eq!(judge(deadlock(&["A", "B"]), &done, &[name("A")]), None);
        assert_eq!(judge(deadlock(&[]), &done, &[name("B")]), None);
        assert!(judge(deadlock(&[]), &done, &[name("A")]).is_some());
        assert!(judge(deadlock(&["A", "B"]), &done, &[]).is_some());
        assert!(judge(deadlock(&["A", "B"]), &done, &[name("A"), name("B")]).is_some());
    }
}
