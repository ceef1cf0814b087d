//! A run as the page shows it. Runs of one scenario that are equal but for their times are shown once.

use super::locks::LockGrid;
use crate::engine::BackendKind;
use crate::group::{distinct, group_by};
use crate::observation::{Observation, SessionName};
use crate::record::{Deadlock, Record, StepRecord};
use crate::report::display::{self, duration};
use crate::report::explain;
use crate::report::grouping::{IndexedRecord, Rounds, by_case, sessions};
use crate::report::transcript::{Outcome, is_look, wake_ups};
use crate::report::wait_graph::{SESSION_COLOURS, WaitGraphPicture};
use crate::text::join;

/// One run, or several equal ones.
pub(super) struct Run<'a> {
    pub(super) id: String,
    /// The first of the runs, which is shown.
    pub(super) record: &'a Record,
    /// The backends of the runs; with `read committed, serializable` or `rounds 1, 3 of 5` if there were several cases.
    pub(super) backends: Vec<(BackendKind, String)>,
    records: Rounds<'a>,
}

/// Returns everything that the page shows of a run, except backends and times.
pub(super) fn comparable(record: &Record) -> String {
    let mut text = format!("{:?} {:?} {:?}\n", record.verdict, record.anomaly, record.notes);
    for (index, step) in record.steps.iter().enumerate() {
        text += &format!("{} {:?} {:?}\n", step.line, step.text, step.difference);
        text += &format!("{} {:?}\n", step.session, Outcome::new(&step.seen));
        for wake_up in wake_ups(record, index) {
            let outcome = Outcome::new(&wake_up.ended.observation);
            text += &format!("{} {outcome:?}\n", wake_up.index);
        }
    }
    let cycles = record.cycles.iter().map(|cycle| explain::cycle(record, cycle));
    let deadlocks = record.deadlocks.iter().map(|deadlock| explain::deadlock(record, deadlock));
    for sentences in cycles.chain(deadlocks) {
        text += &format!("{sentences:?}\n");
    }
    without_transaction_ids(&text)
}

/// Removes transaction ids, which differ between runs.
fn without_transaction_ids(text: &str) -> String {
    const BEFORE: &str = "transaction ";
    let parts = text.split(BEFORE).enumerate().map(|(i, part)| match i {
        0 => part,
        _ => part.trim_start_matches(|c: char| c.is_ascii_digit()),
    });
    parts.collect::<Vec<_>>().join(BEFORE)
}

/// Returns the backends of equal runs, of `all` runs of the scenario.
fn backends(records: &Rounds<'_>, all: &[IndexedRecord<'_>]) -> Vec<(BackendKind, String)> {
    let cases = by_case(records.iter().copied()).into_iter().map(|rounds| {
        let record = rounds[0].1;
        let case = |other: &Record| (other.backend, other.variant.clone());
        let total = all.iter().filter(|(_, other)| case(other) == case(record)).count();
        let rounds = match (total, rounds.len()) {
            (1, _) => String::new(),
            (total, equal) if equal == total => format!("{total} rounds"),
            (total, _) => {
                let numbers = join(rounds.iter().map(|(_, record)| record.round), ", ");
                format!("rounds {numbers} of {total}")
            }
        };
        (record.backend, display::list([display::variant(record), rounds]))
    });
    let backends = group_by(cases, |(backend, _)| *backend).into_iter().map(|(backend, cases)| {
        let cases: Vec<String> = cases.into_iter().map(|(_, case)| case).collect();
        // Variants of several axes contain commas.
        let has_comma = cases.iter().any(|case| case.contains(','));
        (backend, cases.join(if has_comma { "; " } else { ", " }))
    });
    backends.collect()
}

/// Returns `mysql striped, read committed`.
pub(super) fn case_name(record: &Record) -> String {
    display::list([record.backend.to_string(), display::variant(record)])
}

impl<'a> Run<'a> {
    pub(super) fn new(id: String, records: Rounds<'a>, all: &[IndexedRecord<'a>]) -> Self {
        Run { id, record: records[0].1, backends: backends(&records, all), records }
    }

    pub(super) fn engines(&self) -> String {
        distinct(self.records.iter().map(|(_, record)| record.backend.engine.name())).join(" ")
    }

    pub(super) fn servers(&self) -> String {
        distinct(self.records.iter().map(|(_, record)| record.server.as_str())).join(", ")
    }

    /// Returns `12 ms`, or the range from the shortest to the longest.
    pub(super) fn took(&self) -> String {
        let mut times: Vec<_> = self.records.iter().map(|(_, record)| record.took).collect();
        times.sort();
        let (least, most) = (duration(times[0]), duration(times[times.len() - 1]));
        if least == most { most } else { format!("{least} to {most}") }
    }

    pub(super) fn times_of(&self) -> Option<String> {
        (self.records.len() > 1).then(|| case_name(self.record))
    }

    pub(super) fn waits(&self) -> usize {
        let is_wait = |step: &&StepRecord| matches!(step.seen, Observation::Blocked(_));
        self.record.steps.iter().filter(is_wait).filter(|step| !is_look(step)).count()
    }

    pub(super) fn colour(&self, session: &SessionName) -> usize {
        let names = sessions(self.record);
        names.iter().position(|name| *name == session).unwrap_or(0) % SESSION_COLOURS
    }

    pub(super) fn graph(&self, deadlock: &Deadlock) -> Option<WaitGraphPicture> {
        WaitGraphPicture::new(&deadlock.cycle, Some(&deadlock.victim), &sessions(self.record))
    }

    /// Returns the lock tables of the first rounds, each with the cases that share it: locks differ between backends.
    pub(super) fn locks(&self) -> Vec<(String, LockGrid<'a>)> {
        let cases = by_case(self.records.iter().copied()).into_iter().map(|rounds| rounds[0].1);
        let tables = cases.filter_map(|record| Some((case_name(record), LockGrid::new(record)?)));
        let groups = group_by(tables, |(_, table)| table.clone()).into_iter();
        let names = |cases: Vec<(String, _)>| cases.into_iter().map(|(name, _)| name);
        groups.map(|(table, cases)| (join(names(cases), "; "), table)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_ids_are_ignored_in_comparisons() {
        let plain =
            without_transaction_ids("blocked on transaction 1623, ShareLock; transaction 9");
        assert_eq!(plain, "blocked on transaction , ShareLock; transaction ");
    }
}
