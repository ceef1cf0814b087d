//! Records grouped as reports show them: by scenario, then by backend, then by case. Also [`Tally`].

use super::ScenarioSummary;
use crate::engine::{BackendKind, Engine};
use crate::group::{distinct, group_by};
use crate::observation::SessionName;
use crate::record::{MissingEngine, Record, Report, Verdict};
use serde::Serialize;
use std::collections::BTreeSet;

/// A record, and its index in the report.
pub(crate) type IndexedRecord<'a> = (usize, &'a Record);

pub(crate) struct ScenarioGroup<'a> {
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) summary: Option<&'a ScenarioSummary>,
    pub(crate) records: Vec<IndexedRecord<'a>>,
    /// The missing engines on which it should run.
    pub(crate) missing: Vec<&'a MissingEngine>,
}

/// Groups the records in the order of the scenarios, then of the records.
pub(crate) fn by_scenario<'a>(
    report: &'a Report,
    scenarios: &'a [ScenarioSummary],
) -> Vec<ScenarioGroup<'a>> {
    let group = |summary: &'a ScenarioSummary| {
        let is_planned = |missing: &&MissingEngine| summary.engines.contains(&missing.engine);
        ScenarioGroup {
            name: &summary.name,
            title: &summary.title,
            summary: Some(summary),
            records: Vec::new(),
            missing: report.missing.iter().filter(is_planned).collect(),
        }
    };
    let mut groups: Vec<ScenarioGroup<'a>> = scenarios.iter().map(group).collect();
    let records = report.records.iter().enumerate();
    for (name, records) in group_by(records, |(_, record)| record.scenario.as_str()) {
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.records = records,
            None => groups.push(ScenarioGroup {
                name,
                title: &records[0].1.title,
                summary: None,
                records,
                missing: Vec::new(),
            }),
        }
    }
    groups.retain(|group| !group.records.is_empty() || !group.missing.is_empty());
    groups
}

impl<'a> ScenarioGroup<'a> {
    pub(crate) fn agrees(&self) -> bool {
        self.records.iter().all(|(_, record)| record.agrees())
    }

    pub(crate) fn backends(&self) -> Vec<BackendKind> {
        distinct(self.records.iter().map(|(_, record)| record.backend))
    }

    pub(crate) fn cases_on(&self, backend: &BackendKind) -> Vec<Rounds<'a>> {
        by_case(self.records.iter().copied().filter(|(_, record)| record.backend == *backend))
    }
}

/// The rounds of one case; there is at least one.
pub(crate) type Rounds<'a> = Vec<IndexedRecord<'a>>;

/// Returns the rounds of each case, in the order of their first round.
pub(crate) fn by_case<'a>(records: impl Iterator<Item = IndexedRecord<'a>>) -> Vec<Rounds<'a>> {
    let case =
        |(_, record): &IndexedRecord<'a>| (&record.scenario, record.backend, &record.variant);
    group_by(records, case).into_iter().map(|(_, rounds)| rounds).collect()
}

pub(crate) fn sessions(record: &Record) -> Vec<&SessionName> {
    let names: BTreeSet<&SessionName> = record.steps.iter().map(|step| &step.session).collect();
    names.into_iter().collect()
}

/// Returns the engines of a report, including the missing ones, in the order of [`Engine::ALL`].
pub(crate) fn engines(report: &Report) -> Vec<Engine> {
    let is_in_report = |engine: &Engine| {
        report.records.iter().any(|record| record.backend.engine == *engine)
            || report.missing.iter().any(|missing| missing.engine == *engine)
    };
    Engine::ALL.into_iter().filter(is_in_report).collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) cases: usize,
    pub(crate) agreed: usize,
    pub(crate) disagreed: usize,
    pub(crate) failed: usize,
}

impl Tally {
    pub(crate) fn new<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut tally = Self::default();
        for record in records {
            tally.cases += 1;
            match record.verdict {
                Verdict::Agrees => tally.agreed += 1,
                Verdict::Disagrees { .. } => tally.disagreed += 1,
                Verdict::Failed { .. } => tally.failed += 1,
            }
        }
        tally
    }
}
