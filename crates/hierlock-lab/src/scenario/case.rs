//! One variant of a scenario on one backend: the unit that the runner runs.

use super::expectation::{Expectation, ExpectedOutcome, SessionSelector};
use super::file::{Axis, GuardedValue, Scenario, StepTemplate};
use super::lock_action::LockAction;
use super::settings::SettingValue;
use super::template::Variant;
use crate::engine::{BackendKind, Engine};
use crate::observation::SessionName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The default limit for a step that neither ends nor is seen to wait.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// The default bucket count of a level: large enough that nodes do not collide by chance.
const DEFAULT_BUCKETS: u32 = 1009;

/// The largest number of cases of a file; more are an error in the file.
pub(super) const MAX_CASES: usize = 5_000;

/// One variant of a scenario, on one backend.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The value of each axis.
    pub variant: Vec<(String, String)>,
    /// The engine, and the strategy for scenarios that lock nodes on a server.
    pub backend: BackendKind,
    /// The limit for a step that neither ends nor is seen to wait.
    pub limit: Duration,
    /// The bucket count of a level.
    pub buckets: u32,
    /// SQL that runs before the sessions exist.
    pub setup: Vec<Statement>,
    /// SQL that runs after all sessions have ended.
    pub teardown: Vec<Statement>,
    /// Every session of the steps, with its settings, in the order to apply them.
    pub sessions: BTreeMap<SessionName, Vec<SettingValue>>,
    /// The transcript.
    pub steps: Vec<ScenarioStep>,
}

/// A statement of `setup:` or `teardown:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub line: usize,
    pub sql: String,
}

/// One step of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioStep {
    /// The line in the file.
    pub line: usize,
    /// The session.
    pub session: SessionSelector,
    /// The action.
    pub action: Action,
    /// The expected outcome; by default the step must be done.
    pub expected: Option<Expectation>,
    /// Outcomes that show the anomaly.
    pub anomaly_outcomes: Vec<Expectation>,
}

impl ScenarioStep {
    /// Returns a step without an expectation, which must be done.
    pub fn new(line: usize, session: SessionName, action: Action) -> Self {
        let session = SessionSelector::Session(session);
        ScenarioStep { line, session, action, expected: None, anomaly_outcomes: Vec::new() }
    }

    /// Returns the alternatives of the expected outcome; none if the file has no expectation.
    pub(crate) fn expected_outcomes(&self) -> impl Iterator<Item = &ExpectedOutcome> {
        self.expected.iter().flat_map(|expected| &expected.alternatives)
    }
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A statement, sent as it is.
    Sql(String),
    /// A lock action on the tree, and its text in the file.
    Lock(LockAction, String),
    /// No action: observes the session's last step again.
    Look,
}

impl Scenario {
    /// Returns every variant on every backend, in the order of the axes, then of the backends.
    pub fn cases(self: &Arc<Self>) -> Vec<Case> {
        let backends = self.backends();
        let mut cases = Vec::new();
        for (index, variant) in variants(&self.axes).into_iter().enumerate() {
            cases.extend(backends.iter().map(|backend| self.case(index, &variant, *backend)));
        }
        cases
    }

    pub(crate) fn backends(&self) -> Vec<BackendKind> {
        let engines: &[Engine] = match &self.engines {
            Some(engines) => engines,
            None if self.has_sql() => &Engine::SERVERS,
            None => &Engine::ALL,
        };
        engines.iter().flat_map(|engine| self.backends_on(*engine)).collect()
    }

    fn backends_on(&self, engine: Engine) -> Vec<BackendKind> {
        if !self.steps.iter().any(|step| step.is_lock() && step.guard.allows(engine)) {
            return vec![BackendKind { engine, strategy: None }];
        }
        let mut backends = BackendKind::all([engine]);
        if let Some(wanted) = &self.strategies {
            backends.retain(|backend| backend.strategy.is_none_or(|own| wanted.contains(&own)));
        }
        backends
    }

    pub(crate) fn has_sql(&self) -> bool {
        !self.setup.is_empty()
            || !self.teardown.is_empty()
            || self.steps.iter().any(StepTemplate::is_sql)
    }

