//! Checks of a whole file, such as guards that never fit and axes without an effect. Pure.

use super::case::{Action, Case, ScenarioStep};
use super::diagnostic::{Diagnostics, ParseError, Position, nearest};
use super::expectation::{ExpectedOutcome, SessionSelector};
use super::file::{Axis, ExpectationTable, Scenario, StepTemplate};
use super::guard::{CaseGuard, Dimension};
use super::template::Template;
use crate::group::distinct;
use crate::text::{find_word, listed};

pub(super) fn check(scenario: &Scenario, cases: &[Case], diagnostics: &mut Diagnostics<'_>) {
    let mut checker = Checker { scenario, diagnostics };
    for case in cases {
        checker.check_server(case);
        checker.check_order(case);
        checker.check_sessions(case);
    }
    checker.check_axes();
    checker.check_headers();
    checker.check_isolation();
    if cases.is_empty() {
        return;
    }
    let cases: Vec<&Case> = cases.iter().collect();
    checker.check_blocks(&cases);
    for step in &scenario.steps {
        checker.check_step(step, &cases);
    }
}

struct Checker<'c, 't> {
    scenario: &'c Scenario,
    diagnostics: &'c mut Diagnostics<'t>,
}

impl<'c> Checker<'c, '_> {
    /// `memory:` and `file:` have locks, but no SQL and no settings.
    fn check_server(&mut self, case: &Case) {
        let engine = case.backend.engine;
        if engine.server().is_some() {
            return;
        }
        let scenario = self.scenario;
        let hint = "take it out of `engines:`, or guard this with the engines that have";
        let mut report = |feature: &str, position: Position| {
            self.diagnostics.report_first(position, format!("{engine} has no {feature}; {hint}"));
        };
        for step in scenario.steps.iter().filter(|step| step.is_sql() && step.guard.fits(case)) {
            report("SQL", step.action.template.begin());
        }
        let blocks = scenario.setup.iter().chain(&scenario.teardown);
        for statement in blocks.filter(|statement| statement.guard.fits(case)) {
            report("SQL", statement.position);
        }
        // Without any SQL, `check_isolation` reports the axis.
        let axes = scenario.axes.iter().filter(|_| scenario.has_sql());
        axes.filter_map(Axis::isolation).for_each(|position| report("isolation level", position));
        for setting in scenario.settings.iter().filter(|setting| setting.guard.fits(case)) {
            report("settings", setting.values.template.begin());
        }
    }

    /// A look needs an earlier step of its session, and `victim` needs a deadlock.
    fn check_order(&mut self, case: &Case) {
        let (mut acted, mut candidates) = (Vec::new(), 0);
        let backend_text = self.backend_text(case);
        for step in &case.steps {
            let message = match &step.session {
                SessionSelector::Session(name) => {
                    let is_first = !acted.contains(&name);
                    acted.push(name);
                    let before = format!("{name} has done nothing before this{backend_text}");
                    (step.action == Action::Look && is_first)
                        .then(|| format!("{before}, so there is nothing to look at"))
                }
                SessionSelector::Victim if candidates > 0 => None,
                SessionSelector::Survivor if candidates == 2 => None,
                session => Some(format!(
                    "there is no deadlock before this{backend_text} of which `{session}` could be one; it is \
                     expected with ` = deadlock, A or B`"
                )),
            };
            if let Some(message) = message {
                self.diagnostics.report_first(Position { line: step.line, column: 1 }, message);
            }
            for expected in step.expected_outcomes() {
                if let ExpectedOutcome::Deadlock { victims } = expected
                    && !victims.is_empty()
                {
                    candidates = victims.len();
                }
            }
        }
    }

    /// Returns the backend in parentheses, if the file differs between backends.
    fn backend_text(&self, case: &Case) -> String {
        let differs = self.scenario.steps.iter().any(|step| {
            let is_guarded = step.expectations.iter().any(|expect| !expect.guard.is_always());
            is_guarded || step.table.is_some() || !step.guard.is_always()
        });
        if differs { format!(" ({})", case.backend) } else { String::new() }
    }

    /// A session in an expectation must have steps, and must not wait for itself.
    fn check_sessions(&mut self, case: &Case) {
        let steps = self.scenario.steps.iter().filter(|step| step.guard.fits(case));
        for (template, step) in steps.zip(&case.steps) {
            let expectation = template.expectation(case).map(|which| &template.expectations[which]);
            let anomalies = template.anomaly_outcomes.iter().filter(|one| one.guard.fits(case));
            let values = step.expected.iter().chain(&step.anomaly_outcomes);
            for (written, value) in expectation.into_iter().chain(anomalies).zip(values) {
                for expected in &value.alternatives {
                    self.check_names(&written.value.template, expected, step, case);
                }
            }
        }
    }

    fn check_names(
        &mut self,
        template: &Template,
        expected: &ExpectedOutcome,
        step: &ScenarioStep,
        case: &Case,
    ) {
        let (names, is_wait): (Vec<SessionSelector>, bool) = match expected {
            ExpectedOutcome::Blocked { by, .. } => (by.clone(), true),
            ExpectedOutcome::Deadlock { victims } => {
                (victims.iter().cloned().map(SessionSelector::Session).collect(), false)
            }
            _ => return,
        };
        for name in names {
            let message = match &name {
                SessionSelector::Session(known) if !case.sessions.contains_key(known) => {
                    let known = listed(case.sessions.keys(), "and");
                    format!("{name} does nothing in this scenario; its sessions are {known}")
                }
                _ if is_wait && name == step.session => {
                    format!("this is a step of {name}, and a session cannot wait for itself")
                }
                _ => continue,
            };
            let at = find_word(&template.fill(&case.variant), &name.to_string()).unwrap_or(0);
            template.report(&case.variant, ParseError::new(at, message), self.diagnostics);
        }
    }

    /// An axis without an effect only makes the run longer.
    fn check_axes(&mut self) {
        let scenario = self.scenario;
        let templates = scenario.templates();
        let tables: Vec<_> = scenario.steps.iter().filter_map(|step| step.table.as_ref()).collect();
        for axis in &scenario.axes {
            for (name, position) in axis.names.iter().zip(&axis.positions) {
                let own = Dimension::Axis(name.clone());
                let is_used = |(template, guard): &(&Template, &CaseGuard)| {
                    template.mentions(name) || guard.0.iter().any(|word| word.dimension == own)
                };
                let uses_axis = |table: &&ExpectationTable| {
                    table.by == own || table.across.as_ref() == Some(&own)
                };
                let is_in_text = templates.iter().any(is_used);
                if name == "isolation" || is_in_text || tables.iter().any(uses_axis) {
                    continue;
                }
                let near = templates.iter().find_map(|(template, _)| {
                    let is_near = |(_, other): &(usize, &str)| nearest(other, &[name]).is_some();
                    let (at, other) = template.placeholders().find(is_near)?;
                    Some((template.position(at).line, other))
                });
                let hint = match near {
                    Some((line, other)) => format!("is `{{{other}}}` on line {line} meant?"),
                    None => format!("write `{{{name}}}` where its values belong"),
                };
                self.diagnostics.report(*position, format!("`{name}` is not used; {hint}"));
            }
        }
    }

    fn check_headers(&mut self) {
        let scenario = self.scenario;
        let lock_steps = scenario.steps.iter().any(StepTemplate::is_lock);
        for (key, position) in &scenario.headers {
            if matches!(*key, "strategies" | "buckets") && !lock_steps {
                let none = "and there are none (`A> lock u1`)";
                self.diagnostics.report(*position, format!("`{key}:` is for lock steps, {none}"));
            }
        }
        let mut outcomes = scenario.steps.iter().flat_map(|step| &step.anomaly_outcomes);
        match (&scenario.anomaly, outcomes.next()) {
            (Some(_), None) => {
                let hint = "write ` ! …` below the step that would";
                let message = format!("nothing says what would show the anomaly; {hint}");
                self.report_header("anomaly", message);
            }
            (None, Some(outcome)) => {
                let hint = "name it above, with `anomaly: …`";
                let message = format!("` ! …` says what would show an anomaly; {hint}");
                self.diagnostics.report(outcome.position, message);
            }
            _ => {}
        }
        let backends = scenario.backends();
        for engine in scenario.engines.iter().flatten() {
            if !backends.iter().any(|backend| backend.engine == *engine) {
                let names = listed(engine.strategies(), "and");
                let message = format!("{engine} has none of these strategies; it has {names}");
                self.report_header("strategies", message);
            }
        }
        if scenario.engines.as_ref().is_some_and(Vec::is_empty) {
            self.report_header("engines", "there is no engine");
        } else if scenario.engines.is_none() && backends.is_empty() {
            self.report_header("strategies", "no engine has one of these strategies");
        }
    }

    fn report_header(&mut self, key: &str, message: impl Into<String>) {
        let header = self.scenario.headers.iter().find(|(known, _)| *known == key);
        let position = header.map_or(Position { line: 1, column: 1 }, |(_, position)| *position);
        self.diagnostics.report(position, message);
    }

    /// `sessions: isolation …` would override the axis.
    fn check_isolation(&mut self) {
        let Some(axis) = self.scenario.axes.iter().find_map(Axis::isolation) else { return };
        if !self.scenario.has_sql() {
            self.diagnostics.report(axis, "isolation matters only to SQL, and there is none");
        }
        for setting in &self.scenario.settings {
            let template = &setting.values.template;
            if setting.session.is_none()
                && setting.guard.is_always()
                && template.text.starts_with("isolation")
                && !template.mentions("isolation")
            {
                let varies = format!("the isolation level varies (line {})", axis.line);
                let message = format!("{varies}, and this would set it to one; leave it out");
                self.diagnostics.report(template.begin(), message);
            }
        }
    }

    /// Checks guards outside of steps, and settings of sessions without steps.
    fn check_blocks(&mut self, cases: &[&Case]) {
        for statement in self.scenario.setup.iter().chain(&self.scenario.teardown) {
            self.check_guard(&statement.guard, cases);
        }
        for setting in &self.scenario.settings {
            self.check_guard(&setting.guard, cases);
            if let Some((name, position)) = &setting.session
                && !cases.iter().any(|case| case.sessions.contains_key(name))
            {
                let message = format!("{name} does nothing in this scenario");
                self.diagnostics.report(*position, message);
            }
        }
    }

    fn check_step(&mut self, step: &'c StepTemplate, all: &[&Case]) {
        if !self.check_guard(&step.guard, all) {
            return;
        }
        let cases: Vec<&Case> = all.iter().copied().filter(|case| step.guard.fits(case)).collect();
        for outcome in &step.anomaly_outcomes {
            self.check_guard(&outcome.guard, &cases);
        }
        if let Some(table) = &step.table {
            self.check_labels(table, &table.by, &table.rows, "row", &cases);
            if let Some(across) = &table.across {
                self.check_labels(table, across, &table.columns, "column", &cases);
            }
            return;
        }
        let chosen: Vec<usize> = cases.iter().filter_map(|case| step.expectation(case)).collect();
        for (index, expect) in step.expectations.iter().enumerate() {
            if self.check_guard(&expect.guard, &cases) && !chosen.contains(&index) {
                let message = "this never counts, because a line above it fits first; put what has \
                               no brackets last";
                self.diagnostics.report(expect.position, message);
            }
        }
    }

    /// Returns whether a guard fits at least one case. Reports a guard, or a word of one, that never does.
    fn check_guard(&mut self, guard: &CaseGuard, cases: &[&Case]) -> bool {
        let Some(first) = guard.0.first() else { return true };
        if let Some(word) = guard.0.iter().find(|word| !cases.iter().any(|case| word.fits(case))) {
            let value = &word.value;
            let sort = match word.dimension {
                Dimension::Engine => "engines",
                Dimension::Strategy => "strategies",
                Dimension::Axis(_) => "values",
            };
            let message = match values(&word.dimension, cases).as_slice() {
                [] => format!("there are no {sort} here, so `{value}` never fits"),
                known => {
                    let known = listed(known, "and");
                    format!("`{value}` is not among the {sort} here, which are {known}")
                }
            };
            self.diagnostics.report(word.position, message);
            return false;
        }
        let fits = cases.iter().any(|case| guard.fits(case));
        if !fits {
            self.diagnostics.report(first.position, "no case is all of this at once");
        }
        fits
    }

    /// Checks that every case has its row (or column), and every row (or column) a case.
    fn check_labels(
        &mut self,
        table: &ExpectationTable,
        dimension: &Dimension,
        labels: &[CaseGuard],
        part: &str,
        cases: &[&Case],
    ) {
        let occurring = values(dimension, cases);
        let words = || labels.iter().flat_map(|label| &label.0);
        for word in words().filter(|word| !occurring.contains(&word.value.as_str())) {
            let known = listed(&occurring, "and");
            let message = format!("no case has `{}` here; there are {known}", word.value);
            self.diagnostics.report(word.position, message);
        }
        if labels.iter().any(CaseGuard::is_always) {
            return;
        }
        let is_missing = |value: &&str| !words().any(|word| word.value == *value);
        let missing: Vec<&str> = occurring.iter().copied().filter(is_missing).collect();
        let missing = if !missing.is_empty() {
            listed(&missing, "and")
        } else if cases.iter().any(|case| dimension.value(case).is_none()) {
            format!("cases that have no {}", dimension.name())
        } else {
            return;
        };
        let message =
            format!("the table has no {part} for {missing}; `*` would be one for all others");
        self.diagnostics.report(table.position, message);
    }
}

fn values<'c>(dimension: &Dimension, cases: &[&'c Case]) -> Vec<&'c str> {
    distinct(cases.iter().filter_map(|case| dimension.value(case)))
}
