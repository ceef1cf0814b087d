//! What stands beside the boards: what the colours mean, and what it comes to.

use super::board::Drawn;
use super::escaped;
use super::style::width_of;
use crate::matrix::report::{MatrixCounts, MatrixReport};
use std::fmt::Write;

const WIDTH: usize = 236;
const LINE: usize = 18;
const LETTERS: usize = 12;
const SWATCH: usize = 16;

pub(super) fn draw(report: &MatrixReport) -> Drawn {
    let mut panel = Panel { svg: String::new(), y: 8 };
    panel.line("head", "A request that meets a holder…");
    panel.y += 10;
    panel.line("soft", "waits for it, meeting at");
    panel.y += 4;
    for (class, what) in [("w0", "a user"), ("w1", "an account"), ("w2", "a resource")] {
        panel.swatch(class, what);
    }
    panel.line("soft", "and is granted when it lets go;");
    panel.y += 8;
    panel.line("soft", "or else");
    panel.y += 4;
    panel.swatch("granted", "is granted beside it.");
    let counts = report.counts();
    if counts.odd > 0 {
        panel.swatch("odd", "does neither.");
    }
    if counts.disagreements > 0 {
        panel.crossed("is not what the rules say.");
    }
    panel.rule();
    let mut summary = summary(report);
    let verdict = summary.pop();
    for text in summary {
        panel.wrapped("soft", &text);
        panel.y += 4;
    }
    if let Some(text) = verdict {
        panel.wrapped(if report.agrees() { "good-text" } else { "bad-text" }, &text);
    }
    Drawn { svg: panel.svg, width: WIDTH, height: panel.y }
}

/// What it comes to, in sentences; the last is the verdict.
pub(super) fn summary(report: &MatrixReport) -> Vec<String> {
    let MatrixCounts { pairs, blocked, granted, odd, disagreements } = report.counts();
    let mut told = vec![
        format!("{pairs} pairs were run on {}.", plural(places(report), "place")),
        format!("{blocked} waited, and were granted when the holder let go."),
        format!("{granted} were granted at once."),
    ];
    if odd > 0 {
        told.push(format!("{odd} did neither."));
    }
    for unusable in &report.unusable {
        told.push(escaped(&format!("{} was not run: {}.", unusable.place, unusable.why)));
    }
    told.push(match disagreements {
        0 if report.agrees() => "All of them are what the rules say.".to_owned(),
        0 => "Not all of it could be run.".to_owned(),
        1 => "1 is not what the rules say.".to_owned(),
        count => format!("{count} are not what the rules say."),
    });
    told
}

fn places(report: &MatrixReport) -> usize {
    let mut places: Vec<String> =
        report.boards.iter().map(|board| board.place.to_string()).collect();
    places.sort();
    places.dedup();
    places.len()
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The panel, as far as it has come.
struct Panel {
    svg: String,
    y: usize,
}

impl Panel {
    fn line(&mut self, class: &str, text: &str) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.svg, "<text class=\"{class}\" y=\"{}\">{text}</text>", self.y);
        self.y += LINE;
    }

    fn wrapped(&mut self, class: &str, text: &str) {
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && width_of(&format!("{line} {word}"), LETTERS) > WIDTH {
                self.line(class, &line);
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
        self.line(class, &line);
    }

    fn swatch(&mut self, class: &str, text: &str) {
        let top = self.y - SWATCH / 2 - 4;
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class}\" y=\"{top}\" width=\"{SWATCH}\" height=\"{SWATCH}\" rx=\"3\"/>\
             <text x=\"{}\" y=\"{}\">{text}</text>",
            SWATCH + 9,
            self.y
        );
        self.y += LINE + 5;
    }

    /// The sign of a disagreement, whatever was seen.
    fn crossed(&mut self, text: &str) {
        let (top, near, far) = (self.y - SWATCH / 2 - 4, SWATCH / 3, SWATCH - SWATCH / 3);
        let [a, b] = [top + near, top + far];
        let _ = writeln!(
            self.svg,
            "<path class=\"cross\" d=\"M{near} {a}L{far} {b}M{near} {b}L{far} {a}\"/>"
        );
        self.swatch("bad sign", text);
    }

    fn rule(&mut self) {
        let y = self.y + 2;
        let _ = writeln!(self.svg, "<line class=\"rule\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>");
        self.y += LINE + 10;
    }
}
