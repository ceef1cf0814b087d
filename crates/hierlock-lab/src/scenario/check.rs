//! What can only be seen in the whole of a file: brackets that never fit, lines that never count,
//! tables with holes, axes that change nothing. Pure; everything was read before.

use super::case::Case;
use super::expand::Choice;
use super::file::{Deed, Label, Line, Scenario, Table, Wanted};
use super::mistake::{Mistakes, Spot, listed, nearest};
use super::only::{Dimension, Only};
use super::text::{Text, placeholders};
use std::sync::Arc;

/// Notes all of it.
pub(crate) fn check(scenario: &Arc<Scenario>, cases: &[Case], mistakes: &mut Mistakes<'_>) {
    let mut checker = Checker { scenario, cases, mistakes };
    checker.axes();
    checker.headers();
    if cases.is_empty() {
        return;
    }
    checker.anywhere();
    for line in &scenario.lines {
        checker.step(line);
    }
}

struct Checker<'c, 't> {
    scenario: &'c Scenario,
    cases: &'c [Case],
    mistakes: &'c mut Mistakes<'t>,
}

impl Checker<'_, '_> {
    /// An axis that changes nothing only makes the run longer.
    fn axes(&mut self) {
        let texts = texts(self.scenario);
        let guards = guards(self.scenario);
        let tables: Vec<&Table> =
            self.scenario.lines.iter().filter_map(|line| line.table.as_ref()).collect();
        for axis in &self.scenario.axes {
            for name in axis.names.iter().filter(|name| *name != "isolation") {
                let own = Dimension::Axis(name.clone());
                let used = texts.iter().any(|text| text.mentions(name))
                    || guards.iter().any(|only| only.groups.iter().any(|(d, _)| *d == own))
                    || tables.iter().any(|t| t.by == own || t.across.as_ref() == Some(&own));
                if used {
                    continue;
                }
                let near = texts.iter().find_map(|text| {
                    placeholders(&text.text)
                        .find(|(_, other)| nearest(other, &[name]).is_some())
                        .map(|(at, other)| (text.spot(at).line, other))
                });
                let hint = match near {
                    Some((line, other)) => format!("; is `{{{other}}}` on line {line} meant?"),
                    None => format!("; write `{{{name}}}` where its values are to stand"),
                };
                let spot = self.find(axis.line, name);
                self.mistakes.at(spot, format!("`{name}` is not used{hint}"));
            }
        }
    }

    fn headers(&mut self) {
        let scenario = self.scenario;
        let lock_steps = scenario.has_lock_steps();
        for (key, there) in
            [("strategies", scenario.strategies.is_some()), ("buckets", scenario.buckets.is_some())]
        {
            if there && !lock_steps {
                let spot = self.header(key);
                self.mistakes.at(
                    spot,
                    format!("`{key}:` is for lock steps, and there are none (`A> lock u1`)"),
                );
            }
        }
        let signs = scenario.lines.iter().flat_map(|line| &line.signs);
        match (&scenario.anomaly, signs.map(|sign| sign.line).next()) {
            (Some(_), None) => {
                let spot = self.header("anomaly");
                self.mistakes.at(
                    spot,
                    "nothing says what would show the anomaly; write ` ! …` below the step that \
                     would",
                );
            }
            (None, Some(line)) => {
                let spot = self.find(line, "!");
                self.mistakes.at(
                    spot,
                    "` ! …` says what would show an anomaly; name it above, with `anomaly: …`",
                );
            }
            _ => {}
        }
        let places = scenario.places();
        for engine in scenario.engines.iter().flatten() {
            if !places.iter().any(|place| place.engine == *engine) {
                let names: Vec<&str> = engine.strategies().iter().map(|s| s.name()).collect();
                let spot = self.header("strategies");
                self.mistakes.at(
                    spot,
                    format!(
                        "{engine} has none of these strategies; it has {}",
                        listed(&names, "and")
                    ),
                );
            }
        }
        if scenario.engines.as_ref().is_some_and(Vec::is_empty) {
            let spot = self.header("engines");
            self.mistakes.at(spot, "there is no engine");
        } else if places.is_empty() && scenario.engines.is_none() {
            let spot = self.header("strategies");
            self.mistakes.at(spot, "no engine has one of these strategies");
        }
        self.isolation();
    }

