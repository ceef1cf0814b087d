//! The swim lanes of a run: a lane for every session, beside each other like terminals, and time going down,
//! one row for every event. Only places and words are computed here; the template draws them.

use crate::observation::Observation;
use crate::record::Record;
use crate::report::grouping::{run_name, sessions};
use crate::report::transcript::{Entry, Seen, Sort, transcript};
use crate::report::words;

// Pixels. A character of the 12-pixel monospaced font is a little over 7 wide; ten of them are told, to
// stay with whole numbers.
const TEN_CHARACTERS: usize = 74;
const LINE: usize = 16;
const PAD: usize = 7;
const GUTTER: usize = 38;
const HEAD: usize = 40;
const GAP: usize = 10;
const MARGIN: usize = 7;

/// Everything that is drawn.
pub(super) struct Timeline {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) label: String,
    pub(super) lanes: Vec<Lane>,
    pub(super) boxes: Vec<Shape>,
    pub(super) bars: Vec<Bar>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) texts: Vec<Words>,
}

pub(super) struct Lane {
    pub(super) name: String,
    pub(super) nth: usize,
    pub(super) x: usize,
    /// Of the pill with the name.
    pub(super) wide: usize,
}

/// A box with its words.
pub(super) struct Shape {
    pub(super) class: String,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) w: usize,
    pub(super) h: usize,
    /// The whole of what had to be cut.
    pub(super) full: Option<String>,
    pub(super) texts: Vec<Words>,
}

/// A wait.
pub(super) struct Bar {
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) h: usize,
}

/// A wake-up.
pub(super) struct Arrow {
    pub(super) class: &'static str,
    pub(super) path: String,
}

pub(super) struct Words {
    pub(super) class: &'static str,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) text: String,
}

/// A wait that has begun.
struct Waiting {
    step: usize,
    lane: usize,
    from: usize,
}

/// What is drawn so far.
struct Drawing {
    lane: usize,
    fits: usize,
    y: usize,
    timeline: Timeline,
    waiting: Vec<Waiting>,
}

impl Timeline {
    pub(super) fn of(record: &Record) -> Self {
        let names = sessions(record);
        let lane = match names.len() {
            0..=2 => 372,
            3 => 270,
            _ => 236,
        };
        let lanes: Vec<Lane> = names
            .iter()
            .enumerate()
            .map(|(nth, name)| Lane {
                name: name.to_string(),
                nth: nth % 6,
                x: GUTTER + nth * lane,
                wide: (name.as_str().len() * TEN_CHARACTERS / 10 + 16).max(24),
            })
            .collect();
        let timeline = Timeline {
            width: GUTTER + lanes.len().max(1) * lane,
            height: 0,
            label: label(record),
            lanes,
            boxes: Vec::new(),
            bars: Vec::new(),
            arrows: Vec::new(),
            texts: Vec::new(),
        };
        let fits = (lane - 2 * MARGIN - 2 * PAD - 6) * 10 / TEN_CHARACTERS;
        let mut drawing = Drawing { lane, fits, y: HEAD, timeline, waiting: Vec::new() };
        for entry in transcript(record) {
            let nth = names.iter().position(|name| *name == entry.step.session).unwrap_or(0);
            let from = drawing.step(&entry, nth);
            for end in &entry.let_go {
                drawing.end(end.step, &end.seen, &words::duration(end.waited), from);
            }
        }
        drawing.still_waiting();
        drawing.timeline.height = drawing.y;
        drawing.timeline
    }
}

/// Where a step's box ended up, for arrows that leave it.
#[derive(Clone, Copy)]
struct From {
    lane: usize,
    left: usize,
    right: usize,
    bottom: usize,
}

