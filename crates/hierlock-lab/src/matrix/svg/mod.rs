//! The matrix as a heat map: one self-contained SVG, with the outcome in the tooltip of each cell. It contains no
//! times, so equal outcomes give equal pictures. Positions are computed here; the templates draw them.

mod board;

use super::report::{MatrixBoard, MatrixCounts, MatrixReport};
use crate::group::distinct;
use crate::report::{printable, wrap};
use crate::text::count;
use askama::Template;
use board::Board;

const MAX_ABREAST: usize = 3;
/// The margins around the picture, between boards, and above them.
const PADDING: usize = 28;
const GUTTER: usize = 36;
const HEADER: usize = 62;
/// The panel with the legend and the summary, right of the boards.
const PANEL_WIDTH: usize = 236;
const PANEL_LINE: usize = 18;
const PANEL_COLUMNS: usize = 34;
/// The position in the panel below the signs that are always present, and the height of a sign.
const PANEL_SIGNS: usize = 198;
const PANEL_SIGN: usize = 23;

/// A line of the panel: class, position and text.
type PanelLine = (&'static str, usize, String);

#[derive(Template)]
#[template(path = "heat_map.svg")]
struct HeatMap<'a> {
    report: &'a MatrixReport,
    width: usize,
    height: usize,
    subtitle: String,
    summary: Vec<String>,
    boards: Vec<Board<'a>>,
    panel_x: usize,
    /// The positions of the signs of rare outcomes in the panel, if there are such outcomes.
    odd_y: Option<usize>,
    cross_y: Option<usize>,
    rule_y: usize,
    lines: Vec<PanelLine>,
}

impl MatrixReport {
    /// Returns the matrix as a heat map. Equal boards are drawn once, with all their backends.
    pub fn svg(&self) -> String {
        let (nodes, distinct) = (self.tree.nodes(), self.distinct_boards());
        let is_only = distinct.len() <= 1;
        let boards = distinct.iter().map(|group| Board::new(group, &nodes, is_only));
        let (boards, right, bottom) = arrange(boards.collect());

        let counts = self.counts();
        let odd_y = (counts.unexpected > 0).then_some(PANEL_SIGNS);
        let y = odd_y.map_or(PANEL_SIGNS, |y| y + PANEL_SIGN);
        let cross_y = (counts.disagreements > 0).then_some(y);
        let y = cross_y.map_or(y, |y| y + PANEL_SIGN);
        let summary = summary(self, counts);
        let (lines, panel_height) = panel_lines(&summary, self.agrees(), y + 28);

        let heat_map = HeatMap {
            report: self,
            width: right + GUTTER + PANEL_WIDTH + PADDING,
            height: bottom.max(PADDING + HEADER + panel_height) + PADDING,
            subtitle: subtitle(self, &distinct),
            summary,
            boards,
            panel_x: right + GUTTER,
            odd_y,
            cross_y,
            rule_y: y + 2,
            lines,
        };
        // Rendering into a String cannot fail: the template uses no filter that can fail.
        heat_map.render().unwrap_or_default() + "\n"
    }
}

/// Places the boards in rows. Returns them, and the right and lower end of the rows.
fn arrange(mut boards: Vec<Board<'_>>) -> (Vec<Board<'_>>, usize, usize) {
    // Two by two looks better than three and one.
    let abreast = if boards.len() == 4 { 2 } else { MAX_ABREAST };
    let (mut right, mut bottom) = (PADDING, PADDING + HEADER);
    for (i, row) in boards.chunks_mut(abreast).enumerate() {
        let (mut x, y) = (PADDING, bottom + if i == 0 { 0 } else { GUTTER });
        for board in row {
            (board.x, board.y) = (x, y);
            right = right.max(x + board.width);
            bottom = bottom.max(y + board.height);
            x += board.width + GUTTER;
        }
    }
    (boards, right, bottom)
}