    fn case(self: &Arc<Self>, index: usize, variant: &Variant, backend: BackendKind) -> Case {
        let mut case = Case { variant: variant.clone(), ..Case::new(self.clone(), backend) };
        case.setup = case.statements(&self.setup, index);
        case.teardown = case.statements(&self.teardown, index);
        let steps = self.steps.iter().filter(|step| step.guard.fits(&case));
        case.steps = steps.filter_map(|step| case.step(step, index)).collect();
        case.sessions = case.sessions(index);
        case
    }
}

impl Case {
    pub(crate) fn new(scenario: Arc<Scenario>, backend: BackendKind) -> Self {
        Case {
            limit: scenario.limit.unwrap_or(DEFAULT_LIMIT),
            buckets: scenario.buckets.unwrap_or(DEFAULT_BUCKETS),
            scenario,
            variant: Vec::new(),
            backend,
            setup: Vec::new(),
            teardown: Vec::new(),
            sessions: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    /// Returns all SQL of the case: of the setup, the teardown and the steps.
    pub(crate) fn sql(&self) -> impl Iterator<Item = &String> + Clone {
        let steps = self.steps.iter().filter_map(|step| match &step.action {
            Action::Sql(sql) => Some(sql),
            _ => None,
        });
        self.setup.iter().chain(&self.teardown).map(|statement| &statement.sql).chain(steps)
    }

    fn statements(&self, blocks: &[GuardedValue<String>], index: usize) -> Vec<Statement> {
        let statement = |block: &GuardedValue<String>| {
            let sql = block.for_case(self, index)?.clone();
            Some(Statement { line: block.position.line, sql })
        };
        blocks.iter().filter_map(statement).collect()
    }

    /// Settings of all sessions come before those of one session, so that the latter take precedence.
    fn sessions(&self, index: usize) -> BTreeMap<SessionName, Vec<SettingValue>> {
        let levels = self.variant.iter().filter(|(name, _)| name == "isolation");
        let levels = levels.map(|(_, level)| SettingValue::Isolation(level.clone()));
        let all: Vec<_> = self.scenario.settings.iter().filter(|s| s.guard.fits(self)).collect();
        let mut sessions = BTreeMap::new();
        for step in &self.steps {
            let SessionSelector::Session(name) = &step.session else { continue };
            let common = all.iter().filter(|setting| setting.session.is_none());
            let own = all.iter().filter(|setting| {
                setting.session.as_ref().is_some_and(|(session, _)| session == name)
            });
            let settings =
                common.chain(own).filter_map(|setting| setting.values.for_variant(index));
            let values = levels.clone().chain(settings.flatten().cloned()).collect();
            sessions.entry(name.clone()).or_insert(values);
        }
        sessions
    }

    fn step(&self, step: &StepTemplate, index: usize) -> Option<ScenarioStep> {
        let expectation = step.expectation(self).and_then(|which| step.expectations.get(which));
        let anomalies = step.anomaly_outcomes.iter().filter_map(|one| one.for_case(self, index));
        Some(ScenarioStep {
            line: step.line,
            session: step.session.clone(),
            action: step.action.for_variant(index)?.clone(),
            expected: expectation.and_then(|one| one.value.for_variant(index)).cloned(),
            anomaly_outcomes: anomalies.cloned().collect(),
        })
    }
}

impl StepTemplate {
    pub(crate) fn is_lock(&self) -> bool {
        matches!(self.action.values.first(), Some(Action::Lock(..)))
    }

    pub(crate) fn is_sql(&self) -> bool {
        matches!(self.action.values.first(), Some(Action::Sql(_)))
    }

    pub(crate) fn is_look(&self) -> bool {
        matches!(self.action.values.first(), Some(Action::Look))
    }
}

pub(super) fn variant_count(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.value_sets.len()).fold(1, usize::saturating_mul)
}

/// Returns every combination of the axes: a single one without values if there are no axes, none if there are too many.
pub(super) fn variants(axes: &[Axis]) -> Vec<Variant> {
    if variant_count(axes) > MAX_CASES {
        return Vec::new();
    }
    axes.iter().fold(vec![Variant::new()], |variants, axis| {
        let longer = |before: Variant| {
            axis.value_sets.iter().map(move |value_set| {
                let values = axis.names.iter().cloned().zip(value_set.iter().cloned());
                before.iter().cloned().chain(values).collect()
            })
        };
        variants.into_iter().flat_map(longer).collect()
    })
}
