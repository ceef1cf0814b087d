//! A run as the page shows it.

use super::alike::{Where, places};
use super::graph::Graph;
use super::timeline::Timeline;
use super::verdict;
use crate::observation::Observation;
use crate::record::{Record, Verdict};
use crate::report::grouping::{Rounds, sessions, variant};
use crate::report::locks::{Ledger, Stand};
use crate::report::transcript::{Seen, Sort, transcript};
use crate::report::{explain, words};

/// One run, or several that went the same way.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) class: &'static str,
    pub(super) sign: &'static str,
    pub(super) word: &'static str,
    /// The names of all engines where it went this way.
    pub(super) engines: String,
    pub(super) places: Vec<Where>,
    pub(super) took: String,
    pub(super) servers: String,
    pub(super) at: String,
    /// Whose times are shown, where there are several.
    pub(super) times_of: Option<String>,
    /// What makes it remarkable: class and words.
    pub(super) tags: Vec<(&'static str, String)>,
    pub(super) differs: Option<Differs>,
    pub(super) timeline: Timeline,
    pub(super) lines: Vec<Line>,
    pub(super) deadlocks: Vec<Knot>,
    pub(super) circles: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
    /// Locks differ between places even where all else is the same: whose, and what.
    pub(super) locks: Vec<(String, Locks)>,
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
#[derive(PartialEq, Eq)]
pub(super) struct Locks {
    /// The lines of the steps.
    pub(super) steps: Vec<usize>,
    pub(super) rows: Vec<LockRow>,
}

#[derive(PartialEq, Eq)]
pub(super) struct LockRow {
    pub(super) session: String,
    pub(super) nth: usize,
    pub(super) thing: String,
    /// The line that took it.
    pub(super) taken: Option<usize>,
    /// It was, if not told by which line.
    pub(super) is_held: bool,
    /// Class and sign under each step.
    pub(super) stands: Vec<(&'static str, &'static str)>,
}

impl Run {
    /// `same` are runs that went the same way, of `all` that there were; the first is shown.
    pub(super) fn of(id: String, same: &Rounds<'_>, all: &[(usize, &Record)]) -> Self {
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
        let circles = record.circles.iter().map(|circle| explain::circle(record, circle));
        Run {
            id,
            class,
            sign,
            word,
            engines: each(same, |record| record.place.engine.to_string()).join(" "),
            places: places(same, all),
            took: took(same),
            servers: each(same, |record| record.server.clone()).join(", "),
            at: match at {
                Some(step) => format!("{}:{}", record.file, step.line),
                None => record.file.clone(),
            },
            times_of: (same.len() > 1).then(|| named(record)),
            tags: tags(record),
            differs: differs(record),
            timeline: Timeline::of(record),
            lines: lines(record),
            deadlocks: deadlocks.collect(),
            circles: circles.collect(),
            notes: record.notes.clone(),
            locks: all_locks(same),
        }
    }
}

/// What a record says, of each that says something new.
fn each(same: &Rounds<'_>, says: impl Fn(&Record) -> String) -> Vec<String> {
    let mut said = Vec::new();
    for (_, record) in same {
        let new = says(record);
        if !said.contains(&new) {
            said.push(new);
        }
    }
    said
}

/// `mysql striped, read committed`
fn named(record: &Record) -> String {
    match variant(record) {
        nothing if nothing.is_empty() => record.place.to_string(),
        variant => format!("{}, {variant}", record.place),
    }
}

/// `12 ms`, or from the shortest to the longest.
fn took(same: &Rounds<'_>) -> String {
    let times = || same.iter().map(|(_, record)| record.took);
    let (least, most) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    match (words::duration(least), words::duration(most)) {
        (least, most) if least == most => most,
        (least, most) => format!("{least} to {most}"),
    }
}

fn tags(record: &Record) -> Vec<(&'static str, String)> {
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
    for _ in &record.circles {
        tags.push(("dead", "a circle that stays".to_owned()));
    }
    match record.anomaly {
        Some(true) => tags.push(("shows", "anomaly shows".to_owned())),
        Some(false) => tags.push(("kept", "prevented".to_owned())),
        None => {}
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

/// The locks of all runs but later rounds, those together that are equal.
fn all_locks(same: &Rounds<'_>) -> Vec<(String, Locks)> {
    let mut told: Vec<String> = Vec::new();
    let mut all: Vec<(Vec<String>, Locks)> = Vec::new();
    for (_, record) in same {
        let name = named(record);
        if told.contains(&name) {
            continue;
        }
        told.push(name.clone());
        let Some(locks) = locks(record) else { continue };
        match all.iter_mut().find(|(_, known)| *known == locks) {
            Some((names, _)) => names.push(name),
            None => all.push((vec![name], locks)),
        }
    }
    all.into_iter().map(|(names, locks)| (names.join("; "), locks)).collect()
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
        is_held: held.stands.contains(&Stand::Holds),
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
