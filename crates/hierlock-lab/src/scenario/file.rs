//! A scenario file, as it was written: every part with its position, so that messages can point at it.

use super::case::{Action, Case};
use super::diagnostic::Position;
use super::expectation::{Expectation, SessionSelector};
use super::guard::{CaseGuard, Dimension};
use super::settings::SettingValue;
use super::template::{Template, TemplateValue};
use crate::observation::SessionName;
use crate::place::Engine;
use hierlock::sql::Strategy;
use std::time::Duration;

/// A scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// Its path below `scenarios/`, without the extension; the first part is its topic.
    pub name: String,
    /// Its path, for messages.
    pub file: String,
    /// The whole text; lines are counted in it.
    pub text: String,
    /// The first line of the opening comment.
    pub title: String,
    /// The rest of the opening comment: why this is worth knowing.
    pub why: String,
    /// Which parts of the seed documents it proves, such as `004 課題1`.
    pub seeds: Vec<String>,
    /// The anomaly it looks for, such as `G1a dirty read`; what would show it is marked with `!`.
    pub anomaly: Option<String>,
    /// What to do about it.
    pub advice: String,
    /// Where it runs, if it is not everywhere.
    pub(crate) engines: Option<Vec<Engine>>,
    /// With which strategies nodes are locked, if it is not with all.
    pub(crate) strategies: Option<Vec<Strategy>>,
    pub(crate) buckets: Option<u32>,
    pub(crate) limit: Option<Duration>,
    /// Where those headers stand that may be there only once.
    pub(crate) headers: Vec<(&'static str, Position)>,
    pub(crate) axes: Vec<Axis>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) setup: Vec<GuardedValue<String>>,
    pub(crate) teardown: Vec<GuardedValue<String>>,
    pub(crate) steps: Vec<StepTemplate>,
}

impl Scenario {
    /// The first part of its name.
    pub fn topic(&self) -> &str {
        self.name.split_once('/').map_or(&self.name, |(topic, _)| topic)
    }

    /// Every text in which a `{name}` is replaced, with its brackets.
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

/// `for each held, wanted: u1, u1/a1 | u1/a1, u1`: names, and as many values in each turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) line: usize,
    /// What is set: `isolation` sets that of all sessions, others replace `{name}` in the text.
    pub(crate) names: Vec<String>,
    pub(crate) positions: Vec<Position>,
    pub(crate) turns: Vec<Vec<String>>,
}

impl Axis {
    pub(crate) fn sets_isolation(&self) -> bool {
        self.names.iter().any(|name| name == "isolation")
    }
}

/// Something that is there only in some cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardedValue<T> {
    pub(crate) position: Position,
    pub(crate) guard: CaseGuard,
    pub(crate) value: TemplateValue<T>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Whose, and where that is said; of all, if nobody is named.
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
    /// What must be seen: the first that fits the case; or the cells of the table, row by row.
    pub(crate) expectations: Vec<GuardedValue<Expectation>>,
    pub(crate) table: Option<ExpectationTable>,
    /// `! rows 2`: what would show the anomaly.
    pub(crate) anomaly_outcomes: Vec<GuardedValue<Expectation>>,
}

impl StepTemplate {
    /// The index of the expectation that counts in a case.
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
    /// Of its head, and of its rows.
    pub(crate) lines: Vec<usize>,
    /// Where `by` stands.
    pub(crate) position: Position,
    pub(crate) by: Dimension,
    /// What the columns go by, if there is more than one.
    pub(crate) across: Option<Dimension>,
    /// The heads of the columns; one for all, if they go by nothing.
    pub(crate) columns: Vec<CaseGuard>,
    pub(crate) rows: Vec<CaseGuard>,
}
