//! What varied between the rounds of one case: victims, the order of wake-ups, outcomes. Times always vary
//! and are not looked at.

use super::grouping::{Rounds, rounds, run_name};
use super::words;
use crate::observation::{Name, Observation, Wait};
use crate::record::{Record, Report, Verdict};
use serde::Serialize;
use std::fmt::Write as _;

/// What repetition has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stability {
    /// Cases that were run more than once.
    pub(crate) repeated: usize,
    /// How often, at most.
    pub(crate) rounds: usize,
    /// Those that did not always go the same way.
    pub(crate) unstable: Vec<Unstable>,
}

/// A case that did not always go the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Unstable {
    /// `deadlock/cycle [read committed] on mysql`
    pub case: String,
    /// How often it was run.
    pub rounds: usize,
    /// In what the rounds differ.
    pub varied: Vec<Variation>,
}

/// One thing in which rounds differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Variation {
    /// In what.
    pub what: Varied,
    /// At which line of the file; of the whole run, none.
    pub line: Option<usize>,
    /// What was seen, each with how often, the most frequent first.
    pub seen: Vec<(String, usize)>,
}

/// What can vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Varied {
    /// Whether reality agrees.
    Verdict,
    /// Who was chosen to end a deadlock.
    Victim,
    /// In which order those went on whom one step let go.
    WakeUps,
    /// How a step went, or ended.
    Outcome,
}

impl Varied {
    /// In a word or two.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Varied::Verdict => "verdict",
            Varied::Victim => "victim",
            Varied::WakeUps => "order of wake-ups",
            Varied::Outcome => "outcome",
        }
    }
}

impl Stability {
    /// Compares the rounds of every case.
    pub fn of(report: &Report) -> Self {
        let cases = rounds(report.records.iter().enumerate());
        let repeated: Vec<&Rounds<'_>> = cases.iter().filter(|case| case.len() > 1).collect();
        let unstable = |case: &&Rounds<'_>| {
            let varied = variations(case);
            (!varied.is_empty()).then(|| Unstable {
                case: run_name(case[0].1),
                rounds: case.len(),
                varied,
            })
        };
        Stability {
            repeated: repeated.len(),
            rounds: repeated.iter().map(|case| case.len()).max().unwrap_or(1),
            unstable: repeated.iter().filter_map(unstable).collect(),
        }
    }

    /// For a terminal; empty where nothing was repeated.
    pub fn text(&self) -> String {
        if self.repeated == 0 {
            return String::new();
        }
        let stable = self.repeated - self.unstable.len();
        let mut text = format!(
            "{stable} of {} went the same way in all of up to {} rounds\n",
            words::count(self.repeated, "repeated case"),
            self.rounds
        );
        for case in &self.unstable {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n{}, {} rounds", case.case, case.rounds);
            for Variation { what, line, seen } in &case.varied {
                let at = line.map_or(String::new(), |line| format!(" at line {line}"));
                let _ = writeln!(text, "  {}{at}", what.name());
                for (seen, times) in seen {
                    let _ = writeln!(text, "    {times:>3}× {seen}");
                }
            }
        }
        text
    }
}

fn verdict(record: &Record) -> &'static str {
    match record.verdict {
        Verdict::Agrees => "agrees",
        Verdict::Disagrees { .. } => "disagrees",
        Verdict::Failed { .. } => "failed",
    }
}

/// `B then C`: who went on during a step, one after the other.
fn wake_ups(record: &Record, during: usize) -> String {
    let mut ends: Vec<_> = record
        .steps
        .iter()
        .filter_map(|step| Some((step.ended.as_ref()?, step)))
        .filter(|(ended, _)| ended.during == during)
        .collect();
    ends.sort_by_key(|(ended, _)| ended.at);
    ends.iter().map(|(_, step)| step.session.as_str()).collect::<Vec<_>>().join(" then ")
}

/// How a step went, and ended.
fn outcome(record: &Record, index: usize) -> String {
    let Some(step) = record.steps.get(index) else { return "never came to it".to_owned() };
    let seen = seen(&step.seen);
    match &step.ended {
        Some(ended) => format!("{seen}, then {}", self::seen(&ended.observation)),
        None => seen,
    }
}

