//! The swim lanes of a run, one for every session, with a row for every event. The template draws them.

use super::outcome_class;
use crate::observation::{Observation, SessionName};
use crate::record::{Record, StepRecord};
use crate::report::display::{duration, locked_object, one_line, wrap};
use crate::report::grouping::sessions;
use crate::report::transcript::{Outcome, WakeUp, is_look, wake_ups};
use crate::text::{join, listed};

// Sizes in pixels. Ten characters of the 12-pixel monospaced font are 74 wide; ten, so that the number is whole.
const TEN_CHARACTERS: usize = 74;
const LINE_HEIGHT: usize = 16;
const PADDING: usize = 7;
const MARGIN: usize = 7;
const GAP: usize = 10;
/// The space left of the lanes, for the line numbers.
const GUTTER: usize = 38;
/// The space above the first box, for the names of the lanes.
const HEADER: usize = 40;

/// The limits of texts, in lines.
const MAX_STATEMENT_LINES: usize = 5;
const MAX_DIFFERENCE_LINES: usize = 4;
const MAX_ANSWER_LINES: usize = 3;
const MAX_DETAIL_LINES: usize = 2;

#[derive(Default)]
pub(super) struct Timeline<'a> {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) lanes: Vec<&'a SessionName>,
    pub(super) lane_width: usize,
    pub(super) boxes: Vec<EventBox>,
    pub(super) bars: Vec<WaitBar>,
    /// The path and class of the arrow of every wake-up.
    pub(super) arrows: Vec<(String, &'static str)>,
    pub(super) texts: Vec<Text>,
    /// The waits that have not ended: the index of the step, its lane, and the upper end of its bar.
    waits: Vec<(usize, usize, usize)>,
    /// The number of characters that fit into a line of a box.
    columns: usize,
}

/// The class of a line of text, and the text.
type BoxLine = (&'static str, String);

/// A box with text: a step, or the end of a wait.
#[derive(Default)]
pub(super) struct EventBox {
    pub(super) class: String,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    /// The whole text, if it is cut off.
    pub(super) full: Option<String>,
    pub(super) lines: Vec<BoxLine>,
    pub(super) tick: bool,
    pub(super) line: Option<usize>,
    pub(super) lane: usize,
}

pub(super) struct WaitBar {
    pub(super) lane: usize,
    pub(super) top: usize,
    pub(super) bottom: usize,
    pub(super) is_over: bool,
}

pub(super) struct Text {
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) text: String,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(record: &'a Record) -> Self {
        let lanes = sessions(record);
        let lane_width = match lanes.len() {
            0..=2 => 372,
            3 => 270,
            _ => 236,
        };
        let mut timeline = Timeline {
            width: GUTTER + lanes.len().max(1) * lane_width,
            height: HEADER,
            lanes,
            lane_width,
            columns: (lane_width - 2 * MARGIN - 2 * PADDING - 6) * 10 / TEN_CHARACTERS,
            ..Timeline::default()
        };
        for (index, step) in record.steps.iter().enumerate() {
            let lane = timeline.lanes.iter().position(|name| **name == step.session).unwrap_or(0);
            let cause = timeline.boxes.len();
            timeline.step(index, step, lane);
            for wake_up in wake_ups(record, index) {
                timeline.wake_up(&wake_up, cause);
            }
        }
        for (_, lane, top) in &timeline.waits {
            let (lane, top, bottom) = (*lane, *top, timeline.height);
            timeline.bars.push(WaitBar { lane, top, bottom, is_over: false });
        }
        timeline
    }

    pub(super) fn lane_x(&self, lane: usize) -> usize {
        GUTTER + lane * self.lane_width
    }

    pub(super) fn name_width(&self, name: &SessionName) -> usize {
        (name.as_str().len() * TEN_CHARACTERS / 10 + 16).max(24)
    }

    fn step(&mut self, index: usize, step: &StepRecord, lane: usize) {
        let look = is_look(step);
        let tick = !look && is_done(&step.seen);
        let mut full = None;
        let mut lines = Vec::new();
        if !look {
            let statement = one_line(&step.text);
            let columns = self.columns - if tick { 2 } else { 0 };
            let (shown, is_cut) = clip(&statement, columns, MAX_STATEMENT_LINES);
            full = is_cut.then_some(statement);
            lines.extend(shown.into_iter().map(|line| ("q", line)));
        }
        if look || !(tick || matches!(step.seen, Observation::Blocked(_))) {
            lines.extend(self.answer(&step.seen, if look { "<" } else { "→" }));
        }
        if let Some(difference) = &step.difference {
            let text = format!("✗ {}", one_line(difference));
            let (shown, is_cut) = clip(&text, self.columns, MAX_DIFFERENCE_LINES);
            full = full.or(is_cut.then_some(text));
            lines.extend(shown.into_iter().map(|line| ("no", line)));
        }
        let mut class = outcome_class(&step.seen).to_owned();
        class += if look { " look" } else { "" };
        class += if step.difference.is_some() { " differs" } else { "" };
        let event = self.event_box(lane, class, lines);
        (event.full, event.tick, event.line) = (full, tick, Some(step.line));
        let bottom = event.y + event.height;
        if let (Observation::Blocked(wait), false) = (&step.seen, look) {
            let mut text = match (wait.blockers.is_empty(), wait.has_outside_blocker) {
                (false, _) => format!("waits for {}", listed(&wait.blockers, "and")),
                (true, true) => "waits for a stranger".to_owned(),
                (true, false) => "waits".to_owned(),
            };
            if let Some(ended) = &step.ended {
                text += &format!(", {}", duration(ended.at.saturating_sub(step.began)));
            }
            let x = self.lane_x(lane) + MARGIN + 26;
            self.height += 6;
            self.texts.push(Text { class: "w", x, y: self.height, text });
            if let Some(object) = &wait.target {
                for text in clip(&locked_object(object), self.columns - 3, MAX_DETAIL_LINES).0 {
                    self.height += LINE_HEIGHT - 1;
                    self.texts.push(Text { class: "t", x, y: self.height, text });
                }
            }
            self.height += GAP;
            self.waits.push((index, lane, bottom));
        }
    }

    /// Adds the end of a wait, with an arrow from the box of the step that ended it.
    fn wake_up(&mut self, wake_up: &WakeUp<'_>, cause: usize) {
        let WakeUp { index, ended, waited, .. } = wake_up;
        let seen = &ended.observation;
        let Some(at) = self.waits.iter().position(|(step, ..)| step == index) else { return };
        let (_, lane, top) = self.waits.remove(at);
        let verb = match seen {
            Observation::Done(_) => "continues",
            _ if seen.is_deadlock() => "victim,",
            _ => "ends",
        };
        let mut lines = vec![("e", format!("{verb} after {}", duration(*waited)))];
        let tick = is_done(seen);
        if !tick {
            lines.extend(self.answer(seen, "→"));
        }
        let end = self.boxes.len();
        self.event_box(lane, format!("end {}", outcome_class(seen)), lines).tick = tick;
        let (to, from) = (&self.boxes[end], &self.boxes[cause]);
        self.bars.push(WaitBar { lane, top, bottom: to.y, is_over: true });
        if from.lane != lane {
            let (middle, bottom) = (to.y + to.height / 2, from.y + from.height);
            let (x, turn, end) = if lane > from.lane {
                let x = from.x + from.width - 18;
                (x, x + 8, to.x - 2)
            } else {
                let x = from.x + 52;
                (x, x - 8, to.x + to.width + 2)
            };
            let above = middle.saturating_sub(8);
            let path = format!("M{x} {bottom}V{above}Q{x} {middle} {turn} {middle}H{end}");
            let class = if matches!(seen, Observation::Done(_)) { "wake" } else { "wake bad" };
            self.arrows.push((path, class));
        }
    }

    fn answer(&self, seen: &Observation, sign: &str) -> Vec<BoxLine> {
        let Outcome { headline, rows, message } = Outcome::new(seen);
        let rows = join(rows.iter().map(|row| row.trim_start_matches("| ")), ", ");
        let text = format!("{sign} {headline}{rows}");
        let mut lines = clip(&text, self.columns, MAX_ANSWER_LINES).0;
        if !message.is_empty() {
            lines.extend(clip(&message, self.columns, MAX_DETAIL_LINES).0);
        }
        lines.into_iter().map(|line| (outcome_class(seen), line)).collect()
    }

    /// Adds a box to a lane, below everything so far.
    fn event_box(&mut self, lane: usize, class: String, lines: Vec<BoxLine>) -> &mut EventBox {
        let (x, y) = (self.lane_x(lane) + MARGIN, self.height);
        let width = self.lane_width - 2 * MARGIN;
        let height = lines.len().max(1) * LINE_HEIGHT + 2 * PADDING - 3;
        self.height += height + GAP;
        let event = EventBox { lane, class, x, y, width, height, lines, ..EventBox::default() };
        self.boxes.push_mut(event)
    }
}