impl Drawing {
    /// The box of a step, and the beginning of its wait.
    fn step(&mut self, entry: &Entry<'_>, nth: usize) -> From {
        let Entry { step, seen, .. } = entry;
        let look = step.text.is_empty();
        let statement = words::one_line(&step.text);
        let mut full = None;
        let mut lines: Vec<(&'static str, String)> = Vec::new();
        let tick = !look && is_plain(seen);
        if !look {
            let fits = self.fits - if tick { 2 } else { 0 };
            let (shown, cut) = clip(words::wrap(&statement, fits), 5);
            full = cut.then_some(statement);
            lines.extend(shown.into_iter().map(|line| ("q", line)));
        }
        if look || !(tick || matches!(step.seen, Observation::Blocked(_))) {
            lines.extend(self.answer(seen, look));
        }
        if let Some(difference) = &step.difference {
            let text = format!("✗ {}", words::one_line(difference));
            let (shown, cut) = clip(words::wrap(&text, self.fits), 4);
            full = full.or(cut.then_some(text));
            lines.extend(shown.into_iter().map(|line| ("no", line)));
        }
        let class = format!(
            "b s{} {}{}{}",
            nth % 6,
            seen.sort.name(),
            if look { " look" } else { "" },
            if step.difference.is_some() { " differs" } else { "" }
        );
        let from = self.place(class, nth, lines, full);
        if tick {
            self.tick();
        }
        self.timeline.texts.push(Words {
            class: "n",
            x: GUTTER - 10,
            y: from.bottom - self.timeline.boxes.last().map_or(0, |shape| shape.h) + PAD + 11,
            text: step.line.to_string(),
        });
        if let (Observation::Blocked(wait), false) = (&step.seen, look) {
            let x = self.timeline.lanes[nth].x + MARGIN + 12;
            let waited = step.ended.as_ref().map(|ended| ended.at.saturating_sub(step.began));
            let who = match (wait.blockers.is_empty(), wait.strangers) {
                (false, _) => format!("waits for {}", words::names(&wait.blockers)),
                (true, true) => "waits for a stranger".to_owned(),
                (true, false) => "waits".to_owned(),
            };
            let waited =
                waited.map_or(String::new(), |waited| format!(", {}", words::duration(waited)));
            let mut y = self.y + 6;
            self.say("w", x + 14, y, who + &waited);
            if let Some(thing) = &wait.thing {
                let text = words::one_line(&thing.to_string());
                for line in clip(words::wrap(&text, self.fits - 3), 2).0 {
                    y += LINE - 1;
                    self.say("t", x + 14, y, line);
                }
            }
            self.waiting.push(Waiting { step: entry.index, lane: nth, from: from.bottom });
            self.y = y + GAP;
        }
        from
    }

    /// The end of a wait, in the lane of who waited, with an arrow from what let it go.
    fn end(&mut self, step: usize, seen: &Seen, waited: &str, from: From) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.step == step) else { return };
        let Waiting { lane: nth, from: top, .. } = self.waiting.remove(at);
        let head = match seen.sort {
            Sort::Done => format!("goes on after {waited}"),
            Sort::Deadlock => format!("victim, after {waited}"),
            _ => format!("ends after {waited}"),
        };
        let mut lines = vec![("e", head)];
        if !is_plain(seen) {
            lines.extend(self.answer(seen, false));
        }
        let class = format!("b s{} end {}", nth % 6, seen.sort.name());
        let to = self.place(class, nth, lines, None);
        if is_plain(seen) {
            self.tick();
        }
        let height = self.timeline.boxes.last().map_or(0, |shape| shape.h);
        let upper = to.bottom - height;
        self.bar("bar", nth, top, upper);
        if from.lane != nth {
            let middle = upper + height / 2;
            let right = nth > from.lane;
            let (x, edge) = match right {
                true => (from.right - 18, to.left - 2),
                false => (from.left + 52, to.right + 2),
            };
            let turn = if right { x + 8 } else { x - 8 };
            let path = format!(
                "M{x} {}V{}Q{x} {middle} {turn} {middle}H{edge}",
                from.bottom,
                middle.saturating_sub(8)
            );
            let class = if seen.sort == Sort::Done { "wake" } else { "wake bad" };
            self.timeline.arrows.push(Arrow { class, path });
        }
    }

    fn still_waiting(&mut self) {
        for Waiting { lane: nth, from, .. } in std::mem::take(&mut self.waiting) {
            self.bar("bar open", nth, from, self.y);
        }
    }

    fn bar(&mut self, class: &'static str, nth: usize, top: usize, bottom: usize) {
        let x = self.timeline.lanes[nth].x + MARGIN + 8;
        self.timeline.bars.push(Bar { class, x, y: top, h: bottom.saturating_sub(top) });
    }

    fn answer(&self, seen: &Seen, look: bool) -> Vec<(&'static str, String)> {
        let class = match seen.sort {
            Sort::Done => "ok",
            Sort::Blocked => "w",
            Sort::Deadlock | Sort::Failed | Sort::Stuck => "no",
        };
        let lead = if look { "< " } else { "→ " };
        let text = match &seen.headline {
            Some(headline) => format!("{lead}{headline}"),
            None => {
                let rows: Vec<&str> =
                    seen.rows.iter().map(|row| row.trim_start_matches("| ")).collect();
                format!("{lead}{}", rows.join(", "))
            }
        };
        let mut lines = clip(words::wrap(&text, self.fits), 3).0;
        if let Some(said) = &seen.said {
            lines.extend(clip(words::wrap(said, self.fits), 2).0);
        }
        lines.into_iter().map(|line| (class, line)).collect()
    }

    /// A box in a lane, below everything so far.
    fn place(
        &mut self,
        class: String,
        nth: usize,
        lines: Vec<(&'static str, String)>,
        full: Option<String>,
    ) -> From {
        let lane = self.timeline.lanes[nth].x;
        let (x, y, w) = (lane + MARGIN, self.y, self.lane - 2 * MARGIN);
        let h = lines.len().max(1) * LINE + 2 * PAD - 3;
        let texts = lines
            .into_iter()
            .enumerate()
            .map(|(i, (class, text))| Words {
                class,
                x: x + PAD + 4,
                y: y + PAD + 10 + i * LINE,
                text,
            })
            .collect();
        self.timeline.boxes.push(Shape { class, x, y, w, h, full, texts });
        self.y = y + h + GAP;
        From { lane: nth, left: x, right: x + w, bottom: y + h }
    }

    /// A tick in the last box.
    fn tick(&mut self) {
        if let Some(shape) = self.timeline.boxes.last_mut() {
            let (x, y) = (shape.x + shape.w - PAD - 4, shape.y + PAD + 10);
            shape.texts.push(Words { class: "tick", x, y, text: "✓".to_owned() });
        }
    }

    fn say(&mut self, class: &'static str, x: usize, y: usize, text: String) {
        self.timeline.texts.push(Words { class, x, y, text });
    }
}

