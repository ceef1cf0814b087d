//! A run as it would have looked in terminals: each step, what was seen of it, and whom it let go. Only the
//! words are made here; text and page lay them out.

use super::words;
use crate::observation::{Name, Observation};
use crate::record::{Ended, Record, StepRecord};
use std::time::Duration;

/// Rows beyond these are only counted: a transcript is to be read.
const MOST_ROWS: usize = 20;

/// A line of the transcript.
pub(crate) struct Entry<'a> {
    pub(crate) index: usize,
    pub(crate) step: &'a StepRecord,
    /// What was first seen of it.
    pub(crate) seen: Seen,
    /// Those that went on, or failed, because of it or while it ran, in the order in which they did.
    pub(crate) let_go: Vec<LetGo<'a>>,
}

/// The end of a wait, told where it happened.
pub(crate) struct LetGo<'a> {
    /// The index of the step that had waited.
    pub(crate) step: usize,
    pub(crate) session: &'a Name,
    pub(crate) waited: Duration,
    pub(crate) seen: Seen,
}

/// An observation in words.
pub(crate) struct Seen {
    /// Of what sort, for colours: `done`, `blocked`, `deadlock`, `failed`, `stuck`.
    pub(crate) sort: Sort,
    /// `blocked by A on row 1 of numbers (PRIMARY), X`; nothing for rows, which speak for themselves.
    pub(crate) headline: Option<String>,
    /// `| 1 | 30`, a row each.
    pub(crate) rows: Vec<String>,
    /// What the engine said.
    pub(crate) said: Option<String>,
}

/// What an observation means for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Done,
    Blocked,
    Deadlock,
    Failed,
    Stuck,
}

impl Sort {
    pub(crate) fn of(seen: &Observation) -> Self {
        match seen {
            Observation::Done(_) => Sort::Done,
            Observation::Blocked(_) => Sort::Blocked,
            Observation::Failed(_) if seen.is_deadlock() => Sort::Deadlock,
            Observation::Failed(_) => Sort::Failed,
            Observation::Stuck => Sort::Stuck,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Sort::Done => "done",
            Sort::Blocked => "blocked",
            Sort::Deadlock => "deadlock",
            Sort::Failed => "failed",
            Sort::Stuck => "stuck",
        }
    }
}

impl Seen {
    pub(crate) fn of(observation: &Observation) -> Self {
        let mut seen = Seen {
            sort: Sort::of(observation),
            headline: Some(words::observation(observation)),
            rows: Vec::new(),
            said: None,
        };
        match observation {
            Observation::Done(answer) => {
                if let Some(rows) = answer.rows.as_ref().filter(|rows| !rows.is_empty()) {
                    seen.headline = None;
                    seen.rows = rows.iter().take(MOST_ROWS).map(|row| words::row(row)).collect();
                    if rows.len() > MOST_ROWS {
                        seen.rows.push(format!("… and {} more", rows.len() - MOST_ROWS));
                    }
                }
            }
            Observation::Failed(failure) => {
                seen.said = Some(words::said(failure)).filter(|said| !said.is_empty());
            }
            Observation::Blocked(_) | Observation::Stuck => {}
        }
        seen
    }
}

/// The whole of a run.
pub(crate) fn transcript(record: &Record) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = record
        .steps
        .iter()
        .enumerate()
        .map(|(index, step)| Entry { index, step, seen: Seen::of(&step.seen), let_go: Vec::new() })
        .collect();
    let mut ends: Vec<(usize, &StepRecord, &Ended)> = record
        .steps
        .iter()
        .enumerate()
        .filter_map(|(index, step)| Some((index, step, step.ended.as_ref()?)))
        .collect();
    ends.sort_by_key(|(_, _, ended)| ended.at);
    for (index, step, ended) in ends {
        if let Some(entry) = entries.get_mut(ended.during) {
            entry.let_go.push(LetGo {
                step: index,
                session: &step.session,
                waited: ended.at.saturating_sub(step.began),
                seen: Seen::of(&ended.observation),
            });
        }
    }
    entries
}
