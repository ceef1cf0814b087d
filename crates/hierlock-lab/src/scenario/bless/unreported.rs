//! Waits that ended in a failure which no line expects: a line is added, or the closing step expects `deadlock`.

use super::Revision;
use super::outcome;
use super::writing::new_lines;
use crate::group::distinct;
use crate::observation::{Failure, FailureKind, Observation, SessionName};
use crate::record::{Record, WaitEnd};
use crate::scenario::case::Case;
use crate::scenario::expectation::{Expectation, ExpectedOutcome, SessionSelector};
use crate::scenario::file::Scenario;

/// Returns the failure of a step after a wait, and the step during which it failed, if no later line looks at it.
pub(super) fn failure(record: &Record, index: usize) -> Option<(&Failure, usize)> {
    let step = record.steps.get(index)?;
    let WaitEnd { observation, during, .. } = step.ended.as_ref()?;
    let Observation::Failed(failure) = observation else { return None };
    let mut later = record.steps[index + 1..].iter().filter(|later| later.session == step.session);
    let is_looked_at = later.next().is_some_and(|later| later.text.is_empty());
    (!is_looked_at).then_some((failure, *during))
}

/// Returns whether this step closes a cycle whose victim is another session, and no line expects that end.
pub(super) fn is_deadlock(record: &Record, index: usize) -> bool {
    let mut failures = (0..record.steps.len()).filter_map(|waiter| failure(record, waiter));
    failures.any(|(failure, during)| failure.kind == FailureKind::Deadlock && during == index)
}

/// Returns the missing looks, each with the line after which it belongs.
pub(super) fn looks(
    scenario: &Scenario,
    cases: &[Case],
    records: &[&Record],
) -> Vec<(usize, Vec<String>)> {
    let missing = records.iter().flat_map(|record| {
        record.steps.iter().enumerate().filter_map(|(index, step)| {
            let (failure, during) = failure(record, index)?;
            // Deadlocks and timeouts are expected by existing steps.
            let is_other = !matches!(failure.kind, FailureKind::Deadlock | FailureKind::TimedOut);
            let after = record.steps.get(during).filter(|_| is_other)?;
            Some((after.line, &step.session, step.line))
        })
    });
    let look = |(after, session, line): (usize, &SessionName, usize)| {
        let before = scenario.steps.iter().find(|step| step.line == after)?;
        let step = scenario.steps.iter().find(|step| step.line == line)?;
        if step.session != SessionSelector::Session(session.clone()) || step.is_look() {
            return None;
        }
        let cases = cases.iter().filter(|case| step.guard.fits(case));
        let revision = |case| {
            let now = state(case, records, session, after).unwrap_or_default();
            Revision { case, before: Expectation::default(), now }
        };
        let revisions: Vec<Revision<'_>> = cases.map(revision).collect();
        let mut lines = new_lines(&revisions, true);
        let guard = step.guard.to_string();
        let head = format!("{session}<{}{guard}", if guard.is_empty() { "" } else { " " });
        match lines.as_mut_slice() {
            [line] => line.insert_str(0, &head),
            _ => lines.insert(0, head),
        }
        Some((before.expects_end.max(before.end), lines))
    };
    distinct(missing).into_iter().filter_map(look).collect()
}

/// Returns the state of a session's last step after a line, as an expectation.
fn state(case: &Case, records: &[&Record], name: &SessionName, line: usize) -> Option<Expectation> {
    let record = records.iter().find(|record| record.belongs_to(case))?;
    let position = record.steps.iter().rposition(|step| step.line <= line)?;
    let mut steps = record.steps[..=position].iter().rev();
    let step = steps.find(|step| step.session == *name && !step.text.is_empty())?;
    let ended = step.ended.as_ref().filter(|ended| ended.during <= position);
    let observation = ended.map_or(&step.seen, |ended| &ended.observation);
    let expected = match observation {
        Observation::Done(_) => ExpectedOutcome::DONE,
        // The blockers may have changed since the first observation.
        Observation::Blocked(_) => {
            ExpectedOutcome::Blocked { by: Vec::new(), kind: None, object: None }
        }
        Observation::Failed(failure) => outcome::failed(failure)?,
        Observation::Stuck => return None,
    };
    Some(Expectation { alternatives: vec![expected] })
}