/// That it was done is all that most statements have to say; a tick says it.
fn is_plain(seen: &Seen) -> bool {
    seen.sort == Sort::Done && seen.headline.as_deref() == Some("done")
}

/// At most so many lines, the last with an ellipsis if some were cut.
fn clip(mut lines: Vec<String>, most: usize) -> (Vec<String>, bool) {
    let cut = lines.len() > most;
    lines.truncate(most);
    if let (true, Some(last)) = (cut, lines.last_mut()) {
        last.pop();
        last.push('…');
    }
    (lines, cut)
}

/// What a reader who cannot see the lanes is told of them.
fn label(record: &Record) -> String {
    let waits = record.steps.iter().filter(|step| matches!(step.seen, Observation::Blocked(_)));
    let mut text = format!(
        "Timeline of {}: {} by {}, {}",
        run_name(record),
        words::count(record.steps.len(), "step"),
        words::names(&sessions(record)),
        words::count(waits.count(), "wait")
    );
    for deadlock in &record.deadlocks {
        text += &format!(", a deadlock that {} was chosen to end", deadlock.victim);
    }
    text + ". The transcript says the same in words."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, hostile, place, readers, ring};

    #[test]
    fn boxes_of_a_lane_never_overlap_and_stay_inside() {
        let runs = [cycle(Engine::Mysql, "A"), ring(), readers(place(Engine::File), 1), hostile()];
        for record in &runs {
            let timeline = Timeline::of(record);
            let mut below = 0;
            for shape in &timeline.boxes {
                assert!(shape.y >= below, "{}", record.scenario);
                below = shape.y + shape.h;
                assert!(shape.x + shape.w <= timeline.width);
            }
            assert!(below <= timeline.height);
        }
    }

    #[test]
    fn every_wait_is_a_bar_and_every_wake_up_by_another_an_arrow() {
        let timeline = Timeline::of(&ring());
        assert_eq!(timeline.bars.len(), 2);
        assert_eq!(timeline.arrows.len(), 2);
        let labels: Vec<&str> =
            timeline.texts.iter().filter(|words| words.class == "w").map(|w| &*w.text).collect();
        assert_eq!(labels, ["waits for B, 6.8 ms", "waits for C, 2.7 ms"]);
    }
}
