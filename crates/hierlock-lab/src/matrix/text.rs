//! The matrix for a terminal: a triangle if both halves are equal, else the square.

use super::report::{MatrixBoard, MatrixCell, MatrixCounts, MatrixReport, PairOutcome};
use super::tree::TreeNode;
use crate::report::{BOLD, DIM, FAILURE, SUCCESS, TerminalText, duration};
use crate::text::count;
use anstyle::{Ansi256Color, Style};

/// The width of a cell, including the blank after it.
const CELL_WIDTH: usize = 3;
const LABEL_WIDTH: usize = 15;
const MAX_LISTED: usize = 12;
const MAX_LIST_WIDTH: usize = 88;
/// The style and text of a wait at a user, an account or a resource.
const WAITS: [(Style, &str); TreeNode::LEVELS] = [
    (Ansi256Color(166).on_default(), "██"),
    (Ansi256Color(208).on_default(), "▓▓"),
    (Ansi256Color(221).on_default(), "▒▒"),
];
/// The texts of the other outcomes.
const GRANTED: &str = "· ";
const UNEXPECTED_WAIT: &str = "!w";
const WAIT_ELSEWHERE: &str = "!@";
const UNEXPECTED_GRANT: &str = "!g";
const NEITHER: &str = "!?";

impl MatrixReport {
    /// Returns the matrix for a terminal. Equal boards are shown once, with all their backends.
    pub fn text(&self, colour: bool) -> String {
        let mut out = TerminalText { colour, ..TerminalText::default() };
        let (tree, nodes) = (self.tree, self.tree.nodes());
        out.push_styled(BOLD, format!("Held × requested on a tree of {tree}"));
        out.line(format!(": {} nodes, {} ordered pairs", nodes.len(), tree.pairs()));
        for group in self.distinct_boards() {
            out.line("");
            board(&mut out, &group, &nodes);
        }
        out.line("");
        legend(&mut out, self);
        out.line("");
        backends(&mut out, self);
        summary(&mut out, self);
        out.text
    }
}

fn board(out: &mut TerminalText, group: &[&MatrixBoard], nodes: &[TreeNode]) {
    let board = group[0];
    out.push_styled(BOLD, board.modes);
    if group.len() == 1 {
        out.line(format!(", on {}", board.backend));
    } else {
        out.line(format!(", the same on {} backends:", group.len()));
        backend_list(out, group);
    }
    out.line("");
    header(out, nodes);
    let is_triangle = is_symmetric(board, nodes.len());
    for (row, node) in nodes.iter().enumerate() {
        if row > 0 && node.level() == 0 {
            out.line("");
        }
        let name = format!("{}{}", "  ".repeat(node.level() + 1), node.id());
        out.push(format!("{name:LABEL_WIDTH$}"));
        let shown = if is_triangle { row + 1 } else { nodes.len() };
        for (cell, column) in board.cells[row * nodes.len()..][..shown].iter().zip(nodes) {
            out.push(gap(column, nodes));
            let (style, sign) = cell_sign(cell);
            out.push_styled(style, sign);
            out.push(" ");
        }
        out.line("");
    }
    if is_triangle {
        out.line("");
        out.line("  Both halves look the same, held and requested exchanged; one is shown.");
    }
    disagreements(out, board);
}

fn backend_list(out: &mut TerminalText, group: &[&MatrixBoard]) {
    let mut line = String::new();
    for backend in group.iter().map(|board| board.backend.to_string()) {
        if line.is_empty() {
            line = backend;
        } else if line.chars().count() + backend.chars().count() + 3 > MAX_LIST_WIDTH {
            out.line(format!("  {line}"));
            line = backend;
        } else {
            line += &format!(" · {backend}");
        }
    }
    out.line(format!("  {line}"));
}