    /// `sessions: isolation …` would undo the axis.
    fn isolation(&mut self) {
        let axis = self.scenario.axes.iter().find(|a| a.names.iter().any(|n| n == "isolation"));
        let Some(axis) = axis else { return };
        if !self.scenario.has_sql() {
            let spot = self.find(axis.line, "isolation");
            self.mistakes.at(spot, "isolation matters only to SQL, and there is none");
        }
        for setting in &self.scenario.settings {
            let what = &setting.what;
            if what.session.is_none()
                && setting.only.is_always()
                && what.text.text.starts_with("isolation")
                && !what.text.mentions("isolation")
            {
                self.mistakes.at(what.text.begins(), format!(
                    "the isolation level varies (line {}), and this would set it to one; leave it \
                     out", axis.line));
            }
        }
    }

    /// Brackets outside of steps, and settings of sessions that do nothing.
    fn anywhere(&mut self) {
        let all: Vec<&Case> = self.cases.iter().collect();
        for statement in self.scenario.setup.iter().chain(&self.scenario.teardown) {
            // The brackets stand at the head of the block, on a line above.
            let head = self.above(statement.line, '[');
            self.fits(&statement.only, head, &all);
        }
        for setting in &self.scenario.settings {
            self.fits(&setting.only, setting.line, &all);
            if let Some(name) = &setting.what.session
                && !self.cases.iter().any(|case| case.sessions.contains_key(name))
            {
                let spot = self.find(setting.line, name.as_str());
                self.mistakes.at(spot, format!("{name} does nothing in this scenario"));
            }
        }
    }

    fn step(&mut self, line: &Line) {
        let all: Vec<&Case> = self.cases.iter().collect();
        if !self.fits(&line.only, line.line, &all) {
            return;
        }
        let fits = |case: &&Case| line.only.fits(&case.place, &case.variant);
        let cases: Vec<&Case> = self.cases.iter().filter(fits).collect();
        for sign in &line.signs {
            self.fits(&sign.only, sign.line, &cases);
        }
        if let Some(table) = &line.table {
            self.table(table, &cases);
            return;
        }
        let chosen: Vec<Option<Choice>> =
            cases.iter().map(|case| line.choice(&case.place, &case.variant)).collect();
        for (index, expect) in line.expects.iter().enumerate() {
            let fits = self.fits(&expect.only, expect.line, &cases);
            if fits && !chosen.contains(&Some(Choice::Line(index))) {
                let spot = self.find(expect.line, "=");
                self.mistakes.at(
                    spot,
                    "this never counts, because a line above it fits first; put what has no \
                     brackets last",
                );
            }
        }
    }

    /// Whether brackets fit at least one case; if not, or if a word of them never does, that is noted.
    fn fits(&mut self, only: &Only, line: usize, cases: &[&Case]) -> bool {
        for (dimension, values) in &only.groups {
            for value in values {
                let has = |case: &&Case| {
                    dimension.value(&case.place, &case.variant) == Some(value.as_str())
                };
                if cases.iter().any(has) {
                    continue;
                }
                let known = occurring(dimension, cases);
                let sort = match dimension {
                    Dimension::Engine => "engines",
                    Dimension::Strategy => "strategies",
                    Dimension::Axis(_) => "values",
                };
                let message = match known.is_empty() {
                    true => format!("there are no {sort} here, so `{value}` never fits"),
                    false => format!(
                        "`{value}` is not among the {sort} here, which are {}",
                        listed(&known, "and")
                    ),
                };
                let spot = self.find(line, value);
                self.mistakes.at(spot, message);
                return false;
            }
        }
        let fits = cases.iter().any(|case| only.fits(&case.place, &case.variant));
        if !fits {
            let spot = self.find(line, "[");
            self.mistakes.at(spot, "no case is all of this at once");
        }
        fits
    }

