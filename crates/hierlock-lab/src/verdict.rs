//! Compares the expectation of a step with the observation. Pure: observations in, a sentence out.

use crate::observation::{Answer, Failure, FailureKind, Observation, SessionName, SessionWait};
use crate::scenario::{Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionSelector};
use crate::text::join;

pub(crate) struct ObservedStep<'a> {
    pub(crate) session: &'a SessionName,
    pub(crate) observation: &'a Observation,
    pub(crate) victims: &'a [SessionName],
    /// The sessions `victim` and `survivor`, if there was a deadlock of two.
    pub(crate) pair: Option<&'a DeadlockPair>,
}

#[derive(Clone, Debug)]
pub(crate) struct DeadlockPair {
    pub(crate) victim: SessionName,
    /// Unknown if the engine does not report the cycle.
    pub(crate) survivor: Option<SessionName>,
}

impl DeadlockPair {
    /// Returns the session that the selector names.
    pub(crate) fn resolve<'a>(
        pair: Option<&'a Self>,
        selector: &'a SessionSelector,
    ) -> Option<&'a SessionName> {
        match selector {
            SessionSelector::Session(name) => Some(name),
            SessionSelector::Victim => pair.map(|pair| &pair.victim),
            SessionSelector::Survivor => pair.and_then(|pair| pair.survivor.as_ref()),
        }
    }
}

/// Returns the difference in a sentence. A step without an expectation must be done.
pub(crate) fn difference(
    expected: Option<&Expectation>,
    observed: &ObservedStep<'_>,
) -> Option<String> {
    let done = Expectation::default();
    let expected = expected.unwrap_or(&done);
    let mut differences = Vec::new();
    for alternative in &expected.alternatives {
        differences.push(difference_from(alternative, observed)?);
    }
    if differences.len() == 1 {
        return differences.pop();
    }
    // The text of the expectation contains all alternatives.
    Some(format!("expected `{expected}`, but it {}", predicate(observed.observation)))
}

fn difference_from(expected: &ExpectedOutcome, observed: &ObservedStep<'_>) -> Option<String> {
    let instead = |should: &str| {
        Some(format!("it should {should}, but it {}", predicate(observed.observation)))
    };
    let must_fail_with = |kind: FailureKind, should: &str| match observed.observation {
        Observation::Failed(failure) if failure.kind == kind => None,
        _ => instead(should),
    };
    match (expected, observed.observation) {
        (ExpectedOutcome::Done { rows, changed }, Observation::Done(answer)) => {
            let rows = rows.as_ref().and_then(|rows| rows_differ(rows, answer));
            rows.or_else(|| changed_differs((*changed)?, answer))
        }
        (ExpectedOutcome::Done { .. }, _) => instead("be done"),
        (ExpectedOutcome::Blocked { by, .. }, Observation::Blocked(wait)) => {
            blockers_differ(by, wait, observed.pair)
                .or_else(|| locked_object_differs(expected, wait))
        }
        (ExpectedOutcome::Blocked { .. }, _) => instead(&format!("be {expected}")),
        (ExpectedOutcome::Deadlock { victims }, _) => victims_differ(victims, observed),
        (ExpectedOutcome::TimedOut, _) => must_fail_with(FailureKind::TimedOut, "time out"),
        (ExpectedOutcome::Refused, _) => must_fail_with(FailureKind::Refused, "be refused"),
        (ExpectedOutcome::Conflict, _) => {
            must_fail_with(FailureKind::Conflict, "fail with a conflict")
        }
        (ExpectedOutcome::Error { code, message }, Observation::Failed(failure)) => {
            error_differs(code.as_deref(), message.as_deref(), failure)
        }
        (ExpectedOutcome::Error { .. }, _) => instead("fail"),
    }
}

fn changed_differs(changed: u64, answer: &Answer) -> Option<String> {
    (answer.changed != changed).then(|| {
        let did = if answer.is_matched { "matched" } else { "changed" };
        format!("it should change {changed} rows, but it {did} {}", answer.changed)
    })
}

fn locked_object_differs(expected: &ExpectedOutcome, wait: &SessionWait) -> Option<String> {
    let ExpectedOutcome::Blocked { kind, object, .. } = expected else { return None };
    let target = wait.target.as_ref();
    let is_same = kind.is_none_or(|kind| target.is_some_and(|target| target.kind == kind))
        && object.as_ref().is_none_or(|name| target.is_some_and(|target| target.object == *name));
    let instead = match target {
        Some(target) => format!("it waits for {target}"),
        None => "the engine does not report the lock that it waits for".to_owned(),
    };
    (!is_same).then(|| format!("expected `{expected}`, but {instead}"))
}