fn subtitle(report: &MatrixReport, distinct: &[Vec<&MatrixBoard>]) -> String {
    let pairs = format!("Every ordered pair of {} nodes", report.tree.len());
    match distinct {
        [] => format!("{pairs}: nothing was run."),
        [group] if group.len() == 1 => format!("{pairs}, {}.", group[0].modes),
        [group] => format!("{pairs}, {}; the same on {} backends.", group[0].modes, group.len()),
        many => format!("{pairs}; {} different pictures.", many.len()),
    }
}

/// Returns the summary in sentences; the last one is the verdict.
fn summary(report: &MatrixReport, counts: MatrixCounts) -> Vec<String> {
    let MatrixCounts { pairs, blocked, granted, unexpected, disagreements } = counts;
    let backends = distinct(report.boards.iter().map(|board| board.backend)).len();
    let mut sentences = vec![
        format!("{pairs} pairs were run on {}.", count(backends, "backend")),
        format!("{blocked} waited, and were granted when the holder let go."),
        format!("{granted} were granted at once."),
    ];
    if unexpected > 0 {
        sentences.push(format!("{unexpected} did neither."));
    }
    for unusable in &report.unusable {
        sentences.push(printable(&format!("{} was not run: {}.", unusable.backend, unusable.why)));
    }
    sentences.push(match disagreements {
        0 if report.agrees() => "All of them are what the rules say.".to_owned(),
        0 => "Not all of it could be run.".to_owned(),
        1 => "1 is not what the rules say.".to_owned(),
        count => format!("{count} are not what the rules say."),
    });
    sentences
}

/// Returns the summary in lines that fit into the panel, from `y` on, and the position below them.
fn panel_lines(summary: &[String], agrees: bool, mut y: usize) -> (Vec<PanelLine>, usize) {
    let verdict = if agrees { "good-text" } else { "bad-text" };
    let mut lines = Vec::new();
    for (i, sentence) in summary.iter().enumerate() {
        let is_verdict = i + 1 == summary.len();
        for line in wrap(sentence, PANEL_COLUMNS) {
            lines.push((if is_verdict { verdict } else { "soft" }, y, line));
            y += PANEL_LINE;
        }
        y += if is_verdict { 0 } else { 4 };
    }
    (lines, y)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{agreeing_report, report_of_all_backends};
    use super::super::report::{ModePair, PairOutcome};
    use crate::engine::Engine;

    #[test]
    fn a_heat_map_of_three_nodes() {
        let mut report = agreeing_report("1x1x1", &[Engine::Memory], &[ModePair::EXCLUSIVE]);
        report.boards[0].cells[1].seen =
            PairOutcome::Unexpected { why: "fails: <gone> & \"lost\"".into() };
        insta::assert_snapshot!(report.svg());
    }

    #[test]
    fn every_pair_has_a_cell_and_equal_boards_are_drawn_once() {
        let svg = report_of_all_backends().svg();
        assert_eq!(svg.matches("class=\"cell ").count(), 196);
        assert_eq!(svg.matches("class=\"cell granted\"").count(), 142);
        assert_eq!(svg.matches("class=\"chip\"").count(), 12);
        assert!(!svg.contains("class=\"cross\""), "a cross without a disagreement");
        assert!(svg.contains("u1 is held, u1/a2 requested: waits for it at u1, and is granted"));
    }

    #[test]
    fn a_disagreement_has_a_cross_on_a_separate_board() {
        let mut report = report_of_all_backends();
        report.boards[2].cells[0].seen = PairOutcome::Granted;
        let svg = report.svg();
        assert_eq!(svg.matches("class=\"cell ").count(), 2 * 196);
        // One in the board, one in the legend.
        assert_eq!(svg.matches("class=\"cross\"").count(), 2);
        assert!(svg.contains("Expected: waits for it at u1."));
    }

    #[test]
    fn texts_are_escaped() {
        let mut report = agreeing_report("1x0x0", &[Engine::Memory], &[ModePair::EXCLUSIVE]);
        report.boards[0].cells[0].seen =
            PairOutcome::Unexpected { why: "<a b=\"c\">&\u{1}".into() };
        assert!(report.svg().contains("&#60;a b=&#34;c&#34;&#62;&#38;\u{fffd}"));
    }
}
