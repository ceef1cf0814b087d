//! From a scenario to its cases: every variant at every place, with brackets resolved, `{name}`s
//! replaced and defaults filled in. Pure. What turns out to be wrong only in a case (a path that is
//! none once its `{name}` is filled in) is noted where it stands in the file.

use super::case::{Case, CaseDeed, Statement, Step};
use super::file::{
    Actor, Axis, Deed, Expectation, Expected, Guarded, Line, Scenario, SettingValue, Wanted,
};
use super::lock_step;
use super::mistake::{Mistake, Mistakes, Slip, Spot};
use super::settings;
use super::text::Text;
use crate::observation::Name;
use crate::place::{Engine, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a step may neither end nor be seen to wait, unless told.
pub(super) const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// Into how many buckets a level is striped, unless told: enough that nothing collides by chance.
pub(super) const DEFAULT_BUCKETS: u32 = 1009;

/// More cases than this in one file are a slip of the pen.
const MOST_CASES: usize = 5_000;

impl Scenario {
    /// Every variant at every place, in the order of the axes, then of the places.
    ///
    /// # Errors
    /// What is wrong in some case. A scenario that was [parsed](Scenario::parse) has nothing of that.
    pub fn cases(self: &Arc<Self>) -> Result<Vec<Case>, Vec<Mistake>> {
        let mut mistakes = Mistakes::new(&self.file, &self.text);
        let cases = cases(self, &mut mistakes);
        if mistakes.is_empty() { Ok(cases) } else { Err(mistakes.into_found()) }
    }

    /// Where it runs.
    pub fn places(&self) -> Vec<Place> {
        let engines: &[Engine] = match &self.engines {
            Some(engines) => engines,
            None if self.has_sql() => &Engine::SERVERS,
            None => &Engine::ALL,
        };
        engines.iter().flat_map(|engine| self.places_on(*engine)).collect()
    }

    fn places_on(&self, engine: Engine) -> Vec<Place> {
        let locks = self
            .lines
            .iter()
            .any(|line| matches!(line.deed, Deed::Lock(_)) && line.only.allows(engine));
        if !locks || engine.strategies().is_empty() {
            return vec![Place { engine, strategy: None }];
        }
        let wanted = self.strategies.as_deref();
        let strategies = engine.strategies().iter().copied();
        strategies
            .filter(|strategy| wanted.is_none_or(|wanted| wanted.contains(strategy)))
            .map(|strategy| Place { engine, strategy: Some(strategy) })
            .collect()
    }

    pub(crate) fn has_sql(&self) -> bool {
        !self.setup.is_empty()
            || !self.teardown.is_empty()
            || self.lines.iter().any(|line| matches!(line.deed, Deed::Sql(_)))
    }

    pub(crate) fn has_lock_steps(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.deed, Deed::Lock(_)))
    }

    /// Every combination of the axes: names and values. One without any, if there are no axes.
    pub fn variants(&self) -> Vec<Vec<(String, String)>> {
        let mut variants = vec![Vec::new()];
        for axis in &self.axes {
            variants = variants
                .iter()
                .flat_map(|before: &Vec<(String, String)>| {
                    axis.turns.iter().map(move |turn| {
                        let values = axis.names.iter().cloned().zip(turn.iter().cloned());
                        before.iter().cloned().chain(values).collect()
                    })
                })
                .collect();
        }
        variants
    }
}

/// Which of a step's expectations counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// One of its lines.
    Line(usize),
    /// A cell of its table: row and column.
    Cell(usize, usize),
}

impl Line {
    /// The expectation that counts in a case: the first that fits.
    pub(crate) fn choice(&self, place: &Place, variant: &[(String, String)]) -> Option<Choice> {
        if let Some(table) = &self.table {
            return table.cell(place, variant).map(|(row, column)| Choice::Cell(row, column));
        }
        let fits = |expect: &Guarded<Wanted>| expect.only.fits(place, variant);
        self.expects.iter().position(fits).map(Choice::Line)
    }

    pub(crate) fn wanted(&self, choice: Choice) -> Option<&Wanted> {
        match choice {
            Choice::Line(index) => self.expects.get(index).map(|expect| &expect.what),
            Choice::Cell(row, column) => self.table.as_ref()?.rows.get(row)?.cells.get(column),
        }
    }
}

