//! A run as the page shows it.

use super::graph::Graph;
use super::timeline::Timeline;
use super::verdict;
use crate::observation::Observation;
use crate::record::{Record, Verdict};
use crate::report::grouping::{Rounds, sessions, variant};
use crate::report::locks::{Ledger, Stand};
use crate::report::transcript::{Seen, Sort, transcript};
use crate::report::{explain, words};

/// One run, or several rounds that went the same way.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) class: &'static str,
    pub(super) sign: &'static str,
    pub(super) word: &'static str,
    pub(super) engine: &'static str,
    pub(super) place: String,
    pub(super) variant: String,
    pub(super) took: String,
    pub(super) server: String,
    pub(super) at: String,
    /// What makes it remarkable: class and words.
    pub(super) tags: Vec<(&'static str, String)>,
    pub(super) differs: Option<Differs>,
    pub(super) timeline: Timeline,
    pub(super) lines: Vec<Line>,
    pub(super) deadlocks: Vec<Knot>,
    pub(super) locks: Option<Locks>,
}

/// Why it does not agree.
pub(super) struct Differs {
    pub(super) why: String,
    /// Where it is a step that differs: what was expected, and what was seen.
    pub(super) step: Option<(String, String)>,
}

/// A line of the transcript.
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) nth: usize,
    /// `A>`, or `A<` where it only looks.
    pub(super) prompt: String,
    pub(super) text: String,
    pub(super) differs: bool,
    pub(super) seen: Vec<Saw>,
}

/// What is below a line: class and words.
pub(super) struct Saw {
    pub(super) class: &'static str,
    pub(super) text: String,
}

/// A deadlock.
pub(super) struct Knot {
    pub(super) graph: Option<Graph>,
    pub(super) told: Vec<String>,
}

/// Who had which lock after which step.
pub(super) struct Locks {
    /// The lines of the steps.
    pub(super) steps: Vec<usize>,
    pub(super) rows: Vec<LockRow>,
}

pub(super) struct LockRow {
    pub(super) session: String,
    pub(super) nth: usize,
    pub(super) thing: String,
    /// The line that took it.
    pub(super) taken: Option<usize>,
    /// Class and sign under each step.
    pub(super) stands: Vec<(&'static str, &'static str)>,
}

impl Run {
    /// `same` are rounds that went the same way, of `all` that there were; the first is shown.
    pub(super) fn of(id: String, same: &Rounds<'_>, all: usize) -> Self {
        let record = same[0].1;
        let (class, sign, word) = verdict(record);
        let at = match &record.verdict {
            Verdict::Disagrees { step, .. } => record.steps.get(*step),
            _ => None,
        };
        let names = sessions(record);
        let deadlocks = record.deadlocks.iter().map(|deadlock| Knot {
            graph: Graph::of(deadlock, &names),
            told: explain::deadlock(record, deadlock),
        });
        Run {
            id,
            class,
            sign,
            word,
            engine: record.place.engine.name(),
            place: record.place.to_string(),
            variant: variant(record),
            took: words::duration(record.took),
            server: record.server.clone(),
            at: match at {
                Some(step) => format!("{}:{}", record.file, step.line),
                None => record.file.clone(),
            },
            tags: tags(record, same, all),
            differs: differs(record),
            timeline: Timeline::of(record),
            lines: lines(record),
            deadlocks: deadlocks.collect(),
            locks: locks(record),
        }
    }
}

fn tags(record: &Record, same: &Rounds<'_>, all: usize) -> Vec<(&'static str, String)> {
    let mut tags = Vec::new();
    let waits = record
        .steps
        .iter()
        .filter(|step| matches!(step.seen, Observation::Blocked(_)) && !step.text.is_empty());
    match waits.count() {
        0 => {}
        waits => tags.push(("wait", words::count(waits, "wait"))),
    }
    for deadlock in &record.deadlocks {
        tags.push(("dead", format!("deadlock, victim {}", deadlock.victim)));
    }
    match record.anomaly {
        Some(true) => tags.push(("shows", "anomaly shows".to_owned())),
        Some(false) => tags.push(("kept", "prevented".to_owned())),
        None => {}
    }
    if all > 1 {
        let rounds: Vec<String> = same.iter().map(|(_, record)| record.round.to_string()).collect();
        tags.push((
            "round",
            match same.len() == all {
                true => format!("{all} rounds alike"),
                false => {
                    format!("{} of {all}: {}", words::count(same.len(), "round"), rounds.join(", "))
                }
            },
        ));
    }
    tags
}

fn differs(record: &Record) -> Option<Differs> {
    match &record.verdict {
        Verdict::Agrees => None,
        Verdict::Failed { why } => Some(Differs { why: why.clone(), step: None }),
        Verdict::Disagrees { step, why } => {
            let step = record.steps.get(*step).map(|step| {
                let expected = match step.expected.trim() {
                    "" => "done".to_owned(),
                    expected => expected.to_owned(),
                };
                (expected, words::observation(&step.seen))
            });
            Some(Differs { why: why.clone(), step })
        }
    }
}

fn lines(record: &Record) -> Vec<Line> {
    let names = sessions(record);
    transcript(record)
        .into_iter()
        .map(|entry| {
            let step = entry.step;
            let mut seen = saw("", &entry.seen);
            for end in &entry.let_go {
                let goes = match end.seen.sort {
                    Sort::Done => "goes on",
                    _ => "is ended",
                };
                let after = words::duration(end.waited);
                seen.extend(saw(&format!("↳ {} {goes} after {after}", end.session), &end.seen));
            }
            Line {
                number: step.line,
                nth: names.iter().position(|name| *name == step.session).unwrap_or(0) % 6,
                prompt: format!("{}{}", step.session, if step.text.is_empty() { '<' } else { '>' }),
                text: words::tame(&step.text).trim_end().to_owned(),
                differs: step.difference.is_some(),
                seen,
            }
        })
        .collect()
}

/// What was seen, on lines of their own; `whose` where it is not the step above.
fn saw(whose: &str, seen: &Seen) -> Vec<Saw> {
    let class = match seen.sort {
        Sort::Done => "ok",
        Sort::Blocked => "w",
        Sort::Deadlock | Sort::Failed | Sort::Stuck => "no",
    };
    let headline = match (whose, &seen.headline) {
        ("", Some(headline)) => Some(format!("= {headline}")),
        ("", None) => None,
        (whose, Some(headline)) => Some(format!("{whose}: {headline}")),
        (whose, None) => Some(format!("{whose}:")),
    };
    let said = seen.said.iter().map(|said| format!("  {said}"));
    headline
        .into_iter()
        .chain(seen.rows.iter().cloned())
        .chain(said)
        .map(|text| Saw { class, text })
        .collect()
}

fn locks(record: &Record) -> Option<Locks> {
    let ledger = Ledger::of(record)?;
    let names = sessions(record);
    let line = |index: &usize| record.steps.get(*index).map_or(0, |step| step.line);
    let row = |held: &crate::report::locks::Line| LockRow {
        session: held.session.to_string(),
        nth: names.iter().position(|name| *name == held.session).unwrap_or(0) % 6,
        thing: words::one_line(&held.thing.to_string()),
        taken: held.taken_in.as_ref().map(line),
        stands: held
            .stands
            .iter()
            .map(|stand| match stand {
                Stand::Nothing => ("", ""),
                Stand::Wants => ("w", "○"),
                Stand::Holds => ("h", "●"),
            })
            .collect(),
    };
    Some(Locks {
        steps: ledger.steps.iter().map(line).collect(),
        rows: ledger.lines.iter().map(row).collect(),
    })
}
