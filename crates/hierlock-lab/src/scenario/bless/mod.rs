//! `--bless`: writes the observations into the file. Only expectations of steps that disagree are changed; comments,
//! layout and expectations of cases that were not run stay as they are. Pure.
//!
//! ```text
//!   records ──outcome──► per case: the new expectation ──writing──► lines or a table ──edit──► text
//! ```

mod edit;
mod outcome;
mod unreported;
mod writing;

use super::case::Case;
use super::expectation::Expectation;
use super::file::{Scenario, StepTemplate};
use crate::record::Record;
use edit::Edits;
use std::sync::Arc;

/// The expectation of a step in one case, before and after blessing; `done` where the file has none.
struct Revision<'c> {
    case: &'c Case,
    before: Expectation,
    now: Expectation,
}

impl Revision<'_> {
    fn is_new(&self) -> bool {
        self.now != self.before
    }
}

impl Scenario {
    /// Returns the text of the scenario, with the observations of the records wherever they disagree with it.
    ///
    /// Records of other scenarios are ignored. The file stays as it is for steps that were stuck or cancelled, and for
    /// cases that were not run. A wait that ended in a failure which no line expects gets a line. If later steps depend
    /// on changed ones, the scenario may have to be run and blessed again.
    pub fn bless(self: &Arc<Self>, records: &[Record]) -> String {
        let short = write_observations(self, records, true);
        // If an axis is named only in guards, and those are left out, the axis is unused, which is an error.
        match Scenario::parse(&self.name, &self.file, &short) {
            Ok(_) => short,
            Err(_) => write_observations(self, records, false),
        }
    }
}

/// Writes the observations. With `is_joined`, equal lines of a step become one.
fn write_observations(scenario: &Arc<Scenario>, records: &[Record], is_joined: bool) -> String {
    let own: Vec<&Record> =
        records.iter().filter(|record| record.scenario == scenario.name).collect();
    let cases = scenario.cases();
    let mut edits = Edits::new(&scenario.text);
    for step in &scenario.steps {
        let disagrees = |record: &&Record| {
            record.steps.iter().enumerate().any(|(index, ran)| {
                ran.line == step.line
                    && (ran.difference.is_some() || unreported::is_deadlock(record, index))
            })
        };
        if !own.iter().any(disagrees) {
            continue;
        }
        let revisions = revisions(step, &cases, &own);
        if revisions.iter().any(Revision::is_new) {
            writing::write(step, &revisions, is_joined, &mut edits);
        }
    }
    for (line, look) in unreported::looks(scenario, &cases, &own) {
        edits.add_after(line, look);
    }
    edits.apply()
}

fn revisions<'c>(step: &StepTemplate, cases: &'c [Case], records: &[&Record]) -> Vec<Revision<'c>> {
    let cases = cases.iter().filter(|case| step.guard.fits(case));
    let revision = |case: &'c Case| {
        let runs: Vec<&Record> =
            records.iter().copied().filter(|record| record.belongs_to(case)).collect();
        let own = case.steps.iter().find(|own| own.line == step.line)?;
        let before = own.expected.clone().unwrap_or_default();
        Some(Revision { case, now: outcome::expectation(case, own, &before, &runs), before })
    };
    cases.filter_map(revision).collect()
}