pub(crate) fn cases(scenario: &Arc<Scenario>, mistakes: &mut Mistakes<'_>) -> Vec<Case> {
    let places = scenario.places();
    let turns = scenario.axes.iter().map(|axis| axis.turns.len());
    let count = turns.fold(places.len(), usize::saturating_mul);
    if count > MOST_CASES {
        let line = scenario.axes.last().map_or(1, |axis| axis.line);
        let message =
            format!("that makes {count} cases; {MOST_CASES} is the most, so let less vary");
        mistakes.at(Spot { line, column: 1 }, message);
        return Vec::new();
    }
    let mut cases = Vec::with_capacity(count);
    for variant in scenario.variants() {
        for place in &places {
            let mut expander = Expander { place: *place, variant: &variant, mistakes };
            cases.push(expander.case(scenario));
        }
    }
    cases
}

/// Makes one case.
struct Expander<'e, 't> {
    place: Place,
    variant: &'e [(String, String)],
    mistakes: &'e mut Mistakes<'t>,
}

impl Expander<'_, '_> {
    fn case(&mut self, scenario: &Arc<Scenario>) -> Case {
        let lines: Vec<&Line> = scenario
            .lines
            .iter()
            .filter(|line| line.only.fits(&self.place, self.variant))
            .collect();
        let names: BTreeSet<&Name> = lines
            .iter()
            .filter_map(|line| match &line.who {
                Actor::Session(name) => Some(name),
                Actor::Victim | Actor::Survivor => None,
            })
            .collect();
        let steps: Vec<Step> = lines.iter().filter_map(|line| self.step(line, &names)).collect();
        self.check_order(scenario, &steps);
        Case {
            scenario: Arc::clone(scenario),
            variant: self.variant.to_vec(),
            place: self.place,
            limit: scenario.limit.unwrap_or(DEFAULT_LIMIT),
            buckets: scenario.buckets.unwrap_or(DEFAULT_BUCKETS),
            setup: self.statements(&scenario.setup),
            teardown: self.statements(&scenario.teardown),
            sessions: self.sessions(scenario, &names),
            steps,
        }
    }

    fn statements(&mut self, statements: &[Guarded<Text>]) -> Vec<Statement> {
        let mut filled = Vec::new();
        for statement in statements {
            if !statement.only.fits(&self.place, self.variant) {
                continue;
            }
            self.needs_server("SQL", statement.what.begins());
            let line = statement.what.begins().line;
            filled.push(Statement { line, sql: statement.what.fill(self.variant).text });
        }
        filled
    }

    /// What is said of all comes before what is said of one, so that the latter wins.
    fn sessions(
        &mut self,
        scenario: &Scenario,
        names: &BTreeSet<&Name>,
    ) -> BTreeMap<Name, Vec<SettingValue>> {
        let mut sessions: BTreeMap<Name, Vec<SettingValue>> = BTreeMap::new();
        for name in names {
            sessions.insert((*name).clone(), Vec::new());
        }
        let isolation = |axis: &&Axis| axis.names.iter().any(|name| name == "isolation");
        // Without any SQL more is wrong than that.
        for axis in scenario.axes.iter().filter(isolation).filter(|_| scenario.has_sql()) {
            self.needs_server("isolation level", Spot { line: axis.line, column: 1 });
        }
        let isolation = self.variant.iter().filter(|(name, _)| name == "isolation");
        for (_, level) in isolation {
            for values in sessions.values_mut() {
                values.push(SettingValue::Isolation(level.clone()));
            }
        }
        let mut settings: Vec<_> = scenario
            .settings
            .iter()
            .filter(|setting| setting.only.fits(&self.place, self.variant))
            .collect();
        // Stable: among those of one sort the order of the file is kept.
        settings.sort_by_key(|setting| setting.what.session.is_some());
        for setting in settings {
            let text = &setting.what.text;
            self.needs_server("settings", text.begins());
            let filled = text.fill(self.variant);
            let values = settings::read(&filled.text).unwrap_or_else(|slip| {
                filled.slip(&slip, self.mistakes);
                Vec::new()
            });
            match &setting.what.session {
                None => sessions.values_mut().for_each(|all| all.extend(values.iter().cloned())),
                Some(name) => sessions
                    .get_mut(name)
                    .into_iter()
                    .for_each(|own| own.extend_from_slice(&values)),
            }
        }
        sessions
    }

    /// `memory:` and `file:` have locks and nothing else.
    fn needs_server(&mut self, what: &str, spot: Spot) {
        let engine = self.place.engine;
        if engine.server().is_none() {
            let message = format!(
                "{engine} has no {what}; take it out of `engines:`, or guard this with the \
                     engines that have"
            );
            self.mistakes.first_at(spot, message);
        }
    }

