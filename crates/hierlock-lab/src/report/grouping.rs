//! Records put together as reports show them: by scenario, and within one by place and case.

use super::{Story, words};
use crate::observation::Name;
use crate::place::{Engine, Place};
use crate::record::{Missing, Record, Report, Verdict};

/// A scenario with everything that was run of it.
pub(crate) struct Group<'a> {
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) story: Option<&'a Story>,
    /// In the order of the report, with the index there.
    pub(crate) records: Vec<(usize, &'a Record)>,
    /// Engines it was to be run on, and which are not there.
    pub(crate) missing: Vec<&'a Missing>,
}

/// In the order of the stories, then in that of the records.
pub(crate) fn by_scenario<'a>(report: &'a Report, stories: &'a [Story]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = stories
        .iter()
        .map(|story| Group {
            name: &story.name,
            title: &story.title,
            story: Some(story),
            records: Vec::new(),
            missing: report
                .missing
                .iter()
                .filter(|missing| story.engines.contains(&missing.engine))
                .collect(),
        })
        .collect();
    for (index, record) in report.records.iter().enumerate() {
        // Records come in runs of one scenario, so the last group is the likely one; but any may be.
        match groups.iter_mut().rev().find(|group| group.name == record.scenario) {
            Some(group) => group.records.push((index, record)),
            None => groups.push(Group {
                name: &record.scenario,
                title: &record.title,
                story: None,
                records: vec![(index, record)],
                missing: Vec::new(),
            }),
        }
    }
    groups.retain(|group| !group.records.is_empty() || !group.missing.is_empty());
    groups
}

impl<'a> Group<'a> {
    /// Where it was run, in the order of the records.
    pub(crate) fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (_, record) in &self.records {
            if !places.contains(&record.place) {
                places.push(record.place);
            }
        }
        places
    }

    /// What was run at one place: the rounds of each case, cases in their order.
    pub(crate) fn cases_at(&self, place: Place) -> Vec<Rounds<'a>> {
        rounds(self.records.iter().copied().filter(|(_, record)| record.place == place))
    }
}

/// The rounds of one case, with their indices in the report; there is at least one.
pub(crate) type Rounds<'a> = Vec<(usize, &'a Record)>;

/// Records of one case put together.
pub(crate) fn rounds<'a>(records: impl Iterator<Item = (usize, &'a Record)>) -> Vec<Rounds<'a>> {
    let mut cases: Vec<Rounds<'a>> = Vec::new();
    for (index, record) in records {
        let same = |case: &&mut Rounds<'a>| {
            let first = case[0].1;
            first.scenario == record.scenario
                && first.place == record.place
                && first.variant == record.variant
        };
        match cases.iter_mut().rev().find(same) {
            Some(case) => case.push((index, record)),
            None => cases.push(vec![(index, record)]),
        }
    }
    cases
}

/// The values of a variant: `read committed, u1`; empty where nothing varies.
pub(crate) fn variant(record: &Record) -> String {
    let values: Vec<&str> = record.variant.iter().map(|(_, value)| value.as_str()).collect();
    words::one_line(&values.join(", "))
}

/// `deadlock/cycle [read committed] on mysql striped, round 2`; the round only where there are several.
pub(crate) fn run_name(record: &Record) -> String {
    let mut name = format!("{} on {}", words::one_line(&record.case_name()), record.place);
    if record.round > 1 {
        name += &format!(", round {}", record.round);
    }
    name
}

/// The sessions of a record, in the order of their names.
pub(crate) fn sessions(record: &Record) -> Vec<Name> {
    let mut names: Vec<Name> = record.steps.iter().map(|step| step.session.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// How many of each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) agreed: usize,
    pub(crate) disagreed: usize,
    pub(crate) failed: usize,
}

impl Tally {
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut tally = Tally::default();
        for record in records {
            match record.verdict {
                Verdict::Agrees => tally.agreed += 1,
                Verdict::Disagrees { .. } => tally.disagreed += 1,
                Verdict::Failed { .. } => tally.failed += 1,
            }
        }
        tally
    }

    pub(crate) fn total(self) -> usize {
        self.agreed + self.disagreed + self.failed
    }
}

/// The engines that a report speaks of, those that are missing too, in the order of [`Engine::ALL`].
pub(crate) fn engines(report: &Report) -> Vec<Engine> {
    Engine::ALL
        .into_iter()
        .filter(|engine| {
            report.records.iter().any(|record| record.place.engine == *engine)
                || report.missing.iter().any(|missing| missing.engine == *engine)
        })
        .collect()
}