/// Writes the nodes of the columns, each a line below its parent.
fn header(out: &mut TerminalText, nodes: &[TreeNode]) {
    for (level, corner) in ["  requested →", "", "  held ↓"].into_iter().enumerate() {
        out.push(format!("{corner:LABEL_WIDTH$}"));
        for node in nodes {
            let id = if node.level() == level { node.id() } else { String::new() };
            out.push(format!("{}{id:CELL_WIDTH$}", gap(node, nodes)));
        }
        out.line("");
    }
}

/// Returns the space before a column: users are separated.
fn gap(node: &TreeNode, nodes: &[TreeNode]) -> &'static str {
    if node.level() == 0 && *node != nodes[0] { " " } else { "" }
}

fn is_symmetric(board: &MatrixBoard, nodes: usize) -> bool {
    let sign = |row: usize, column: usize| cell_sign(&board.cells[row * nodes + column]).1;
    (0..nodes).all(|row| (0..row).all(|column| sign(row, column) == sign(column, row)))
}

fn cell_sign(cell: &MatrixCell) -> (Style, &'static str) {
    match &cell.seen {
        PairOutcome::Unexpected { .. } => (FAILURE, NEITHER),
        PairOutcome::Granted if cell.agrees() => (DIM, GRANTED),
        PairOutcome::Granted => (FAILURE, UNEXPECTED_GRANT),
        PairOutcome::Blocked { at } if cell.agrees() => WAITS[level_of(at)],
        PairOutcome::Blocked { .. } if cell.expected == PairOutcome::Granted => {
            (FAILURE, UNEXPECTED_WAIT)
        }
        PairOutcome::Blocked { .. } => (FAILURE, WAIT_ELSEWHERE),
    }
}

pub(super) fn level_of(path: &str) -> usize {
    path.matches('/').count().min(TreeNode::LEVELS - 1)
}

fn disagreements(out: &mut TerminalText, board: &MatrixBoard) {
    let cells: Vec<&MatrixCell> = board.cells.iter().filter(|cell| !cell.agrees()).collect();
    if !cells.is_empty() {
        out.line("");
    }
    for MatrixCell { held, requested, expected, seen } in cells.iter().take(MAX_LISTED) {
        out.push_styled(FAILURE, "  disagrees");
        out.line(format!(": {held} held, {requested} requested: {seen}; expected: {expected}"));
    }
    if cells.len() > MAX_LISTED {
        out.line(format!("  … and {} more", cells.len() - MAX_LISTED));
    }
}

/// Explains the signs. Signs of disagreements are explained only if they occur.
fn legend(out: &mut TerminalText, report: &MatrixReport) {
    let waits = "waits for the holder, and is granted when the holder lets go; they meet at";
    let indent = waits.len() + 11;
    let [user, account, resource] = WAITS;
    for ((style, sign), meaning) in [
        (user, format!("{waits} a user")),
        (account, format!("{:>indent$}", "an account")),
        (resource, format!("{:>indent$}", "a resource")),
        ((DIM, GRANTED), "is granted beside the holder".to_owned()),
        ((FAILURE, UNEXPECTED_WAIT), "waits, and should be granted".to_owned()),
        ((FAILURE, WAIT_ELSEWHERE), "waits, but not where it should".to_owned()),
        ((FAILURE, UNEXPECTED_GRANT), "is granted, and should wait".to_owned()),
        ((FAILURE, NEITHER), "neither is granted nor waits for the holder".to_owned()),
    ] {
        let mut cells = report.boards.iter().flat_map(|board| &board.cells);
        if style != FAILURE || cells.any(|cell| cell_sign(cell).1 == sign) {
            let sign = out.styled(style, sign);
            out.line(format!("  {sign}  {meaning}"));
        }
    }
}