    fn step(&mut self, line: &Line, names: &BTreeSet<&Name>) -> Option<Step> {
        let deed = match &line.deed {
            Deed::Look => Some(CaseDeed::Look),
            Deed::Sql(text) => {
                self.needs_server("SQL", text.begins());
                Some(CaseDeed::Sql(text.fill(self.variant).text))
            }
            Deed::Lock(text) => {
                let filled = text.fill(self.variant);
                match lock_step::read(&filled.text) {
                    Ok(deed) => Some(CaseDeed::Lock(deed, filled.text)),
                    Err(slip) => {
                        filled.slip(&slip, self.mistakes);
                        None
                    }
                }
            }
        };
        let choice = line.choice(&self.place, self.variant);
        let expected = choice
            .and_then(|choice| line.wanted(choice))
            .and_then(|wanted| self.expectation(wanted, &line.who, names));
        let (place, variant) = (self.place, self.variant);
        let signs = line
            .signs
            .iter()
            .filter(|sign| sign.only.fits(&place, variant))
            .filter_map(|sign| self.expectation(&sign.what, &line.who, names))
            .collect();
        Some(Step { line: line.line, who: line.who.clone(), deed: deed?, expected, signs })
    }

    fn expectation(
        &mut self,
        wanted: &Wanted,
        of: &Actor,
        names: &BTreeSet<&Name>,
    ) -> Option<Expectation> {
        let expectation = wanted.read(self.variant, self.mistakes)?;
        let filled = wanted.text.fill(self.variant);
        for (name, message) in strangers(&expectation, of, names) {
            filled.slip(&Slip::new(position(&filled.text, &name), message), self.mistakes);
        }
        Some(expectation)
    }

    /// A look needs something to look at, and a victim needs a deadlock.
    fn check_order(&mut self, scenario: &Scenario, steps: &[Step]) {
        let mut acted: BTreeSet<&Name> = BTreeSet::new();
        let mut candidates: Vec<&Name> = Vec::new();
        for step in steps {
            let spot = Spot { line: step.line, column: 1 };
            match &step.who {
                Actor::Session(name) => {
                    if step.deed == CaseDeed::Look && !acted.contains(name) {
                        let message = format!(
                            "{name} has done nothing before this{}, so there is nothing to look at",
                            self.here(scenario)
                        );
                        self.mistakes.first_at(spot, message);
                    }
                    acted.insert(name);
                }
                who => {
                    let enough = match who {
                        Actor::Survivor => candidates.len() == 2,
                        _ => !candidates.is_empty(),
                    };
                    if !enough {
                        let message = format!(
                            "there is no deadlock before this{} of which `{who}` could be \
                                 one; it is expected with ` = deadlock, A or B`",
                            self.here(scenario)
                        );
                        self.mistakes.first_at(spot, message);
                    }
                }
            }
            for expected in step.expected.iter().flat_map(|expectation| &expectation.either) {
                if let Expected::Deadlock { victims } = expected
                    && !victims.is_empty()
                {
                    candidates = victims.iter().collect();
                }
            }
        }
    }

    /// Where this is so, if it may be otherwise elsewhere.
    fn here(&self, scenario: &Scenario) -> String {
        let differs = |line: &Line| {
            let guarded = line.expects.iter().any(|expect| !expect.only.is_always());
            guarded || line.table.is_some() || !line.only.is_always()
        };
        match scenario.lines.iter().any(differs) {
            true => format!(" ({})", self.place),
            false => String::new(),
        }
    }
}

/// Whoever is named and does not exist, or waits for itself.
fn strangers(
    expectation: &Expectation,
    of: &Actor,
    names: &BTreeSet<&Name>,
) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut check = |name: &Name| {
        if !names.contains(name) {
            let known: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            let known = super::mistake::listed(&known, "and");
            let message = format!("{name} does nothing in this scenario; its sessions are {known}");
            found.push((name.to_string(), message));
        }
    };
    for expected in &expectation.either {
        match expected {
            Expected::Blocked { by, .. } => {
                for who in by {
                    if let Actor::Session(name) = who {
                        check(name);
                    }
                }
            }
            Expected::Deadlock { victims } => victims.iter().for_each(&mut check),
            _ => {}
        }
    }
    for expected in &expectation.either {
        if let Expected::Blocked { by, .. } = expected
            && by.contains(of)
        {
            let message = format!("this is a step of {of}, and nobody waits for itself");
            found.push((of.to_string(), message));
        }
    }
    found
}

/// Where a word stands in a text.
fn position(text: &str, word: &str) -> usize {
    let whole = |at: usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    };
    text.match_indices(word).map(|(at, _)| at).find(|at| whole(*at)).unwrap_or(0)
}