/// An observation without what is new in every round, such as the number of a transaction.
fn seen(observation: &Observation) -> String {
    match observation {
        Observation::Blocked(wait) => {
            let kind = wait.thing.as_ref().map(|thing| format!(" on {}", thing.kind.name()));
            let without = Wait { thing: None, ..wait.clone() };
            words::wait(&without) + &kind.unwrap_or_default()
        }
        other => words::observation(other),
    }
}

fn variations(case: &Rounds<'_>) -> Vec<Variation> {
    let records: Vec<&Record> = case.iter().map(|(_, record)| *record).collect();
    let line = |index: usize| {
        records.iter().find_map(|record| record.steps.get(index)).map(|step| step.line)
    };
    let victims: Vec<Vec<&Name>> = records.iter().map(|record| victims(record)).collect();
    let mut varied = Vec::new();
    let mut look = |what, line, seen: Vec<String>| {
        // Another victim changes what is seen from there on. That is told once, as the victim; the rest only
        // where it varies between rounds with the same victims.
        let by_itself = (0..seen.len()).any(|a| {
            (0..a)
                .any(|b| seen[a] != seen[b] && (what == Varied::Victim || victims[a] == victims[b]))
        });
        if by_itself {
            varied.push(Variation { what, line, seen: counted(seen) });
        }
    };
    look(Varied::Verdict, None, records.iter().map(|record| verdict(record).to_owned()).collect());
    let deadlocks = victims.iter().map(Vec::len).max().unwrap_or(0);
    for nth in 0..deadlocks {
        let at = records.iter().find_map(|record| record.deadlocks.get(nth)).map(|d| d.step);
        let chosen = |victims: &Vec<&Name>| {
            victims.get(nth).map_or("nobody".to_owned(), |victim| victim.to_string())
        };
        look(Varied::Victim, at.and_then(line), victims.iter().map(chosen).collect());
    }
    let steps = records.iter().map(|record| record.steps.len()).max().unwrap_or(0);
    for index in 0..steps {
        let order = |record: &&Record| match wake_ups(record, index) {
            nobody if nobody.is_empty() => "nobody".to_owned(),
            some => some,
        };
        look(Varied::WakeUps, line(index), records.iter().map(order).collect());
        let outcomes = records.iter().map(|record| outcome(record, index)).collect();
        look(Varied::Outcome, line(index), outcomes);
    }
    varied
}

fn victims(record: &Record) -> Vec<&Name> {
    record.deadlocks.iter().map(|deadlock| &deadlock.victim).collect()
}

/// Each with how often, the most frequent first.
fn counted(seen: Vec<String>) -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for seen in seen {
        match counts.iter_mut().find(|(known, _)| *known == seen) {
            Some((_, times)) => *times += 1,
            None => counts.push((seen, 1)),
        }
    }
    counts.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, dirty_read, place, readers};
    use std::time::Duration;

    fn report(records: Vec<Record>) -> Report {
        Report { records, missing: vec![], ..Report::default() }
    }

    #[test]
    fn the_order_of_wake_ups_and_the_victims_are_told_when_they_vary() {
        let mut records: Vec<Record> =
            (1..=5).map(|round| readers(place(Engine::Memory), round)).collect();
        for (round, victim) in ["A", "A", "B"].into_iter().enumerate() {
            let record = cycle(Engine::Mysql, victim);
            records.push(Record { round: round as u32 + 1, ..record });
        }
        insta::assert_snapshot!(Stability::of(&report(records)).text());
    }

    #[test]
    fn times_alone_do_not_make_a_case_unstable() {
        let mut again = dirty_read(Engine::Mysql, "serializable");
        again.round = 2;
        again.steps[3].ended.as_mut().unwrap().at += Duration::from_millis(3);
        let stability =
            Stability::of(&report(vec![dirty_read(Engine::Mysql, "serializable"), again]));
        assert_eq!(stability.repeated, 1);
        assert_eq!(stability.unstable, []);
    }

    #[test]
    fn what_ran_once_says_nothing() {
        assert_eq!(Stability::of(&report(vec![cycle(Engine::Mysql, "A")])).text(), "");
    }
}
