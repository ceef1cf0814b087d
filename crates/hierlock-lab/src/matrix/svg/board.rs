//! One board: the cells, the tree along both edges, and below it the backends that it shows.

use crate::matrix::report::{MatrixBoard, MatrixCell, ModePair, PairOutcome};
use crate::matrix::text::level_of;
use crate::matrix::tree::TreeNode;
use crate::report::printable;

/// The height of a chip, and of a line of chips.
const CHIP_HEIGHT: usize = 20;
const CHIP_LINE: usize = 26;
/// The approximate width of a letter, in hundredths of a pixel.
const CHIP_LETTER: usize = 638;
const MIN_CELL_WITH_ID: usize = 13;

/// The drawing of equal boards.
pub(super) struct Board<'a> {
    board: &'a MatrixBoard,
    /// The position in the picture; all other positions are relative to it.
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    /// The heading, unless there is only one board.
    pub(super) modes: Option<ModePair>,
    /// The position of the tree along the upper edge.
    pub(super) top: usize,
    /// The depth of the tree along an edge, and of one level.
    pub(super) depth: usize,
    pub(super) band: usize,
    pub(super) cell: usize,
    pub(super) rounding: usize,
    /// The font size of the IDs, if there is room for them.
    pub(super) letters: Option<usize>,
    pub(super) nodes: Vec<BoardNode>,
    pub(super) chips: Vec<Chip>,
}

/// A node along an edge: a band over its subtree, which reaches down to its own cells.
pub(super) struct BoardNode {
    pub(super) id: String,
    pub(super) level: usize,
    pub(super) is_leaf: bool,
    /// The position of the band, across the edge.
    pub(super) band: usize,
    /// The positions along the edge where the node begins and where its subtree ends.
    pub(super) begin: usize,
    pub(super) end: usize,
}

pub(super) struct Chip {
    pub(super) name: String,
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
}

impl<'a> Board<'a> {
    pub(super) fn new(group: &[&'a MatrixBoard], nodes: &[TreeNode], is_only: bool) -> Self {
        let (max_cell, room) = if is_only { (30, 620) } else { (20, 330) };
        let cell = (room / nodes.len().max(1)).clamp(8, max_cell);
        let band = if cell < 20 { 22 } else { 24 };
        let (top, depth) = (if is_only { 0 } else { 22 }, TreeNode::LEVELS * band + 4);
        let nodes = board_nodes(nodes, cell, band);
        let edge = nodes.last().map_or(0, |node| node.end);
        let (width, below) = (depth + edge, top + depth + edge + 14);
        let chips = chips(group, width, below);
        Board {
            board: group[0],
            x: 0,
            y: 0,
            width,
            height: chips.last().map_or(below, |chip| chip.y) + CHIP_HEIGHT,
            modes: (!is_only).then_some(group[0].modes),
            top,
            depth,
            band,
            cell,
            rounding: (cell / 7).max(1),
            letters: (cell >= MIN_CELL_WITH_ID).then_some((cell * 6 / 10).clamp(8, 12)),
            nodes,
            chips,
        }
    }

    /// Returns the cells, each with its row and column: the held and the requested node.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&MatrixCell, (&BoardNode, &BoardNode))> {
        let row = |held| self.nodes.iter().map(move |requested| (held, requested));
        self.board.cells.iter().zip(self.nodes.iter().flat_map(row))
    }
}

impl MatrixCell {
    /// Returns the CSS class.
    pub(super) fn class(&self) -> &'static str {
        match &self.seen {
            PairOutcome::Granted => "granted",
            PairOutcome::Blocked { at } => ["w0", "w1", "w2"][level_of(at)],
            PairOutcome::Unexpected { .. } => "odd",
        }
    }

    /// Returns the text of the tooltip.
    pub(super) fn title(&self) -> String {
        let MatrixCell { held, requested, expected, seen } = self;
        let mut title = format!("{held} is held, {requested} requested: {seen}");
        if matches!(seen, PairOutcome::Blocked { .. }) {
            title += ", and is granted when it lets go";
        }
        if !self.agrees() {
            title += &format!(". Expected: {expected}");
        }
        printable(&title) + "."
    }
}

fn board_nodes(nodes: &[TreeNode], cell: usize, band: usize) -> Vec<BoardNode> {
    let mut drawn: Vec<BoardNode> = Vec::new();
    let mut begin = 0;
    for node in nodes {
        // Subtrees are separated, larger ones by more space.
        begin += match node.level() {
            _ if drawn.is_empty() => 0,
            0 => cell / 3 + 2,
            1 => cell / 6 + 2,
            _ => 2,
        };
        // The node belongs to the subtrees of the last node of every level above.
        for level in 0..node.level() {
            if let Some(ancestor) = drawn.iter_mut().rev().find(|ancestor| ancestor.level == level)
            {
                ancestor.end = begin + cell;
            }
        }
        drawn.push(BoardNode {
            id: node.id(),
            level: node.level(),
            is_leaf: node.is_leaf(),
            band: node.level() * band,
            begin,
            end: begin + cell,
        });
        begin += cell;
    }
    drawn
}

fn chips(group: &[&MatrixBoard], width: usize, top: usize) -> Vec<Chip> {
    let (mut x, mut y) = (0, top);
    let chip = |board: &&MatrixBoard| {
        let name = board.backend.to_string();
        let chip_width = name.chars().count() * CHIP_LETTER / 100 + 20;
        if x > 0 && x + chip_width > width {
            (x, y) = (0, y + CHIP_LINE);
        }
        let chip = Chip { name, x, y, width: chip_width };
        x += chip_width + 6;
        chip
    };
    group.iter().map(chip).collect()
}
