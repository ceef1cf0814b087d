//! The matrix for a terminal: a triangle where both halves look the same, else the square. Pure; knows
//! only the report.

use super::expected::Expected;
use super::report::{MatrixBoard, MatrixCell, MatrixCounts, MatrixReport, PairOutcome};
use super::tree::Node;
use std::fmt::Write;
use std::time::Duration;

/// A cell and the space behind it.
const CELL: usize = 3;
/// How many disagreements of one picture are told in words.
const TOLD: usize = 12;
/// How wide a line of words may be.
const WIDTH: usize = 88;

/// See [`MatrixReport::text`].
pub(super) fn text(report: &MatrixReport, colour: bool) -> String {
    let mut out = Out { text: String::new(), colour };
    let (tree, nodes) = (report.tree, report.tree.nodes());
    out.bold(&format!("Held × requested on a tree of {tree}"));
    out.line(&format!(": {} nodes, {} ordered pairs", nodes.len(), tree.pairs()));
    for picture in report.pictures() {
        out.line("");
        out.picture(&picture, &nodes);
    }
    out.line("");
    out.legend(report);
    out.line("");
    out.places(report);
    out.summary(report);
    out.text
}

/// How a piece is shown where there is colour, as a terminal's escape codes have it.
#[derive(Clone, Copy)]
enum Ink {
    Bold,
    Dim,
    Bad,
    Good,
    /// A wait at a user, an account, a resource.
    Level(usize),
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Bad => "1;31",
            Ink::Good => "32",
            Ink::Level(0) => "38;5;166",
            Ink::Level(1) => "38;5;208",
            Ink::Level(_) => "38;5;221",
        }
    }
}

/// The text, as far as it has come.
struct Out {
    text: String,
    colour: bool,
}

