//! `--bless`: what was observed, written into the file. Only steps that disagree are touched, and of
//! those only what must be seen; comments, layout and what was not run stay as they are. Pure.
//!
//! ```text
//!   records ──seen──► per case: what must be seen now ──form──► lines or a table ──edit──► text
//! ```

mod edit;
mod form;
mod seen;
mod unsaid;

use super::case::{Case, CaseDeed};
use super::file::{Expectation, Line, LockDeed, Scenario};
use super::outline::outline;
use crate::record::{Record, StepRecord};
use form::Form;
use std::sync::Arc;

/// What must be seen of a step in one case, after blessing.
pub(super) struct Wish<'c> {
    case: &'c Case,
    /// `None` where the file says nothing.
    before: Option<Expectation>,
    /// `None` where it still need not.
    now: Option<Expectation>,
}

impl Wish<'_> {
    fn is_new(&self) -> bool {
        self.now != self.before
    }
}

/// See [`Scenario::bless`].
pub(super) fn bless(scenario: &Scenario, records: &[Record]) -> String {
    let short = blessed(scenario, records, Lines::Joined);
    // An axis that is named only in brackets would not be used any more, if they were left out.
    match Scenario::parse(&scenario.name, &scenario.file, &short) {
        Ok(_) => short,
        Err(_) => blessed(scenario, records, Lines::Kept),
    }
}

/// What becomes of several lines that say the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    Joined,
    Kept,
}

fn blessed(scenario: &Scenario, records: &[Record], several: Lines) -> String {
    let own: Vec<&Record> =
        records.iter().filter(|record| record.scenario == scenario.name).collect();
    // A scenario that was read has cases; if it has none, there is nothing to write.
    let cases = Arc::new(scenario.clone()).cases().unwrap_or_default();
    let lines = outline(&scenario.text);
    let mut edits = edit::Edits::new(&scenario.text);
    for line in &scenario.lines {
        let disagrees = |record: &Record, index: usize, step: &StepRecord| {
            step.line == line.line
                && (step.difference.is_some() || unsaid::is_deadlock(record, index))
        };
        if !own.iter().any(|record| {
            record.steps.iter().enumerate().any(|(index, step)| disagrees(record, index, step))
        }) {
            continue;
        }
        let wishes = wishes(line, &cases, &own);
        if wishes.iter().any(Wish::is_new) {
            edits.step(line, &lines, Form::of(line, &wishes, several));
        }
    }
    for look in unsaid::looks(scenario, &cases, &own) {
        if let Some(line) = scenario.lines.iter().find(|line| line.line == look.after) {
            edits.look(line, &lines, &look.head, look.form);
        }
    }
    edits.apply()
}

/// Does a step wait only for so long, and less than the case waits for it?
fn has_limit(case: &Case, line: &Line) -> bool {
    let step = case.steps.iter().find(|step| step.line == line.line);
    match step.map(|step| &step.deed) {
        Some(CaseDeed::Lock(
            LockDeed::Lock { within, .. } | LockDeed::Extend { within, .. },
            _,
        )) => within.is_some_and(|within| within < case.limit),
        _ => false,
    }
}

/// What the file says of a step in a case.
fn before(case: &Case, line: &Line) -> Option<Expectation> {
    case.steps.iter().find(|step| step.line == line.line).and_then(|step| step.expected.clone())
}

fn wishes<'c>(line: &Line, cases: &'c [Case], records: &[&Record]) -> Vec<Wish<'c>> {
    cases
        .iter()
        .filter(|case| line.only.fits(&case.place, &case.variant))
        .map(|case| {
            let runs = records
                .iter()
                .filter(|record| record.place == case.place && record.variant == case.variant);
            let before = before(case, line);
            let now = seen::wish(line, before.clone(), has_limit(case, line), runs.copied());
            Wish { case, before, now }
        })
        .collect()
}
