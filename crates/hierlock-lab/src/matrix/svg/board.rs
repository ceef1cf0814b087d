//! One board: the cells, the tree along both edges, and below it where it was seen.

use super::escaped;
use super::style::width_of;
use crate::matrix::report::{MatrixBoard, MatrixCell, PairOutcome};
use crate::matrix::text::level_of;
use crate::matrix::tree::Node;
use std::fmt::Write;

/// Something drawn, and how large it is.
pub(super) struct Drawn {
    pub(super) svg: String,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// What stands above the tree along the upper edge.
const HEAD: usize = 22;
/// The height of a chip that names a place, and of a line of them.
const CHIP: usize = 20;
const CHIP_LINE: usize = 26;
/// The size of the letters in a chip.
const CHIP_LETTERS: usize = 11;
/// Cells smaller than this have no room for an ID.
const ROOM_FOR_ID: usize = 13;

/// How large things are, in one board.
struct Measures {
    cell: usize,
    /// A level of the tree along an edge.
    band: usize,
    /// Where each node begins, along either edge.
    begins: Vec<usize>,
    /// Where the subtree of each node ends.
    ends: Vec<usize>,
}

impl Measures {
    fn new(nodes: &[Node], is_one_of_many: bool) -> Self {
        let (most, room) = if is_one_of_many { (20, 330) } else { (30, 620) };
        let cell = (room / nodes.len().max(1)).clamp(8, most);
        let mut begins = Vec::new();
        let mut next = 0;
        for node in nodes {
            // Subtrees stand apart, the larger the farther.
            next += match node.level() {
                _ if begins.is_empty() => 0,
                0 => cell / 3 + 2,
                1 => cell / 6 + 2,
                _ => 2,
            };
            begins.push(next);
            next += cell;
        }
        let ends = |(place, node): (usize, &Node)| {
            let below = nodes[place..].iter().take_while(|other| node.upper(other) == Some(node));
            begins[place + below.count() - 1] + cell
        };
        let ends = nodes.iter().enumerate().map(ends).collect();
        Self { cell, band: if cell < 20 { 22 } else { 24 }, begins, ends }
    }

    /// The length of an edge of the cells.
    fn edge(&self) -> usize {
        self.begins.last().map_or(0, |last| last + self.cell)
    }

    /// How deep the tree along an edge is.
    fn depth(&self) -> usize {
        Node::LEVELS * self.band + 4
    }