fn blockers_differ(
    by: &[SessionSelector],
    wait: &SessionWait,
    pair: Option<&DeadlockPair>,
) -> Option<String> {
    let mut expected = Vec::new();
    for selector in by {
        let Some(name) = DeadlockPair::resolve(pair, selector) else {
            let expected = format!("expected to be blocked by `{selector}`");
            return Some(format!("{expected}, but there was no deadlock of two"));
        };
        expected.push(name);
    }
    expected.sort();
    let is_same = !wait.has_outside_blocker && wait.blockers.iter().collect::<Vec<_>>() == expected;
    (!by.is_empty() && !is_same).then(|| {
        let by = join(expected, " and ");
        format!("it should be blocked by {by}, but it {}", blocked_by(wait))
    })
}

fn victims_differ(expected: &[SessionName], observed: &ObservedStep<'_>) -> Option<String> {
    let own = std::slice::from_ref(observed.session);
    let candidates = if expected.is_empty() { own } else { expected };
    match observed.victims {
        [victim] if candidates.contains(victim) => None,
        [] => {
            let instead = predicate(observed.observation);
            Some(format!("there should be a deadlock, but it {instead}"))
        }
        others => {
            let (these, others) = (join(candidates, " or "), join(others, " and "));
            let should = format!("the victim of the deadlock should be {these}");
            Some(format!("{should}, but it was {others}"))
        }
    }
}

fn error_differs(code: Option<&str>, message: Option<&str>, failure: &Failure) -> Option<String> {
    let same_code = code.is_none_or(|code| failure.code == code);
    let same_words = message.is_none_or(|message| failure.message.contains(message));
    (!same_code || !same_words).then(|| {
        let wanted = [code.map(str::to_owned), message.map(|message| format!("`{message}`"))];
        let wanted = join(wanted.into_iter().flatten(), " ");
        format!("it should fail with {wanted}, but it {}", failed(failure))
    })
}

fn rows_differ(expected: &ExpectedRows, answer: &Answer) -> Option<String> {
    let rows = answer.rows.as_deref().unwrap_or_default();
    let agree = if expected.any_order {
        agree_in_any_order(&expected.rows, rows)
    } else {
        expected.rows.len() == rows.len()
            && expected.rows.iter().zip(rows).all(|(expected, row)| row_agrees(expected, row))
    };
    (!agree).then(|| format!("expected `{expected}`, but it gave {}", rows_text(answer)))
}

