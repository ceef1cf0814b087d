//! What a person sees while cases run, and how wide and colourful a report may be.

use hierlock_lab::{Look, Record, Verdict};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};

/// A bar on a terminal, nothing elsewhere.
pub(super) struct Shown(ProgressBar);

impl Shown {
    pub(super) fn new(cases: usize, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(cases as u64), ProgressDrawTarget::stderr());
        let template = "{wide_bar} {pos}/{len} {msg}";
        Self(match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    pub(super) fn tell(&self, record: &Record) {
        self.0.inc(1);
        if record.verdict != Verdict::Agrees {
            self.0.set_message(format!("✗ {} on {}", record.case_name(), record.place));
        }
    }

    pub(super) fn count(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    /// Nothing is left of it.
    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// How a report on standard output may look.
pub(super) fn look(verbose: bool) -> Look {
    Look { colour: has_colour(), width: width(), verbose }
}

/// Colour only on a terminal, and not for those who do not want it.
pub(super) fn has_colour() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !unwanted
}

fn width() -> usize {
    match io::stdout().is_terminal() {
        true => comfy_table::Table::new().width().map_or(100, usize::from),
        false => 100,
    }
}
