//! The swim lanes of a run: a grid with a column for every session and a row for every event. The browser lays it out.

use super::outcome_class;
use crate::observation::{Observation, SessionName};
use crate::record::{Record, StepRecord};
use crate::report::display::{blockers, duration, locked_object, one_line};
use crate::report::grouping::sessions;
use crate::report::transcript::{Outcome, WakeUp, is_look, wake_ups};
use crate::text::join;
use std::ops::Range;

#[derive(Default)]
pub(super) struct Timeline<'a> {
    pub(super) lanes: Vec<&'a SessionName>,
    /// The events, each in a row of its own.
    pub(super) boxes: Vec<EventBox>,
    pub(super) bars: Vec<WaitBar>,
    pub(super) arrows: Vec<WakeArrow>,
}

/// A paragraph of a box: its class and its text.
type BoxText = (&'static str, String);

/// A box with text: a step, the wait of a step, or the end of a wait.
pub(super) struct EventBox {
    pub(super) class: String,
    pub(super) lane: usize,
    /// The line of the step.
    pub(super) line: Option<usize>,
    pub(super) tick: bool,
    pub(super) texts: Vec<BoxText>,
}

pub(super) struct WaitBar {
    /// The index of the step that waits.
    step: usize,
    pub(super) lane: usize,
    /// The row of the box that describes the wait, and that of its end; `None` if the wait has not ended.
    pub(super) begin: usize,
    pub(super) end: Option<usize>,
}

/// An arrow from a step to the wait that it ended, in another lane.
pub(super) struct WakeArrow {
    pub(super) class: String,
    /// The rows below the step, to that of the end of the wait.
    pub(super) rows: Range<usize>,
    /// The lanes, from that of the step, without that of the wait.
    pub(super) lanes: Range<usize>,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(record: &'a Record) -> Self {
        let mut timeline = Timeline { lanes: sessions(record), ..Timeline::default() };
        for (index, step) in record.steps.iter().enumerate() {
            let cause = timeline.boxes.len();
            timeline.step(index, step);
            for wake_up in wake_ups(record, index) {
                timeline.wake_up(&wake_up, cause);
            }
        }
        timeline
    }

    fn step(&mut self, index: usize, step: &StepRecord) {
        let lane = self.lanes.iter().position(|name| **name == step.session).unwrap_or(0);
        let look = is_look(step);
        let tick = !look && is_done(&step.seen);
        let wait = match &step.seen {
            Observation::Blocked(wait) if !look => Some(wait),
            _ => None,
        };
        let mut texts = Vec::new();
        if !look {
            texts.push(("q", one_line(&step.text)));
        }
        if !tick && wait.is_none() {
            texts.extend(answer(&step.seen, if look { "<" } else { "→" }));
        }
        if let Some(difference) = &step.difference {
            texts.push(("no", format!("✗ {}", one_line(difference))));
        }
        let mut class = outcome_class(&step.seen).to_owned();
        class += if look { " look" } else { "" };
        class += if step.difference.is_some() { " differs" } else { "" };
        self.boxes.push(EventBox { class, lane, line: Some(step.line), tick, texts });
        let Some(wait) = wait else { return };
        let blockers = blockers(wait).map(|blockers| format!(" for {blockers}"));
        let mut text = format!("waits{}", blockers.unwrap_or_default());
        if let Some(ended) = &step.ended {
            text += &format!(", {}", duration(ended.at.saturating_sub(step.began)));
        }
        let object = wait.target.as_ref().map(|object| ("t", locked_object(object)));
        let texts = [("w", text)].into_iter().chain(object).collect();
        self.bars.push(WaitBar { step: index, lane, begin: self.boxes.len(), end: None });
        self.boxes.push(EventBox { class: "wait".into(), lane, line: None, tick: false, texts });
    }

    /// Adds the end of a wait, with an arrow from the box of the step that ended it.
    fn wake_up(&mut self, wake_up: &WakeUp<'_>, cause: usize) {
        let WakeUp { index, ended, waited, .. } = wake_up;
        let (seen, row) = (&ended.observation, self.boxes.len());
        let Some(bar) = self.bars.iter_mut().find(|bar| bar.step == *index) else { return };
        bar.end = Some(row);
        let (lane, tick) = (bar.lane, is_done(seen));
        let verb = match seen {
            Observation::Done(_) => "continues",
            _ if seen.is_deadlock() => "victim,",
            _ => "ends",
        };
        let mut texts = vec![("e", format!("{verb} after {}", duration(*waited)))];
        if !tick {
            texts.extend(answer(seen, "→"));
        }
        let class = format!("end {}", outcome_class(seen));
        self.boxes.push(EventBox { class, lane, line: None, tick, texts });
        let from = self.boxes[cause].lane;
        if from != lane {
            let is_back = lane < from;
            let lanes = if is_back { lane + 1..from + 1 } else { from..lane };
            let mut class = "wake".to_owned();
            class += if is_back { " back" } else { "" };
            class += if matches!(seen, Observation::Done(_)) { "" } else { " bad" };
            self.arrows.push(WakeArrow { class, rows: cause + 1..row + 1, lanes });
        }
    }
}

fn answer(seen: &Observation, sign: &str) -> Vec<BoxText> {
    let Outcome { headline, rows, message } = Outcome::new(seen);
    let rows = join(rows.iter().map(|row| row.trim_start_matches("| ")), ", ");
    let mut texts = vec![(outcome_class(seen), format!("{sign} {headline}{rows}"))];
    if !message.is_empty() {
        texts.push((outcome_class(seen), message));
    }
    texts
}

/// Returns whether a step has no result to show: a tick is enough.
fn is_done(seen: &Observation) -> bool {
    matches!(seen, Observation::Done(answer) if answer.rows.is_none() && answer.changed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::ring;

    #[test]
    fn every_wait_has_a_bar_and_every_wake_up_by_another_session_an_arrow() {
        let record = ring();
        let timeline = Timeline::new(&record);
        assert_eq!(timeline.bars.len(), 2);
        assert_eq!(timeline.arrows.len(), 2);
        let texts = timeline.boxes.iter().flat_map(|event| &event.texts);
        let waits: Vec<&str> =
            texts.filter(|(class, _)| *class == "w").map(|(_, text)| &**text).collect();
        assert_eq!(waits, ["waits for B, 6.8 ms", "waits for C, 2.7 ms"]);
    }
}