fn backends(out: &mut TerminalText, report: &MatrixReport) {
    let has_modes = report.boards.iter().any(|board| board.modes != report.boards[0].modes);
    let name = |board: &MatrixBoard| {
        let modes = if has_modes { format!(", {}", board.modes) } else { String::new() };
        format!("{}{modes}", board.backend)
    };
    let widest = report.boards.iter().map(|board| name(board).chars().count()).max();
    let width = widest.unwrap_or(0).max("backend".len());
    out.push_styled(DIM, format!("  {:width$}  blocked  granted  disagree      time", "backend"));
    out.line("");
    for board in &report.boards {
        let MatrixCounts { blocked, granted, disagreements, .. } = board.counts();
        out.push(format!("  {:width$}  {blocked:>7}  {granted:>7}", name(board)));
        let style = if disagreements == 0 { DIM } else { FAILURE };
        out.push_styled(style, format!("  {disagreements:>8}"));
        out.line(format!("  {:>8}", duration(board.elapsed)));
    }
    for unusable in &report.unusable {
        out.push(format!("  {:width$}  ", unusable.backend));
        out.push_styled(FAILURE, "not run");
        out.line(format!(": {}", unusable.why));
    }
    out.line("");
}

fn summary(out: &mut TerminalText, report: &MatrixReport) {
    let MatrixCounts { pairs, blocked, granted, unexpected, disagreements } = report.counts();
    out.push(format!("{pairs} pairs: {blocked} blocked, {granted} granted, "));
    if unexpected > 0 {
        out.push_styled(FAILURE, format!("{unexpected} neither"));
        out.push(", ");
    }
    let disagreements = match disagreements {
        0 => "no disagreement".to_owned(),
        some => count(some, "disagreement"),
    };
    out.push_styled(if report.agrees() { SUCCESS } else { FAILURE }, disagreements);
    if !report.unusable.is_empty() {
        let backends = count(report.unusable.len(), "backend");
        out.push_styled(FAILURE, format!(", {backends} not run"));
    }
    out.line(format!(", in {}", duration(report.elapsed)));
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{agreeing_report, report_of_all_backends};
    use super::super::report::{ModePair, UnusableBackend};
    use super::*;
    use crate::engine::Engine;
    use hierlock::Mode;

    #[test]
    fn equal_halves_are_shown_as_a_triangle() {
        insta::assert_snapshot!(report_of_all_backends().text(false));
    }

    #[test]
    fn different_halves_are_shown_as_a_square() {
        let modes = ModePair { held: Mode::Shared, requested: Mode::Update };
        let report = agreeing_report("1x2x2", &Engine::ALL, &[modes]);
        insta::assert_snapshot!(report.text(false));
    }

    /// A report with a disagreement of each kind, and with two backends of which one could not be run.
    fn disagreeing_report() -> MatrixReport {
        let engines = [Engine::Memory, Engine::File];
        let mut report = agreeing_report("1x1x2", &engines, &[ModePair::EXCLUSIVE]);
        let file = report.boards.pop().unwrap();
        let why = "there is no such directory".into();
        report.unusable.push(UnusableBackend { backend: file.backend, why });
        let cells = &mut report.boards[0].cells;
        cells[1].seen = PairOutcome::Granted;
        cells[4].seen = PairOutcome::Blocked { at: "u1/a1".into() };
        cells[7].seen = PairOutcome::Unexpected { why: "fails: the server is gone".into() };
        cells[11].seen = PairOutcome::Blocked { at: "u1/a1/r2".into() };
        report
    }

    #[test]
    fn disagreements_are_marked_and_listed() {
        insta::assert_snapshot!(disagreeing_report().text(false));
    }

    #[test]
    fn colour_does_not_change_the_text() {
        let report = disagreeing_report();
        let coloured = report.text(true);
        assert!(coloured.contains("\u{1b}[1m\u{1b}[31m!g"), "{coloured}");
        let mut plain = String::new();
        for (number, piece) in coloured.split('\u{1b}').enumerate() {
            let piece = if number == 0 { piece } else { piece.split_once('m').unwrap().1 };
            plain.push_str(piece);
        }
        let lines = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(lines(&plain), lines(&report.text(false)));
    }

    #[test]
    fn fourteen_nodes_fit_into_100_columns() {
        let report = agreeing_report("2x2x2", &Engine::ALL, &ModePair::all());
        for line in report.text(false).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