impl Out {
    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        // What stands at the end of a line and is not seen would only trouble whoever compares.
        self.text.truncate(self.text.trim_end_matches(' ').len());
        self.text.push('\n');
    }

    fn ink(&mut self, ink: Ink, text: &str) {
        match self.colour {
            // Writing to a string cannot fail.
            true => drop(write!(self.text, "\x1b[{}m{text}\x1b[0m", ink.code())),
            false => self.text.push_str(text),
        }
    }

    fn bold(&mut self, text: &str) {
        self.ink(Ink::Bold, text);
    }

    /// Words that go on in the next line, indented.
    fn wrapped(&mut self, words: impl IntoIterator<Item = String>) {
        let mut line = String::new();
        for word in words {
            if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > WIDTH {
                self.line(&format!("  {line}"));
                line.clear();
            }
            line.push_str(if line.is_empty() { "" } else { " · " });
            line.push_str(&word);
        }
        self.line(&format!("  {line}"));
    }

    fn picture(&mut self, alike: &[&MatrixBoard], nodes: &[Node]) {
        let board = alike[0];
        self.bold(&board.modes.to_string());
        match alike.len() {
            1 => self.line(&format!(", on {}", board.place)),
            count => {
                self.line(&format!(", the same on {count} places:"));
                self.wrapped(alike.iter().map(|board| board.place.to_string()));
            }
        }
        self.line("");
        let triangle = is_symmetric(board, nodes.len());
        self.head(nodes);
        for (row, node) in nodes.iter().enumerate() {
            if row > 0 && node.level() == 0 {
                self.line("");
            }
            self.text.push_str(&format!("  {:<label$}", indented(node), label = LABEL - 2));
            let cells = &board.cells[row * nodes.len()..][..nodes.len()];
            let shown = if triangle { row + 1 } else { nodes.len() };
            for (cell, column) in cells[..shown].iter().zip(nodes) {
                self.text.push_str(gap(column, nodes));
                self.cell(cell);
            }
            self.line("");
        }
        if triangle {
            self.line("");
            self.line("  Both halves look the same, held and requested exchanged; one is shown.");
        }
        self.told(board);
    }

    /// The nodes of the columns, each a line below the one that it belongs to.
    fn head(&mut self, nodes: &[Node]) {
        for level in 0..Node::LEVELS {
            let corner = match level {
                0 => "  requested →",
                2 => "  held ↓",
                _ => "",
            };
            self.text.push_str(&format!("{corner:<LABEL$}"));
            for node in nodes {
                let id = if node.level() == level { node.id() } else { String::new() };
                self.text.push_str(gap(node, nodes));
                self.text.push_str(&format!("{id:<CELL$}"));
            }
            self.line("");
        }
    }

    fn cell(&mut self, cell: &MatrixCell) {
        let glyphs = glyphs(cell);
        match &cell.seen {
            _ if !cell.agrees() => self.ink(Ink::Bad, glyphs),
            PairOutcome::Blocked { at } => self.ink(Ink::Level(level_of(at)), glyphs),
            _ => self.ink(Ink::Dim, glyphs),
        }
        self.text.push(' ');
    }

    /// The disagreements, in words.
    fn told(&mut self, board: &MatrixBoard) {
        let odd: Vec<&MatrixCell> = board.cells.iter().filter(|cell| !cell.agrees()).collect();
        if !odd.is_empty() {
            self.line("");
        }
        for cell in odd.iter().take(TOLD) {
            let MatrixCell { held, requested, expected, seen } = cell;
            self.ink(Ink::Bad, "  disagrees");
            self.line(&format!(
                ": {held} held, {requested} requested: {seen}; expected: {expected}"
            ));
        }
        if odd.len() > TOLD {
            self.line(&format!("  … and {} more", odd.len() - TOLD));
        }
    }

    fn legend(&mut self, report: &MatrixReport) {
        let seen = |glyph: &str| {
            let mut cells = report.boards.iter().flat_map(|board| &board.cells);
            cells.any(|cell| glyphs(cell) == glyph)
        };
        let waits = "waits for the holder, and is granted when the holder lets go; they meet at";
        for (ink, glyph, means) in [
            (Ink::Level(0), "██", format!("{waits} a user")),
            (Ink::Level(1), "▓▓", format!("{:>1$}", "an account", waits.len() + 11)),
            (Ink::Level(2), "▒▒", format!("{:>1$}", "a resource", waits.len() + 11)),
            (Ink::Dim, "·", "is granted beside the holder".to_owned()),
            (Ink::Bad, "!w", "waits, and should be granted".to_owned()),
            (Ink::Bad, "!@", "waits, but not where it should".to_owned()),
            (Ink::Bad, "!g", "is granted, and should wait".to_owned()),
            (Ink::Bad, "!?", "neither is granted nor waits for the holder".to_owned()),
        ] {
            let expected = matches!(ink, Ink::Level(_) | Ink::Dim);
            if expected || seen(glyph) {
                self.text.push_str("  ");
                self.ink(ink, &format!("{glyph:<2}"));
                self.line(&format!("  {means}"));
            }
        }
    }

    /// A line a board.
    fn places(&mut self, report: &MatrixReport) {
        let many = report.boards.iter().any(|board| board.modes != report.boards[0].modes);
        let name = |board: &MatrixBoard| match many {
            true => format!("{}, {}", board.place, board.modes),
            false => board.place.to_string(),
        };
        let widest = report.boards.iter().map(|board| name(board).chars().count()).max();
        let width = widest.unwrap_or(0).max(5);
        self.ink(Ink::Dim, &format!("  {:<width$}  blocked  granted  disagree     time", "place"));
        self.line("");
        for board in &report.boards {
            let MatrixCounts { blocked, granted, disagreements, .. } = board.counts();
            self.text.push_str(&format!("  {:<width$}  {blocked:>7}  {granted:>7}", name(board)));
            self.ink(
                if disagreements == 0 { Ink::Dim } else { Ink::Bad },
                &format!("  {disagreements:>8}"),
            );
            self.line(&format!("  {:>7}", seconds(board.elapsed)));
        }
        for unusable in &report.unusable {
            self.text.push_str(&format!("  {:<width$}  ", unusable.place));
            self.ink(Ink::Bad, "not run");
            self.line(&format!(": {}", unusable.why));
        }
        self.line("");
    }

    fn summary(&mut self, report: &MatrixReport) {
        let MatrixCounts { pairs, blocked, granted, odd, disagreements } = report.counts();
        let ink = if report.agrees() { Ink::Good } else { Ink::Bad };
        let count = match disagreements {
            0 => "no disagreement".to_owned(),
            1 => "1 disagreement".to_owned(),
            count => format!("{count} disagreements"),
        };
        self.text.push_str(&format!("{pairs} pairs: {blocked} blocked, {granted} granted, "));
        if odd > 0 {
            self.ink(Ink::Bad, &format!("{odd} neither"));
            self.text.push_str(", ");
        }
        self.ink(ink, &count);
        match report.unusable.len() {
            0 => {}
            1 => self.ink(Ink::Bad, ", 1 place not run"),
            count => self.ink(Ink::Bad, &format!(", {count} places not run")),
        }
        self.line(&format!(", in {}", seconds(report.elapsed)));
    }
}

