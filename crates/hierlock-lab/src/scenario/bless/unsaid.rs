//! Waits that ended in a failure of which no line of the file speaks. A line for it is added where the wait
//! ended, or the step that closed the circle says that there is a deadlock.

use super::Wish;
use super::form::{self, Form};
use super::seen;
use crate::observation::{Failure, FailureKind, Name, Observation};
use crate::record::{Ended, Record};
use crate::scenario::case::Case;
use crate::scenario::file::{Actor, Deed, Expectation, Expected, Scenario};

/// A line to be added: a look at a session.
pub(super) struct Look {
    /// Behind the expectations of which step, by its line.
    pub(super) after: usize,
    /// At whom, with the brackets of the step that waited.
    pub(super) head: String,
    /// What must be seen.
    pub(super) form: Form,
}

/// How a step failed after it had waited, if no later line looks at it.
pub(super) fn failure(record: &Record, index: usize) -> Option<(&Failure, usize)> {
    let step = record.steps.get(index)?;
    let Some(Ended { observation: Observation::Failed(failure), during, .. }) = &step.ended else {
        return None;
    };
    let later = record.steps[index + 1..].iter().filter(|later| later.session == step.session);
    let is_looked_at = later.map(|later| later.text.is_empty()).next() == Some(true);
    (!is_looked_at).then_some((failure, *during))
}

/// Does this step close a circle whose victim is another session, and no line says what becomes of it?
pub(super) fn is_deadlock(record: &Record, index: usize) -> bool {
    let steps = record.steps.iter().enumerate();
    let mut failures = steps.filter_map(|(waiter, _)| failure(record, waiter));
    failures.any(|(failure, during)| failure.kind == FailureKind::Deadlock && during == index)
}

/// The looks that are missing.
pub(super) fn looks(scenario: &Scenario, cases: &[Case], records: &[&Record]) -> Vec<Look> {
    let mut wanted: Vec<(usize, Name, usize)> = Vec::new();
    for record in records {
        for (index, step) in record.steps.iter().enumerate() {
            let Some((failure, during)) = failure(record, index) else { continue };
            // These are said by steps that are there.
            if matches!(failure.kind, FailureKind::Deadlock | FailureKind::TimedOut) {
                continue;
            }
            let Some(after) = record.steps.get(during) else { continue };
            let look = (after.line, step.session.clone(), step.line);
            if !wanted.contains(&look) {
                wanted.push(look);
            }
        }
    }
    wanted
        .into_iter()
        .filter_map(|(after, session, line)| {
            let line = scenario.lines.iter().find(|known| known.line == line)?;
            if line.who != Actor::Session(session.clone()) || line.deed == Deed::Look {
                return None;
            }
            let wishes: Vec<Wish<'_>> = cases
                .iter()
                .filter(|case| line.only.fits(&case.place, &case.variant))
                .map(|case| Wish { case, before: None, now: state(case, records, &session, after) })
                .collect();
            let guard =
                if line.only.is_always() { String::new() } else { format!(" {}", line.only) };
            let form = form::anew(&wishes);
            Some(Look { after, head: format!("{session}<{guard}"), form })
        })
        .collect()
}

/// How the last step of a session stands behind a line, in the words of a file.
fn state(case: &Case, records: &[&Record], session: &Name, line: usize) -> Option<Expectation> {
    let record = records
        .iter()
        .find(|record| record.place == case.place && record.variant == case.variant)?;
    let position = record.steps.iter().rposition(|step| step.line <= line)?;
    let mut steps = record.steps[..=position].iter().rev();
    let step = steps.find(|step| step.session == *session && !step.text.is_empty())?;
    let ended = step.ended.as_ref().filter(|ended| ended.during <= position);
    let observation = ended.map_or(&step.seen, |ended| &ended.observation);
    let expected = match observation {
        Observation::Done(_) => Expected::Done { rows: None, changed: None },
        // Behind whom it waits by then may be another than at first.
        Observation::Blocked(_) => Expected::Blocked { by: Vec::new(), kind: None, object: None },
        Observation::Failed(failure) => seen::failed(failure)?,
        _ => return None,
    };
    Some(Expectation { either: vec![expected] })
}
