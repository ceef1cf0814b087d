//! A scenario file as it is written: every part with its position, for messages.

use super::case::{Action, Case};
use super::diagnostic::Position;
use super::expectation::{Expectation, SessionSelector};
use super::guard::{CaseGuard, Dimension};
use super::settings::SettingValue;
use super::template::{Template, TemplateValue};
use crate::engine::Engine;
use crate::observation::SessionName;
use hierlock::sql::Strategy;
use std::time::Duration;

/// A scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// The path below `scenarios/`, without the extension; the first part is the topic.
    pub name: String,
    /// The path of the file, for messages.
    pub file: String,
    /// The whole text; line numbers refer to it.
    pub text: String,
    /// The first line of the opening comment.
    pub title: String,
    /// The rest of the opening comment: the reason for the scenario.
    pub why: String,
    /// The parts of the seed documents that the scenario proves, such as `004 課題1`.
    pub seeds: Vec<String>,
    /// The anomaly that it looks for, such as `G1a dirty read`; outcomes that show it are marked with `!`.
    pub anomaly: Option<String>,
    /// Advice to the reader.
    pub advice: String,
    /// The engines on which it runs; all, if `None`.
    pub(crate) engines: Option<Vec<Engine>>,
    /// The strategies with which nodes are locked; all, if `None`.
    pub(crate) strategies: Option<Vec<Strategy>>,
    pub(crate) buckets: Option<u32>,
    pub(crate) limit: Option<Duration>,
    /// The positions of the headers that may occur only once.
    pub(crate) headers: Vec<(&'static str, Position)>,
    pub(crate) axes: Vec<Axis>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) setup: Vec<GuardedValue<String>>,
    pub(crate) teardown: Vec<GuardedValue<String>>,
    pub(crate) steps: Vec<StepTemplate>,
}

impl Scenario {
    /// Returns the first part of the name.
    pub fn topic(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(topic, _)| topic)
    }

    /// Returns every text in which `{name}`s are replaced, with its guard.
    pub(crate) fn templates(&self) -> Vec<(&Template, &CaseGuard)> {
        let blocks = self.setup.iter().chain(&self.teardown);
        let mut all: Vec<_> = blocks.map(|sql| (&sql.value.template, &sql.guard)).collect();
        all.extend(self.settings.iter().map(|setting| (&setting.values.template, &setting.guard)));
        for step in &self.steps {
            all.push((&step.action.template, &step.guard));
            let expectations = step.expectations.iter().chain(&step.anomaly_outcomes);
            all.extend(expectations.map(|expect| (&expect.value.template, &expect.guard)));
        }
        all
    }
}

/// `for each held, wanted: u1, u1/a1 | u1/a1, u1`: names, and sets with a value for each name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// `isolation` sets the level of all sessions; other names replace `{name}` in the text.
    pub(crate) names: Vec<String>,
    pub(crate) positions: Vec<Position>,
    pub(crate) value_sets: Vec<Vec<String>>,
}

impl Axis {
    /// Returns the position of the name `isolation`, if the axis has it.
    pub(crate) fn isolation(&self) -> Option<Position> {
        let mut names = self.names.iter().zip(&self.positions);
        names.find(|(name, _)| *name == "isolation").map(|(_, position)| *position)
    }
}

/// A value that belongs only to some cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardedValue<T> {
    pub(crate) position: Position,
    pub(crate) guard: CaseGuard,
    pub(crate) value: TemplateValue<T>,
}

impl<T> GuardedValue<T> {
    pub(crate) fn for_case(&self, case: &Case, variant: usize) -> Option<&T> {
        self.value.for_variant(variant).filter(|_| self.guard.fits(case))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The session and the position of its name; all sessions, if `None`.
    pub(crate) session: Option<(SessionName, Position)>,
    pub(crate) guard: CaseGuard,
    pub(crate) values: TemplateValue<Vec<SettingValue>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepTemplate {
    pub(crate) line: usize,
    /// The last line of its statement; expectations follow.
    pub(crate) end: usize,
    /// The last line of its expectations; the same as `end` if there are none.
    pub(crate) expects_end: usize,
    pub(crate) guard: CaseGuard,
    pub(crate) session: SessionSelector,
    pub(crate) action: TemplateValue<Action>,
    /// The expectations, of which the first that fits the case counts; or the cells of the table, row by row.
    pub(crate) expectations: Vec<GuardedValue<Expectation>>,
    pub(crate) table: Option<ExpectationTable>,
    /// Outcomes that show the anomaly, such as `! rows 2`.
    pub(crate) anomaly_outcomes: Vec<GuardedValue<Expectation>>,
}

impl StepTemplate {
    /// Returns the index of the expectation that counts in a case.
    pub(crate) fn expectation(&self, case: &Case) -> Option<usize> {
        let Some(table) = &self.table else {
            return self.expectations.iter().position(|expect| expect.guard.fits(case));
        };
        let row = CaseGuard::find(&table.rows, case)?;
        Some(row * table.columns.len() + CaseGuard::find(&table.columns, case)?)
    }
}

/// ```text
///  = by isolation     | mysql  | postgres
///  : read uncommitted | rows 2 | rows 1
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectationTable {
    /// The line numbers of the head and of the rows.
    pub(crate) lines: Vec<usize>,
    /// The position of `by`.
    pub(crate) position: Position,
    pub(crate) by: Dimension,
    /// The dimension of the columns, if there is more than one.
    pub(crate) across: Option<Dimension>,
    /// The heads of the columns; a single one for all cases without a dimension.
    pub(crate) columns: Vec<CaseGuard>,
    pub(crate) rows: Vec<CaseGuard>,
}
