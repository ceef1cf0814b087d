//! The transcript of a run: each step, its observation, and the waits that ended during it.

use super::display::{duration, engine_message, observation, row};
use crate::observation::Observation;
use crate::record::{Record, StepRecord, WaitEnd};
use std::time::Duration;

/// Further rows are only counted.
const MAX_ROWS: usize = 20;

pub(crate) struct WakeUp<'a> {
    /// The step that had waited, and its index.
    pub(crate) step: &'a StepRecord,
    pub(crate) index: usize,
    pub(crate) ended: &'a WaitEnd,
    pub(crate) waited: Duration,
}

/// Returns the waits that ended during a step, in the order of their ends.
pub(crate) fn wake_ups(record: &Record, during: usize) -> Vec<WakeUp<'_>> {
    let mut wake_ups = Vec::new();
    for (index, step) in record.steps.iter().enumerate() {
        if let Some(ended) = step.ended.as_ref().filter(|ended| ended.during == during) {
            let waited = ended.at.saturating_sub(step.began);
            wake_ups.push(WakeUp { step, index, ended, waited });
        }
    }
    wake_ups.sort_by_key(|wake_up| wake_up.ended.at);
    wake_ups
}

/// Returns whether the step only observes its session again (`A<`).
pub(crate) fn is_look(step: &StepRecord) -> bool {
    step.text.is_empty()
}

/// Returns `A>`, or `A<` for a look.
pub(crate) fn prompt(step: &StepRecord) -> String {
    format!("{}{}", step.session, if is_look(step) { '<' } else { '>' })
}

#[derive(Debug)]
pub(crate) struct Outcome {
    /// Such as `blocked by A on row 1 of numbers (PRIMARY), X`; empty if there are rows.
    pub(crate) headline: String,
    /// The rows, each as `| 1 | 30`.
    pub(crate) rows: Vec<String>,
    /// The engine's message, or an empty text.
    pub(crate) message: String,
}

impl Outcome {
    pub(crate) fn new(seen: &Observation) -> Self {
        let mut rows = Vec::new();
        if let Observation::Done(answer) = seen {
            let all = answer.rows.as_deref().unwrap_or_default();
            rows.extend(all.iter().take(MAX_ROWS).map(|cells| row(cells)));
            if all.len() > MAX_ROWS {
                rows.push(format!("… and {} more", all.len() - MAX_ROWS));
            }
        }
        let headline = if rows.is_empty() { observation(seen) } else { String::new() };
        let message = match seen {
            Observation::Failed(failure) => engine_message(failure),
            _ => String::new(),
        };
        Outcome { headline, rows, message }
    }
}

/// Returns the lines below a step: its observation (`= done`), and the waits that ended (`↳ B continues after …`).
pub(crate) fn outcomes(record: &Record, index: usize) -> Vec<(&Observation, Outcome)> {
    let seen = &record.steps[index].seen;
    let mut own = Outcome::new(seen);
    if !own.headline.is_empty() {
        own.headline.insert_str(0, "= ");
    }
    let mut outcomes = vec![(seen, own)];
    for WakeUp { step, ended, waited, .. } in wake_ups(record, index) {
        let seen = &ended.observation;
        let mut outcome = Outcome::new(seen);
        let verb = if matches!(seen, Observation::Done(_)) { "continues" } else { "is ended" };
        let headline =
            format!("↳ {} {verb} after {}: {}", step.session, duration(waited), outcome.headline);
        outcome.headline = headline.trim_end().to_owned();
        outcomes.push((seen, outcome));
    }
    outcomes
}
