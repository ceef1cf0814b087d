//! Turns observations of a step into expectations.

use super::unreported;
use crate::group::distinct;
use crate::observation::{
    Answer, Failure, FailureKind, LockKind, Observation, SessionName, SessionWait,
};
use crate::record::{Record, StepRecord};
use crate::scenario::case::{Action, Case, ScenarioStep};
use crate::scenario::expectation::{
    Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionSelector,
};

/// Returns the new expectation of a step: that of the file, the observations if all runs disagree, or both.
pub(super) fn expectation(
    case: &Case,
    step: &ScenarioStep,
    before: &Expectation,
    runs: &[&Record],
) -> Expectation {
    let alternatives = &before.alternatives;
    let (mut seen, mut agreed) = (Vec::new(), false);
    for record in runs {
        for (index, ran) in record.steps.iter().enumerate().filter(|(_, ran)| ran.line == step.line)
        {
            if holds(record, index, ran, alternatives) {
                agreed = true;
            } else {
                seen.extend(outcome(record, index, ran, alternatives, has_limit(case, step)));
            }
        }
    }
    if seen.is_empty() {
        return before.clone();
    }
    let still_valid = alternatives.iter().filter(|_| agreed).cloned();
    Expectation { alternatives: distinct(still_valid.chain(seen)) }
}

/// Returns whether the wait of a step has a limit that is shorter than the limit of the case.
fn has_limit(case: &Case, step: &ScenarioStep) -> bool {
    let Action::Lock(action, _) = &step.action else { return false };
    let within = action.request().and_then(|request| request.within);
    within.is_some_and(|within| within < case.limit)
}

/// Returns the observation as an expectation; `None` if there is none to write.
fn outcome(
    record: &Record,
    index: usize,
    ran: &StepRecord,
    before: &[ExpectedOutcome],
    has_limit: bool,
) -> Option<ExpectedOutcome> {
    // A cycle is closed by one step, and the victim may be another session.
    if let Some(deadlock) = record.deadlocks.iter().find(|deadlock| deadlock.step == index) {
        let mut victims: Vec<SessionName> =
            deadlock.cycle.iter().map(|link| link.waiter.clone()).collect();
        victims.extend([deadlock.victim.clone(), ran.session.clone()]);
        victims.sort();
        victims.dedup();
        return Some(ExpectedOutcome::Deadlock { victims });
    }
    // A wait with a timeout ends by itself, so the file expects that end.
    if let Some((failure, _)) = unreported::failure(record, index)
        && failure.kind == FailureKind::TimedOut
    {
        return Some(ExpectedOutcome::TimedOut);
    }
    match &ran.seen {
        Observation::Done(answer) => Some(done(answer, before)),
        // Whether the step still waits at a later step depends on timing; that it times out does not.
        Observation::Blocked(_) if has_limit => Some(ExpectedOutcome::TimedOut),
        Observation::Blocked(wait) => Some(blocked(wait, before)),
        Observation::Failed(failure) => failed(failure),
        Observation::Stuck => None,
    }
}

/// Returns the expectation of a failure; `None` if the lab has cancelled the statement.
pub(super) fn failed(failure: &Failure) -> Option<ExpectedOutcome> {
    match failure.kind {
        FailureKind::Deadlock => Some(ExpectedOutcome::Deadlock { victims: Vec::new() }),
        FailureKind::TimedOut => Some(ExpectedOutcome::TimedOut),
        FailureKind::Refused => Some(ExpectedOutcome::Refused),
        FailureKind::Conflict => Some(ExpectedOutcome::Conflict),
        FailureKind::Cancelled => None,
        FailureKind::Other => {
            let code = Some(failure.code.clone()).filter(|code| !code.is_empty());
            let first = failure.message.lines().next().unwrap_or_default().trim();
            let message = (code.is_none() && !first.is_empty()).then(|| first.to_owned());
            Some(ExpectedOutcome::Error { code, message })
        }
    }
}

/// Returns whether the line can stay. `blocked` can, whatever the end of the wait: that belongs on another line.
fn holds(record: &Record, index: usize, ran: &StepRecord, before: &[ExpectedOutcome]) -> bool {
    if unreported::is_deadlock(record, index) {
        return false;
    }
    if ran.difference.is_none() {
        return true;
    }
    let Observation::Blocked(wait) = &ran.seen else { return false };
    let Some((failure, _)) = unreported::failure(record, index) else { return false };
    let blockers: Vec<_> = wait.blockers.iter().cloned().map(SessionSelector::Session).collect();
    let expects_wait = |expected: &ExpectedOutcome| {
        matches!(expected, ExpectedOutcome::Blocked { by, kind: None, .. }
            if by.is_empty() || *by == blockers)
    };
    failure.kind != FailureKind::TimedOut && before.iter().any(expects_wait)
}

/// Returns the expectation of a result: rows always; the number of changed rows only if the file contains one.
fn done(answer: &Answer, before: &[ExpectedOutcome]) -> ExpectedOutcome {
    let (before_rows, before_changed) = before
        .iter()
        .find_map(|expected| match expected {
            ExpectedOutcome::Done { rows, changed } => Some((rows.as_ref(), *changed)),
            _ => None,
        })
        .unwrap_or_default();
    let rows = answer.rows.as_ref().map(|rows| {
        let row =
            |row: &Vec<Option<String>>| row.iter().map(|value| cell(value.as_deref())).collect();
        let rows: Vec<Vec<ExpectedCell>> = rows.iter().map(row).collect();
        let any_order = before_rows.is_some_and(|rows| rows.any_order) && !rows.is_empty();
        ExpectedRows { rows, any_order }
    });
    // A row without columns cannot be written.
    let rows = rows.filter(|rows| rows.rows.iter().all(|row| !row.is_empty()));
    ExpectedOutcome::Done { rows, changed: before_changed.map(|_| answer.changed) }
}

fn cell(value: Option<&str>) -> ExpectedCell {
    match value {
        None => ExpectedCell::Null,
        // A line is a row, so a value of several lines cannot be written.
        Some(text) if text.contains(char::is_control) => ExpectedCell::Anything,
        Some(text) => ExpectedCell::Value(text.to_owned()),
    }
}

/// Returns the expectation of a wait: the blockers always; the object only if the file contains one.
fn blocked(wait: &SessionWait, before: &[ExpectedOutcome]) -> ExpectedOutcome {
    let names_object = before.iter().find_map(|expected| match expected {
        ExpectedOutcome::Blocked { kind: Some(_), object, .. } => Some(object.is_some()),
        _ => None,
    });
    let target = wait.target.as_ref().filter(|_| names_object.is_some());
    let object = target.filter(|_| names_object == Some(true)).map(|target| &target.object);
    let is_writable = |object: &&String| !object.contains(char::is_control) && !object.is_empty();
    ExpectedOutcome::Blocked {
        by: wait.blockers.iter().cloned().map(SessionSelector::Session).collect(),
        kind: target.map(|target| target.kind).filter(|kind| LockKind::ALL.contains(kind)),
        object: object.filter(is_writable).cloned(),
    }
}
