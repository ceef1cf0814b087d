//! From what was seen of a step to what a file would say of it.

use super::unsaid;
use crate::observation::{Answer, Failure, FailureKind, LockKind, Name, Observation, Wait};
use crate::record::{Record, StepRecord};
use crate::scenario::file::{Actor, Expectation, Expected, ExpectedCell, ExpectedRows, Line};

/// What must be seen in a case after these runs of it: what the file says, if they agree or there are
/// none; else what they saw. Where only some runs disagree, both.
pub(super) fn wish<'r>(
    line: &Line,
    before: Option<Expectation>,
    has_limit: bool,
    runs: impl Iterator<Item = &'r Record>,
) -> Option<Expectation> {
    let mut either: Vec<Expected> = Vec::new();
    let mut agreed = false;
    for record in runs {
        for (index, step) in record.steps.iter().enumerate() {
            if step.line != line.line {
                continue;
            }
            if is_as_before(record, index, step, before.as_ref()) {
                agreed = true;
            } else if let Some(seen) = expected(record, index, step, before.as_ref(), has_limit)
                && !either.contains(&seen)
            {
                either.push(seen);
            }
        }
    }
    if either.is_empty() {
        return before;
    }
    if agreed {
        let done = Expected::Done { rows: None, changed: None };
        let mut both = before.map_or_else(|| vec![done], |before| before.either);
        either.retain(|seen| !both.contains(seen));
        both.append(&mut either);
        either = both;
    }
    Some(Expectation { either })
}

/// What was seen, in the words of a file; nothing, if there is nothing to go by.
fn expected(
    record: &Record,
    index: usize,
    step: &StepRecord,
    before: Option<&Expectation>,
    has_limit: bool,
) -> Option<Expected> {
    // A circle is closed by one step, and the victim may be another session's.
    if let Some(deadlock) = record.deadlocks.iter().find(|deadlock| deadlock.step == index) {
        let mut victims: Vec<Name> =
            deadlock.circle.iter().map(|link| link.waiter.clone()).collect();
        victims.extend([deadlock.victim.clone(), step.session.clone()]);
        victims.sort();
        victims.dedup();
        return Some(Expected::Deadlock { victims });
    }
    // A wait with a limit of its own ends by itself: that is what a file can hold it to.
    if let Some((failure, _)) = unsaid::failure(record, index)
        && failure.kind == FailureKind::TimedOut
    {
        return Some(Expected::TimedOut);
    }
    match &step.seen {
        Observation::Done(answer) => Some(done(answer, before)),
        // Whether it still waits at a later step is a matter of speed; that it times out is not.
        Observation::Blocked(_) if has_limit => Some(Expected::TimedOut),
        Observation::Blocked(wait) => Some(blocked(wait, before)),
        Observation::Failed(failure) => failed(failure),
        Observation::Stuck => None,
    }
}

/// A failure; nothing, if it was the lab's doing.
pub(super) fn failed(failure: &Failure) -> Option<Expected> {
    match failure.kind {
        FailureKind::Deadlock => Some(Expected::Deadlock { victims: Vec::new() }),
        FailureKind::TimedOut => Some(Expected::TimedOut),
        FailureKind::Refused => Some(Expected::Refused),
        FailureKind::Conflict => Some(Expected::Conflict),
        FailureKind::Cancelled => None,
        FailureKind::Other => {
            let code = Some(failure.code.clone()).filter(|code| !code.is_empty());
            let first = failure.message.lines().next().unwrap_or_default().trim();
            let says = (code.is_none() && !first.is_empty()).then(|| first.to_owned());
            Some(Expected::Error { code, says })
        }
    }
}

/// Does the line hold as it is? One that says `blocked` does, whatever became of the wait: that is for a
/// line of its own.
fn is_as_before(
    record: &Record,
    index: usize,
    step: &StepRecord,
    before: Option<&Expectation>,
) -> bool {
    if unsaid::is_deadlock(record, index) {
        return false;
    }
    if step.difference.is_none() {
        return true;
    }
    let (Observation::Blocked(wait), Some((failure, _))) =
        (&step.seen, unsaid::failure(record, index))
    else {
        return false;
    };
    let waits = wait.blockers.iter().cloned().map(Actor::Session).collect::<Vec<_>>();
    let says_so = |expected: &Expected| matches!(expected, Expected::Blocked { by, kind: None, .. } if by.is_empty() || *by == waits);
    failure.kind != FailureKind::TimedOut
        && before.is_some_and(|before| before.either.iter().any(says_so))
}

/// Rows always; how many were changed only where the file cares.
fn done(answer: &Answer, before: Option<&Expectation>) -> Expected {
    let before =
        before.iter().flat_map(|before| &before.either).find_map(|expected| match expected {
            Expected::Done { rows, changed } => Some((rows, changed)),
            _ => None,
        });
    let any_order = before.and_then(|(rows, _)| rows.as_ref()).is_some_and(|rows| rows.any_order);
    let changed = before.and_then(|(_, changed)| *changed).map(|_| answer.changed);
    let rows = answer.rows.as_ref().map(|rows| {
        let rows: Vec<Vec<ExpectedCell>> = rows
            .iter()
            .map(|row| row.iter().map(|value| cell(value.as_deref())).collect())
            .collect();
        let any_order = any_order && !rows.is_empty();
        ExpectedRows { rows, any_order }
    });
    // A row without columns cannot be written.
    let rows = rows.filter(|rows| rows.rows.iter().all(|row| !row.is_empty()));
    Expected::Done { rows, changed }
}

fn cell(value: Option<&str>) -> ExpectedCell {
    match value {
        None => ExpectedCell::Null,
        // A line is a row, so what has several lines cannot be written.
        Some(text) if text.contains(char::is_control) => ExpectedCell::Anything,
        Some(text) => ExpectedCell::Value(text.to_owned()),
    }
}

/// By whom always; on what only where the file cares.
fn blocked(wait: &Wait, before: Option<&Expectation>) -> Expected {
    let before =
        before.iter().flat_map(|before| &before.either).find_map(|expected| match expected {
            Expected::Blocked { kind: Some(_), object, .. } => Some(object.is_some()),
            _ => None,
        });
    let thing = wait.thing.as_ref().filter(|_| before.is_some());
    let writable = |object: &&String| !object.contains(char::is_control) && !object.is_empty();
    Expected::Blocked {
        by: wait.blockers.iter().cloned().map(Actor::Session).collect(),
        kind: thing.map(|thing| thing.kind).filter(|kind| LockKind::ALL.contains(kind)),
        object: thing
            .filter(|_| before == Some(true))
            .map(|thing| &thing.object)
            .filter(writable)
            .cloned(),
    }
}
