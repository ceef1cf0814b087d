//! Runs of one scenario that went the same way, put together: the page tells a story once, with all the places
//! and variants where it happened. Times differ always and do not count.

use crate::record::Record;
use crate::report::explain;
use crate::report::grouping::{Rounds, variant};
use crate::report::transcript::{Seen, transcript};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Those together that went the same way, in the order of the first of each.
pub(super) fn alike<'a>(records: &[(usize, &'a Record)]) -> Vec<Rounds<'a>> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Rounds<'a>> = Vec::new();
    for (index, record) in records {
        let group = *known.entry(story(record)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push((*index, record));
    }
    groups
}

/// All that the page says of a run, but for where and how long.
fn story(record: &Record) -> String {
    let mut text = format!("{:?} {:?}\n", record.verdict, record.anomaly);
    let seen = |seen: &Seen| format!("{:?} {:?} {:?}\n", seen.headline, seen.rows, seen.said);
    for entry in transcript(record) {
        let step = entry.step;
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "{} {} {:?} {:?}", step.line, step.session, step.text, step.difference);
        text += &seen(&entry.seen);
        for end in &entry.let_go {
            let _ = writeln!(text, "{} {}", end.step, end.session);
            text += &seen(&end.seen);
        }
    }
    for circle in &record.circles {
        let _ = writeln!(text, "{:?}", explain::circle(record, circle));
    }
    for note in &record.notes {
        let _ = writeln!(text, "{note}");
    }
    for deadlock in &record.deadlocks {
        let _ = writeln!(text, "{:?}", explain::deadlock(record, deadlock));
    }
    without_transactions(&text)
}

/// The number of a transaction is new in every run.
fn without_transactions(text: &str) -> String {
    let mut parts = text.split("transaction ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += "transaction ";
        plain += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    plain
}

/// Where a story happened: a place, with the variants and rounds.
pub(super) struct Where {
    pub(super) place: String,
    /// `read committed, serializable`, `rounds 1, 3 of 5`; empty where there is only one.
    pub(super) cases: String,
}

/// The places of a group, `all` being everything that was run of the scenario.
pub(super) fn places(group: &Rounds<'_>, all: &[(usize, &Record)]) -> Vec<Where> {
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    let mut told: Vec<&Record> = Vec::new();
    for (_, record) in group {
        let same = |other: &Record| other.place == record.place && other.variant == record.variant;
        if told.iter().any(|other| same(other)) {
            continue;
        }
        told.push(record);
        let rounds = all.iter().filter(|(_, other)| same(other)).count();
        let here: Vec<String> = group
            .iter()
            .filter(|(_, other)| same(other))
            .map(|(_, other)| other.round.to_string())
            .collect();
        let mut case = variant(record);
        if rounds > 1 {
            let gap = if case.is_empty() { "" } else { ", " };
            case += &match here.len() == rounds {
                true => format!("{gap}{rounds} rounds"),
                false => format!("{gap}rounds {} of {rounds}", here.join(", ")),
            };
        }
        let place = record.place.to_string();
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, cases)) => cases.push(case),
            None => places.push((place, vec![case])),
        }
    }
    places
        .into_iter()
        .map(|(place, cases)| Where {
            place,
            // Values of several axes have commas of their own.
            cases: cases.join(if cases.iter().any(|case| case.contains(',')) {
                "; "
            } else {
                ", "
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_transaction_does_not_tell_runs_apart() {
        let plain = without_transactions("blocked on transaction 1623, ShareLock; transaction 9");
        assert_eq!(plain, "blocked on transaction , ShareLock; transaction ");
    }
}