/// Returns whether a step has no result to show: a tick is enough.
fn is_done(seen: &Observation) -> bool {
    matches!(seen, Observation::Done(answer) if answer.rows.is_none() && answer.changed == 0)
}

/// Splits a text into at most `max` lines, the last with an ellipsis if the text is cut off. Returns whether it is.
fn clip(text: &str, columns: usize, max: usize) -> (Vec<String>, bool) {
    let mut lines = wrap(text, columns);
    let is_cut = lines.len() > max;
    lines.truncate(max);
    if let (true, Some(last)) = (is_cut, lines.last_mut()) {
        last.pop();
        last.push('…');
    }
    (lines, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, injection, place, readers, ring};

    #[test]
    fn boxes_of_a_lane_do_not_overlap_and_stay_inside() {
        let runs =
            [cycle(Engine::Mysql, "A"), ring(), readers(place(Engine::File), 1), injection()];
        for record in &runs {
            let timeline = Timeline::new(record);
            let mut bottom = 0;
            for event in &timeline.boxes {
                assert!(event.y >= bottom, "{}", record.scenario);
                bottom = event.y + event.height;
                assert!(event.x + event.width <= timeline.width);
            }
            assert!(bottom <= timeline.height);
        }
    }

    #[test]
    fn every_wait_has_a_bar_and_every_wake_up_by_another_session_an_arrow() {
        let record = ring();
        let timeline = Timeline::new(&record);
        assert_eq!(timeline.bars.len(), 2);
        assert_eq!(timeline.arrows.len(), 2);
        let waits = timeline.texts.iter().filter(|text| text.class == "w");
        let waits: Vec<&str> = waits.map(|text| &*text.text).collect();
        assert_eq!(waits, ["waits for B, 6.8 ms", "waits for C, 2.7 ms"]);
    }
}
