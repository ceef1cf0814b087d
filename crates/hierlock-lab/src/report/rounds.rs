//! The differences between the rounds of one case: verdicts, victims, the order of wake-ups, outcomes; not times.

use super::display;
use super::grouping::{Rounds, by_case};
use super::transcript::wake_ups;
use crate::group::group_by;
use crate::observation::{Observation, SessionName, SessionWait};
use crate::record::{Record, Report};
use crate::text::count;
use std::cmp::Reverse;

/// A comparison of the rounds of every case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundComparison {
    /// The number of cases that were run more than once.
    pub(crate) repeated: usize,
    /// The greatest number of rounds of a case.
    pub(crate) rounds: usize,
    /// The cases whose rounds differ.
    pub(crate) unstable: Vec<UnstableCase>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnstableCase {
    /// The name, such as `deadlock/cycle [read committed] on mysql`.
    pub(crate) case: String,
    pub(crate) rounds: usize,
    pub(crate) variations: Vec<Variation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variation {
    /// The part of the run that differs, such as `order of wake-ups at line 16`.
    pub(crate) subject: String,
    /// The observations, with the number of rounds, the most frequent first.
    pub(crate) seen: Vec<(String, usize)>,
}

impl RoundComparison {
    /// Compares the rounds of every case.
    pub fn new(report: &Report) -> Self {
        let mut cases = by_case(report.records.iter().enumerate());
        cases.retain(|case| case.len() > 1);
        let unstable = cases.iter().map(|case| UnstableCase {
            case: display::run_name(case[0].1),
            rounds: case.len(),
            variations: variations(case),
        });
        Self {
            repeated: cases.len(),
            rounds: cases.iter().map(Vec::len).max().unwrap_or(1),
            unstable: unstable.filter(|case| !case.variations.is_empty()).collect(),
        }
    }

    /// Returns `3 of 4 repeated cases went the same way in all of up to 5 rounds`.
    pub(crate) fn summary(&self) -> String {
        let stable = self.repeated - self.unstable.len();
        let cases = count(self.repeated, "repeated case");
        format!("{stable} of {cases} went the same way in all of up to {} rounds", self.rounds)
    }

    /// Returns text for a terminal; an empty text if no case was repeated.
    pub fn text(&self) -> String {
        if self.repeated == 0 {
            return String::new();
        }
        let mut text = self.summary() + "\n";
        for UnstableCase { case, rounds, variations } in &self.unstable {
            text += &format!("\n{case}, {rounds} rounds\n");
            for Variation { subject, seen } in variations {
                text += &format!("  {subject}\n");
                for (seen, times) in seen {
                    text += &format!("    {times:>3}× {seen}\n");
                }
            }
        }
        text
    }
}

fn variations(case: &Rounds<'_>) -> Vec<Variation> {
    let records: Vec<&Record> = case.iter().map(|(_, record)| *record).collect();
    let victims = records.iter().map(|record| record.deadlocks.iter().map(|d| &d.victim).collect());
    let victims: Vec<Vec<&SessionName>> = victims.collect();
    let steps = records.iter().map(|record| record.steps.len()).max().unwrap_or(0);
    let deadlocks = victims.iter().map(Vec::len).max().unwrap_or(0);
    let at_line = |subject: &str, index: Option<usize>| {
        let mut steps = records.iter().filter_map(|record| record.steps.get(index?));
        steps.next().map_or(subject.to_owned(), |step| format!("{subject} at line {}", step.line))
    };

    let mut variations = Vec::new();
    let mut compare = |subject: String, is_victim: bool, seen: Vec<String>| {
        // Another victim changes all later observations, so those are compared between rounds with equal victims.
        let differ =
            |a: usize, b: usize| seen[a] != seen[b] && (is_victim || victims[a] == victims[b]);
        if (0..seen.len()).any(|a| (0..a).any(|b| differ(a, b))) {
            let groups = group_by(seen, String::clone).into_iter();
            let mut seen: Vec<_> = groups.map(|(seen, rounds)| (seen, rounds.len())).collect();
            seen.sort_by_key(|(_, times)| Reverse(*times));
            variations.push(Variation { subject, seen });
        }
    };
    let verdicts = records.iter().map(|record| display::verdict(record).to_owned());
    compare("verdict".to_owned(), false, verdicts.collect());
    for nth in 0..deadlocks {
        let step = records.iter().find_map(|record| record.deadlocks.get(nth)).map(|d| d.step);
        let chosen = victims.iter().map(|victims| names_text(victims.get(nth).copied()));
        compare(at_line("victim", step), true, chosen.collect());
    }
    for index in 0..steps {
        let woken = records.iter().map(|record| {
            names_text(wake_ups(record, index).iter().map(|wake_up| &wake_up.step.session))
        });
        compare(at_line("order of wake-ups", Some(index)), false, woken.collect());
        let outcomes = records.iter().map(|record| outcome(record, index));
        compare(at_line("outcome", Some(index)), false, outcomes.collect());
    }
    variations
}

/// Returns `B then C`, or `nobody`.
fn names_text<'a>(names: impl IntoIterator<Item = &'a SessionName>) -> String {
    match names.into_iter().map(SessionName::as_str).collect::<Vec<_>>() {
        nobody if nobody.is_empty() => "nobody".to_owned(),
        names => names.join(" then "),
    }
}

/// Returns the first observation of a step, and the end of its wait.
fn outcome(record: &Record, index: usize) -> String {
    let Some(step) = record.steps.get(index) else { return "was not reached".to_owned() };
    let ended =
        step.ended.as_ref().map(|ended| format!(", then {}", comparable_text(&ended.observation)));
    comparable_text(&step.seen) + &ended.unwrap_or_default()
}

/// Returns an observation without parts that differ in every round, such as transaction ids.
fn comparable_text(observation: &Observation) -> String {
    let Observation::Blocked(wait) = observation else { return display::observation(observation) };
    let kind = wait.target.as_ref().map(|object| format!(" on {}", object.kind.name()));
    display::wait(&SessionWait { target: None, ..wait.clone() }) + &kind.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::report::fixtures::{backend, cycle, dirty_read, readers};
    use std::time::Duration;

    fn compare(records: Vec<Record>) -> RoundComparison {
        RoundComparison::new(&Report { records, ..Report::default() })
    }

    #[test]
    fn varying_victims_and_wake_ups_are_reported() {
        let mut records: Vec<Record> =
            (1..=5).map(|round| readers(backend(Engine::Memory), round)).collect();
        for (round, victim) in (1..).zip(["A", "A", "B"]) {
            records.push(Record { round, ..cycle(Engine::Mysql, victim) });
        }
        insta::assert_snapshot!(compare(records).text());
    }

    #[test]
    fn times_alone_do_not_make_a_case_unstable() {
        let first = dirty_read(Engine::Mysql, "serializable");
        let mut second = Record { round: 2, ..first.clone() };
        second.steps[3].ended.as_mut().unwrap().at += Duration::from_millis(3);
        let comparison = compare(vec![first, second]);
        assert_eq!(comparison.repeated, 1);
        assert_eq!(comparison.unstable, []);
    }

    #[test]
    fn a_case_that_ran_once_is_not_compared() {
        assert_eq!(compare(vec![cycle(Engine::Mysql, "A")]).text(), "");
    }
}