    /// Every case has its cell, and every head has a case.
    fn table(&mut self, table: &Table, cases: &[&Case]) {
        let rows: Vec<(usize, &Label)> =
            table.rows.iter().map(|row| (row.line, &row.label)).collect();
        let columns: Vec<(usize, &Label)> =
            table.columns.iter().map(|label| (table.line, label)).collect();
        let sides = [(Some(&table.by), rows, "row"), (table.across.as_ref(), columns, "column")];
        for (dimension, labels, what) in sides {
            let Some(dimension) = dimension else { continue };
            let occurring = occurring(dimension, cases);
            let mut named: Vec<&str> = Vec::new();
            for (line, label) in &labels {
                let Label::Values(values) = label else { continue };
                named.extend(values.iter().map(String::as_str));
                for value in values.iter().filter(|value| !occurring.contains(&value.as_str())) {
                    let spot = self.find(*line, value);
                    let message = format!(
                        "no case has `{value}` here; there are {}",
                        listed(&occurring, "and")
                    );
                    self.mistakes.at(spot, message);
                }
            }
            if labels.iter().any(|(_, label)| **label == Label::Others) {
                continue;
            }
            let without: Vec<&str> =
                occurring.into_iter().filter(|value| !named.contains(value)).collect();
            let nameless = cases.iter().any(|c| dimension.value(&c.place, &c.variant).is_none());
            if !without.is_empty() || nameless {
                let missing = match without.is_empty() {
                    true => format!("cases that have no {}", dimension.name()),
                    false => listed(&without, "and"),
                };
                let spot = self.find(table.line, "by");
                self.mistakes.at(
                    spot,
                    format!(
                        "the table has no {what} for {missing}; `*` would be one for all others"
                    ),
                );
            }
        }
    }

    /// Where a word stands in a line, behind whatever begins it.
    fn find(&self, line: usize, word: &str) -> Spot {
        let source = self.scenario.text.lines().nth(line - 1).unwrap_or_default();
        let byte = source.find(word).unwrap_or(0);
        Spot { line, column: source[..byte].chars().count() + 1 }
    }

    /// Where a header stands.
    fn header(&self, key: &str) -> Spot {
        let begins = |line: &str| {
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'))
        };
        let line = self.scenario.text.lines().position(begins).map_or(1, |index| index + 1);
        Spot { line, column: 1 }
    }

    /// The line at the margin above a line.
    fn above(&self, line: usize, with: char) -> usize {
        let lines: Vec<&str> = self.scenario.text.lines().take(line).collect();
        let head = |line: &&str| line.contains(with) && line.starts_with(char::is_alphabetic);
        lines.iter().rposition(head).map_or(line, |index| index + 1)
    }
}

/// The values that some case has, each once.
fn occurring<'c>(dimension: &Dimension, cases: &[&'c Case]) -> Vec<&'c str> {
    let mut values = Vec::new();
    for case in cases {
        if let Some(value) = dimension.value(&case.place, &case.variant)
            && !values.contains(&value)
        {
            values.push(value);
        }
    }
    values
}

/// Every text in which a `{name}` is replaced.
fn texts(scenario: &Scenario) -> Vec<&Text> {
    let mut texts: Vec<&Text> = Vec::new();
    texts.extend(scenario.setup.iter().chain(&scenario.teardown).map(|guarded| &guarded.what));
    texts.extend(scenario.settings.iter().map(|setting| &setting.what.text));
    for line in &scenario.lines {
        if let Deed::Sql(text) | Deed::Lock(text) = &line.deed {
            texts.push(text);
        }
        let lines = line.expects.iter().chain(&line.signs).map(|guarded| &guarded.what);
        let cells = line.table.iter().flat_map(|t| &t.rows).flat_map(|row| &row.cells);
        texts.extend(lines.chain(cells).flat_map(Wanted::texts));
    }
    texts
}

/// Every pair of brackets.
fn guards(scenario: &Scenario) -> Vec<&Only> {
    let mut guards: Vec<&Only> = Vec::new();
    guards.extend(scenario.setup.iter().chain(&scenario.teardown).map(|guarded| &guarded.only));
    guards.extend(scenario.settings.iter().map(|setting| &setting.only));
    for line in &scenario.lines {
        guards.push(&line.only);
        guards.extend(line.expects.iter().chain(&line.signs).map(|guarded| &guarded.only));
    }
    guards
}