/// Do both halves look the same, held and requested exchanged?
fn is_symmetric(board: &MatrixBoard, nodes: usize) -> bool {
    let shown = |row: usize, column: usize| glyphs(&board.cells[row * nodes + column]);
    (0..nodes).all(|row| (0..row).all(|column| shown(row, column) == shown(column, row)))
}

/// How wide the names of the rows are.
const LABEL: usize = 15;

/// Two characters at most.
fn glyphs(cell: &MatrixCell) -> &'static str {
    match &cell.seen {
        PairOutcome::Odd { .. } => "!?",
        PairOutcome::Granted if cell.agrees() => "· ",
        PairOutcome::Granted => "!g",
        PairOutcome::Blocked { at } if cell.agrees() => ["██", "▓▓", "▒▒"][level_of(at)],
        PairOutcome::Blocked { .. } if cell.expected == Expected::Granted => "!w",
        PairOutcome::Blocked { .. } => "!@",
    }
}

/// The level of a path.
pub(super) fn level_of(path: &str) -> usize {
    path.matches('/').count().min(Node::LEVELS - 1)
}

/// Users stand apart.
fn gap(node: &Node, nodes: &[Node]) -> &'static str {
    if node.level() == 0 && *node != nodes[0] { " " } else { "" }
}

fn indented(node: &Node) -> String {
    format!("{}{}", "  ".repeat(node.level()), node.id())
}

fn seconds(span: Duration) -> String {
    match span.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", span.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::fixtures::as_expected;
    use super::super::report::{ModePair, UnusablePlace};
    use super::super::tree::TreeSize;
    use super::*;
    use crate::place::Engine;
    use crate::place::Place;
    use hierlock::Mode;

    #[test]
    fn a_triangle_where_all_agree() {
        let report =
            as_expected(TreeSize::default(), Place::all(Engine::ALL), &[ModePair::EXCLUSIVE]);
        insta::assert_snapshot!(text(&report, false));
    }

    #[test]
    fn a_square_where_the_halves_differ_and_a_picture_for_each_kind_of_place() {
        let tree = TreeSize { users: 1, accounts: 2, resources: 2 };
        let modes = ModePair { held: Mode::Shared, requested: Mode::Update };
        let report = as_expected(tree, Place::all(Engine::ALL), &[modes]);
        insta::assert_snapshot!(text(&report, false));
    }

    /// Of each kind one, and two places of which one could not be run.
    fn with_disagreements() -> MatrixReport {
        let tree = TreeSize { users: 1, accounts: 1, resources: 2 };
        let modes = [ModePair::EXCLUSIVE];
        let mut report = as_expected(tree, Place::all([Engine::Memory, Engine::File]), &modes);
        let file = report.boards.pop().unwrap();
        let why = "there is no such directory".into();
        report.unusable.push(UnusablePlace { place: file.place, why });
        let cells = &mut report.boards[0].cells;
        cells[1].seen = PairOutcome::Granted;
        cells[4].seen = PairOutcome::Blocked { at: "u1/a1".into() };
        cells[7].seen = PairOutcome::Odd { why: "fails: the server is gone".into() };
        cells[11].seen = PairOutcome::Blocked { at: "u1/a1/r2".into() };
        report
    }

    #[test]
    fn disagreements_are_marked_and_told() {
        insta::assert_snapshot!(text(&with_disagreements(), false));
    }

    #[test]
    fn colour_changes_nothing_else() {
        let report = with_disagreements();
        let coloured = text(&report, true);
        assert!(coloured.contains("\u{1b}[1;31m!g"), "{coloured}");
        let mut plain = String::new();
        for (number, piece) in coloured.split('\u{1b}').enumerate() {
            let piece = if number == 0 { piece } else { piece.split_once('m').unwrap().1 };
            plain.push_str(piece);
        }
        let ends = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(ends(&plain), ends(&text(&report, false)));
    }

    #[test]
    fn fourteen_nodes_fit_into_a_terminal() {
        let report = as_expected(TreeSize::default(), Place::all(Engine::ALL), &ModePair::all());
        for line in text(&report, false).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