/// Tries all assignments of rows to expected rows, because a cell may match any value; transcripts have few rows.
fn agree_in_any_order(expected: &[Vec<ExpectedCell>], rows: &[Vec<Option<String>>]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return rows.is_empty() };
    expected.len() == rows.len()
        && (0..rows.len()).any(|at| {
            row_agrees(first, &rows[at]) && {
                let mut remaining = rows.to_vec();
                remaining.remove(at);
                agree_in_any_order(rest, &remaining)
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

/// Compares as numbers if both are numbers, as booleans if both are booleans, else as texts.
fn same_value(a: &str, b: &str) -> bool {
    match (decimal(a), decimal(b)) {
        (Some(a), Some(b)) => a == b,
        _ => {
            a == b
                || matches!((a, b), ("t", "true") | ("true", "t") | ("f", "false") | ("false", "f"))
        }
    }
}

/// Returns a decimal number in its shortest form: sign, whole part and fraction, exact for any length.
fn decimal(text: &str) -> Option<(bool, &str, &str)> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || digits.ends_with('.') {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let zero = whole.is_empty() && fraction.is_empty();
    Some((digits.len() < text.len() && !zero, whole, fraction))
}

/// Returns the words after "but it": `was done`, `is blocked by A (row 1 of t)`, `failed: …`.
pub(crate) fn predicate(observation: &Observation) -> String {
    match observation {
        Observation::Done(answer) if answer.rows.is_some() => format!("gave {}", rows_text(answer)),
        Observation::Done(_) => "was done".to_owned(),
        Observation::Blocked(wait) => blocked_by(wait),
        Observation::Failed(failure) => failed(failure),
        Observation::Stuck => "neither ended nor was seen to wait".to_owned(),
    }
}

fn rows_text(answer: &Answer) -> String {
    let Some(rows) = answer.rows.as_ref().filter(|rows| !rows.is_empty()) else {
        return "no rows".to_owned();
    };
    let row = |row: &Vec<Option<String>>| {
        format!("({})", join(row.iter().map(|cell| cell.as_deref().unwrap_or("null")), ", "))
    };
    join(rows.iter().map(row), " ")
}

fn blocked_by(wait: &SessionWait) -> String {
    let mut by: Vec<&str> = wait.blockers.iter().map(SessionName::as_str).collect();
    by.extend(wait.has_outside_blocker.then_some("a session outside of the scenario"));
    let text = match by.as_slice() {
        [] => "is blocked, and the engine does not report by which session".to_owned(),
        by => format!("is blocked by {}", by.join(" and ")),
    };
    wait.target.as_ref().map_or(text.clone(), |target| format!("{text} ({target})"))
}

fn failed(failure: &Failure) -> String {
    let Failure { kind, code, message, .. } = failure;
    let verb = match kind {
        FailureKind::Deadlock => "was the victim of a deadlock",
        FailureKind::TimedOut => "timed out",
        FailureKind::Refused => "was refused",
        FailureKind::Conflict => "failed with a conflict",
        FailureKind::Cancelled => "was ended by the lab",
        FailureKind::Other => "failed",
    };
    let space = if code.is_empty() { "" } else { " " };
    format!("{verb}: {code}{space}{message}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{blocked, name, node, rows};
    use crate::scenario::read_expectation;

    /// Returns whether an observation of B agrees with an expectation.
    fn agrees(expected: &str, observation: &Observation, victims: &[&str]) -> bool {
        let expectation = read_expectation(expected).unwrap();
        let victims: Vec<SessionName> = victims.iter().map(|text| name(text)).collect();
        let (session, victims) = (&name("B"), victims.as_slice());
        let observed = ObservedStep { session, observation, victims, pair: None };
        difference(Some(&expectation), &observed).is_none()
    }

    #[test]
    fn values_are_compared_by_type() {
        for (a, b, same) in [
            ("30", "30.00", true),
            ("-0", "0", true),
            ("007", "7", true),
            ("true", "t", true),
            ("a b", "a b", true),
            ("12345678901234567890.10", "12345678901234567890.1", true),
            ("30", "31", false),
            ("-1", "1", false),
            ("a", "A", false),
            ("t", "f", false),
            ("1", "true", false),
            ("1.", "1", false),
            ("12345678901234567890", "12345678901234567891", false),
            ("", "0", false),
        ] {
            assert_eq!((same_value(a, b), same_value(b, a)), (same, same), "{a} {b}");
        }
    }

    #[test]
    fn observations_are_compared_with_expectations() {
        let read = rows(&[&["1", "null"], &["2", "x"]]);
        let waits = blocked("B", &["A"], Some(node("u1")));
        let mut waits_outside = waits.clone();
        if let Observation::Blocked(wait) = &mut waits_outside {
            wait.has_outside_blocker = true;
        }
        for (seen, expected, should_agree) in [
            (&read, "rows (1, null) (2, *)", true),
            (&read, "rows (2, x) (1, null)", false),
            (&read, "rows (2, x) (1, null), in any order", true),
            // The first row that matches is not always the right one.
            (&read, "rows (*, *) (1, null), in any order", true),
            (&read, "rows (1, null)", false),
            (&read, "rows (1, null), in any order", false),
            (&read, "rows 1 2", false),
            (&read, "rows 1 2, in any order", false),
            (&waits, "blocked", true),
            (&waits, "blocked by A on node u1", true),
            (&waits, "blocked by C", false),
            (&waits, "blocked by A and C", false),
            (&waits, "blocked by A on row", false),
            (&waits, "blocked by A on node u2", false),
            (&waits_outside, "blocked by A", false),
        ] {
            assert_eq!(agrees(expected, seen, &[]), should_agree, "{expected}");
        }
        for (expected, chosen, should_agree) in [
            ("deadlock, A or B", &["A"][..], true),
            ("deadlock", &["B"], true),
            ("deadlock", &["A"], false),
            ("deadlock, A or B", &[], false),
            ("deadlock, A or B", &["A", "B"], false),
        ] {
            assert_eq!(agrees(expected, &rows(&[]), chosen), should_agree, "{expected} {chosen:?}");
        }
    }
}
