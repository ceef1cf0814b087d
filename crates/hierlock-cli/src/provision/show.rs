//! What a person sees of it, and what a program reads. Standard output has the result, standard error
//! the rest.

use hierlock::sql::{Check, Phase, Prediction, Progress, Report};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where there is no terminal, a line now and then.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// So many of the missing ranges are printed.
const NAMED: usize = 20;

/// A bar on a terminal, lines elsewhere, nothing for a program.
pub(super) struct Shown {
    style: Style,
    seen: Mutex<Option<(Phase, Instant)>>,
}

enum Style {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Shown {
    pub(super) fn new(json: bool) -> Self {
        let style = match (json, io::stderr().is_terminal()) {
            (true, _) => Style::Nothing,
            (_, true) => Style::Bar(bar()),
            _ => Style::Lines,
        };
        Self { style, seen: Mutex::default() }
    }

    pub(super) fn say(&self, text: String) {
        match &self.style {
            Style::Bar(bar) => bar.suspend(|| line(&text)),
            Style::Lines => line(&text),
            Style::Nothing => {}
        }
    }

    pub(super) fn tell(&self, progress: Progress) {
        let Progress { phase, done, total, .. } = progress;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = seen.is_none_or(|(before, _)| before != phase);
        match &self.style {
            Style::Nothing => {}
            Style::Bar(bar) => {
                if is_new {
                    bar.set_message(phase.name());
                    bar.reset();
                    *seen = Some((phase, Instant::now()));
                }
                bar.set_length(total);
                bar.set_position(done);
            }
            Style::Lines => {
                let is_due = seen.is_none_or(|(_, at)| at.elapsed() >= LINE_EVERY);
                if !is_new && !is_due {
                    return;
                }
                *seen = Some((phase, Instant::now()));
                line(&match total {
                    0 => format!("{} …", phase.name()),
                    _ => format!("{}: {done} of {total} rows", phase.name()),
                });
            }
        }
    }

    /// Nothing is left of a bar.
    pub(super) fn end(&self) {
        if let Style::Bar(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}

fn line(text: &str) {
    // If nobody can read it, the exit code still tells.
    let _ = writeln!(io::stderr().lock(), "hierlock: {text}");
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let template = "{msg} {wide_bar} {human_pos}/{human_len} rows, {per_sec}, {eta} left";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub(super) fn prediction_text(prediction: Prediction) -> String {
    match prediction.rows {
        0 => "rows come with the nodes".to_owned(),
        rows => format!("{} rows, about {}", HumanCount(rows), HumanBytes(prediction.bytes)),
    }
}

pub(super) fn done_text(report: &Report) -> String {
    let Report { rows, inserted, deleted, elapsed, .. } = *report;
    let rate = inserted as f64 / elapsed.as_secs_f64().max(0.001);
    let mut text = match rows {
        0 => format!("ready: {} rows added", HumanCount(inserted)),
        _ => format!("ready: {} rows, {} of them new", HumanCount(rows), HumanCount(inserted)),
    };
    if deleted > 0 {
        text += &format!(", {} deleted", HumanCount(deleted));
    }
    if rows > 0 && inserted > 0 {
        let rate = HumanCount(rate as u64);
        text += &format!(", in {:.1} s ({rate} rows/s)", elapsed.as_secs_f64());
    }
    text + "\n"
}

pub(super) fn check_text(check: &Check) -> String {
    let mut text = String::new();
    for (level, rows) in check.rows.iter().enumerate() {
        text += &format!("level {level}: {rows} of {} rows\n", check.buckets);
    }
    for range in check.missing.iter().take(NAMED) {
        text += &format!("missing: {range}\n");
    }
    if check.missing.len() > NAMED {
        text += &format!("missing: and more, {} rows in all\n", check.missing_rows);
    }
    if check.extra_rows > 0 {
        text += &format!("too many: {} rows that nobody locks\n", check.extra_rows);
    }
    text += match (check.is_clean(), check.is_ready, check.missing_rows) {
        (true, _, _) => "all is there\n",
        (_, false, _) => "it was not filled to the end; run `hierlock provision` again\n",
        (_, _, 1..) => "`hierlock provision --check --repair` fills what is missing\n",
        _ => "`hierlock provision --rebucket` with the count it has deletes what is too many\n",
    };
    text
}

#[derive(Serialize)]
struct Range {
    level: usize,
    first: u32,
    last: u32,
}

#[derive(Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
enum Outcome {
    Checked {
        clean: bool,
        ready: bool,
        rows: Vec<u64>,
        buckets: u64,
        missing_rows: u64,
        missing: Vec<Range>,
        extra_rows: u64,
    },
    Ready {
        rows: u64,
        inserted: u64,
        deleted: u64,
        elapsed_ms: u128,
    },
}

pub(super) fn check_json(check: &Check) -> String {
    let ranges = check.missing.iter();
    json(&Outcome::Checked {
        clean: check.is_clean(),
        ready: check.is_ready,
        rows: check.rows.clone(),
        buckets: check.buckets,
        missing_rows: check.missing_rows,
        missing: ranges.map(|r| Range { level: r.level, first: r.first, last: r.last }).collect(),
        extra_rows: check.extra_rows,
    })
}

pub(super) fn report_json(report: &Report) -> String {
    let Report { rows, inserted, deleted, elapsed, .. } = *report;
    json(&Outcome::Ready { rows, inserted, deleted, elapsed_ms: elapsed.as_millis() })
}

fn json(outcome: &Outcome) -> String {
    // Numbers and names always become JSON.
    serde_json::to_string(outcome).unwrap_or_default() + "\n"
}