    fn rounding(&self) -> usize {
        (self.cell / 7).max(1)
    }
}

/// Draws boards that look the same, once.
pub(super) fn draw(alike: &[&MatrixBoard], nodes: &[Node], is_one_of_many: bool) -> Drawn {
    let measures = Measures::new(nodes, is_one_of_many);
    let (depth, width) = (measures.depth(), measures.depth() + measures.edge());
    let mut svg = String::new();
    // Writing to a string cannot fail, here and below. The only one has its modes in the subtitle.
    let head = if is_one_of_many { HEAD } else { 0 };
    if is_one_of_many {
        let _ = writeln!(svg, "<text class=\"head\" y=\"6\">{}</text>", alike[0].modes);
    }
    let corner = head + depth;
    let _ = writeln!(
        svg,
        "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"end\">requested →</text>",
        depth - 6,
        head + measures.band / 2 + 4
    );
    let _ = writeln!(svg, "<text class=\"axis\" x=\"0\" y=\"{}\">held ↓</text>", corner - 8);
    let _ = writeln!(svg, "<g transform=\"translate({depth} {head})\">");
    edge(&mut svg, nodes, &measures, Edge::Upper);
    let _ = writeln!(svg, "</g>\n<g transform=\"translate(0 {corner})\">");
    edge(&mut svg, nodes, &measures, Edge::Left);
    let _ = writeln!(svg, "</g>\n<g transform=\"translate({depth} {corner})\">");
    cells(&mut svg, alike[0], &measures);
    let _ = writeln!(svg, "</g>");
    let below = corner + measures.edge() + 14;
    let names = alike.iter().map(|board| board.place.to_string());
    let height = chips(&mut svg, names, below, width);
    Drawn { svg, width, height }
}

fn cells(svg: &mut String, board: &MatrixBoard, measures: &Measures) {
    let Measures { cell: size, begins, .. } = measures;
    let rounding = measures.rounding();
    for (place, cell) in board.cells.iter().enumerate() {
        let (y, x) = (begins[place / begins.len()], begins[place % begins.len()]);
        let class = match &cell.seen {
            PairOutcome::Granted => "granted",
            PairOutcome::Blocked { at } => ["w0", "w1", "w2"][level_of(at)],
            PairOutcome::Odd { .. } => "odd",
        };
        let bad = if cell.agrees() { "" } else { " bad" };
        let _ = writeln!(
            svg,
            "<rect class=\"cell {class}{bad}\" x=\"{x}\" y=\"{y}\" width=\"{size}\" \
             height=\"{size}\" rx=\"{rounding}\"><title>{}</title></rect>",
            escaped(&told(cell))
        );
        if !cell.agrees() {
            let (near, far) = (size / 3, size - size / 3);
            let _ = writeln!(
                svg,
                "<path class=\"cross\" d=\"M{} {}L{} {}M{} {}L{} {}\"/>",
                x + near,
                y + near,
                x + far,
                y + far,
                x + near,
                y + far,
                x + far,
                y + near
            );
        }
    }
}

/// What a cell is, in a sentence.
fn told(cell: &MatrixCell) -> String {
    let MatrixCell { held, requested, expected, seen } = cell;
    let after = match seen {
        PairOutcome::Blocked { .. } => ", and is granted when it lets go",
        _ => "",
    };
    match cell.agrees() {
        true => format!("{held} is held, {requested} requested: {seen}{after}."),
        false => {
            format!("{held} is held, {requested} requested: {seen}{after}. Expected: {expected}.")
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Upper,
    Left,
}

/// The tree along an edge: each node is a band over all that is below it, and reaches down to its own
/// cells.
fn edge(svg: &mut String, nodes: &[Node], measures: &Measures, edge: Edge) {
    let Measures { cell, band, begins, ends } = measures;
    let rounding = measures.rounding();
    let mut rect = |class: &str, along: (usize, usize), across: (usize, usize)| {
        let ((x, width), (y, height)) = match edge {
            Edge::Upper => (along, across),
            Edge::Left => (across, along),
        };
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             rx=\"{rounding}\"/>"
        );
    };
    for (node, (begin, end)) in nodes.iter().zip(begins.iter().zip(ends)) {
        let (level, top) = (node.level(), node.level() * band);
        let class = format!("l{level}");
        if !node.is_leaf() {
            rect(&class, (*begin, end - begin), (top, band - 2));
        }
        rect(&class, (*begin, *cell), (top, Node::LEVELS * band - top - 2));
    }
    if *cell < ROOM_FOR_ID {
        return;
    }
    let letters = (cell * 6 / 10).clamp(8, 12);
    for (node, begin) in nodes.iter().zip(begins) {
        let (along, across) = (begin + cell / 2, node.level() * band + (band - 2) / 2);
        let (x, y) = match edge {
            Edge::Upper => (along, across),
            Edge::Left => (across, along),
        };
        let _ = writeln!(
            svg,
            "<text class=\"id\" x=\"{x}\" y=\"{y}\" style=\"font-size:{letters}px\">{}</text>",
            node.id()
        );
    }
}

/// Names, each on a chip, in lines; where they end.
fn chips(svg: &mut String, names: impl Iterator<Item = String>, top: usize, width: usize) -> usize {
    let (mut x, mut y) = (0, top);
    for name in names {
        let chip = width_of(&name, CHIP_LETTERS) + 20;
        if x > 0 && x + chip > width {
            (x, y) = (0, y + CHIP_LINE);
        }
        let _ = writeln!(
            svg,
            "<rect class=\"chip\" x=\"{x}\" y=\"{y}\" width=\"{chip}\" height=\"{CHIP}\" \
             rx=\"{}\"/><text class=\"chip-text\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            CHIP / 2,
            x + chip / 2,
            y + CHIP / 2,
            escaped(&name)
        );
        x += chip + 6;
    }
    y + CHIP
}
