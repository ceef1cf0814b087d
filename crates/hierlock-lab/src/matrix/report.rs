//! What was seen of all pairs, as data: questions to ask it, and nothing of how it was found out or how
//! it is shown. As JSON through serde.

use super::expected::Expected;
use super::tree::{Node, Tree};
use crate::place::Place;
use hierlock::Mode;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// What was seen of a request while another node was held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Seen {
    /// It was granted beside the holder.
    Granted,
    /// The lock manager said that it waits for the holder; when the holder let go, it was granted.
    Blocked {
        /// The node at which it waited, as a path.
        at: String,
    },
    /// Anything else, which is always a disagreement: an error, no answer, a wait for somebody else, or
    /// one that did not end with the holder.
    Odd {
        /// What, as the end of a sentence.
        why: String,
    },
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Granted => f.write_str("granted beside it"),
            Seen::Blocked { at } => write!(f, "waits for it at {at}"),
            Seen::Odd { why } => f.write_str(why),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Granted => f.write_str("granted beside it"),
            Expected::Blocked { at } => write!(f, "waits for it at {at}"),
        }
    }
}

/// One ordered pair of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The node that was held.
    pub held: Node,
    /// The node that was asked for meanwhile.
    pub requested: Node,
    /// What the rules say.
    pub expected: Expected,
    /// What was seen.
    pub seen: Seen,
}

impl Cell {
    /// Is what was seen what the rules say?
    pub fn agrees(&self) -> bool {
        match (&self.expected, &self.seen) {
            (Expected::Granted, Seen::Granted) => true,
            (Expected::Blocked { at }, Seen::Blocked { at: seen }) => at.to_string() == *seen,
            _ => false,
        }
    }
}

/// The modes of a board: what is held is held in the first, what is requested is asked for in the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modes {
    /// Of the node that is held.
    pub held: Mode,
    /// Of the node that is requested.
    pub requested: Mode,
}

impl Modes {
    /// What everybody uses unless told.
    pub const EXCLUSIVE: Modes = Modes { held: Mode::Exclusive, requested: Mode::Exclusive };

    /// All nine, the strongest first.
    pub fn all() -> Vec<Modes> {
        let modes = [Mode::Exclusive, Mode::Update, Mode::Shared];
        modes
            .iter()
            .flat_map(|held| modes.map(|requested| Modes { held: *held, requested }))
            .collect()
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.held, self.requested)
    }
}

/// All pairs at one place, in one combination of modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Where.
    pub place: Place,
    /// How.
    pub modes: Modes,
    /// Row by row: all requests beside the first node, then all beside the second.
    pub cells: Vec<Cell>,
    /// How long all of them took together.
    pub elapsed: Duration,
}

impl Serialize for Board {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Board { place, modes, cells, elapsed } = self;
        let mut board = serializer.serialize_struct("Board", 6)?;
        board.serialize_field("place", place)?;
        board.serialize_field("held", &modes.held.to_string())?;
        board.serialize_field("requested", &modes.requested.to_string())?;
        board.serialize_field("elapsed_ms", &(elapsed.as_millis() as u64))?;
        board.serialize_field("counts", &self.counts())?;
        board.serialize_field("cells", cells)?;
        board.end()
    }
}

/// A place that could not be used, or not to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unusable {
    /// Which.
    pub place: Place,
    /// Why not, in a sentence.
    pub why: String,
}

/// How many pairs were seen to be what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// How many were run.
    pub pairs: usize,
    /// Waited, and were granted when the holder let go.
    pub blocked: usize,
    /// Were granted at once.
    pub granted: usize,
    /// Were neither.
    pub odd: usize,
    /// Were not what the rules say.
    pub disagreements: usize,
}

impl Counts {
    fn of<'a>(cells: impl Iterator<Item = &'a Cell>) -> Self {
        cells.fold(Self::default(), |mut counts, cell| {
            counts.pairs += 1;
            match cell.seen {
                Seen::Granted => counts.granted += 1,
                Seen::Blocked { .. } => counts.blocked += 1,
                Seen::Odd { .. } => counts.odd += 1,
            }
            counts.disagreements += usize::from(!cell.agrees());
            counts
        })
    }
}

impl Board {
    /// How many pairs were seen to be what.
    pub fn counts(&self) -> Counts {
        Counts::of(self.cells.iter())
    }

    /// Is it the same picture as another, whoever took how long?
    fn looks_like(&self, other: &Board) -> bool {
        self.modes == other.modes && self.cells == other.cells
    }
}

/// Everything that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixReport {
    /// The tree.
    pub tree: Tree,
    /// Each place and combination of modes, in the order in which they were asked for.
    pub boards: Vec<Board>,
    /// Places that have nothing to show.
    pub unusable: Vec<Unusable>,
    /// How long all of it took, as clocks go.
    pub elapsed: Duration,
}

impl MatrixReport {
    /// Was every pair seen to be what the rules say, at every place?
    pub fn agrees(&self) -> bool {
        self.unusable.is_empty() && self.boards.iter().all(|b| b.cells.iter().all(Cell::agrees))
    }

    /// Everything that was seen and is not what the rules say.
    pub fn disagreements(&self) -> impl Iterator<Item = (&Board, &Cell)> {
        let all = self.boards.iter().flat_map(|board| board.cells.iter().map(move |c| (board, c)));
        all.filter(|(_, cell)| !cell.agrees())
    }

    /// How many pairs were seen to be what, everywhere.
    pub fn counts(&self) -> Counts {
        Counts::of(self.boards.iter().flat_map(|board| &board.cells))
    }

    /// Boards that look the same, together: what is worth showing once. Those of the same modes follow
    /// each other.
    pub fn pictures(&self) -> Vec<Vec<&Board>> {
        let mut pictures: Vec<Vec<&Board>> = Vec::new();
        for board in &self.boards {
            match pictures.iter_mut().find(|alike| alike[0].looks_like(board)) {
                Some(alike) => alike.push(board),
                None => pictures.push(vec![board]),
            }
        }
        let first = |modes: Modes| self.boards.iter().position(|board| board.modes == modes);
        pictures.sort_by_key(|alike| first(alike[0].modes));
        pictures
    }
}

impl Serialize for MatrixReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MatrixReport { tree, boards, unusable, elapsed } = self;
        let mut report = serializer.serialize_struct("MatrixReport", 7)?;
        report.serialize_field("tree", tree)?;
        report.serialize_field("nodes", &tree.nodes())?;
        report.serialize_field("agrees", &self.agrees())?;
        report.serialize_field("counts", &self.counts())?;
        report.serialize_field("elapsed_ms", &(elapsed.as_millis() as u64))?;
        report.serialize_field("boards", boards)?;
        report.serialize_field("unusable", unusable)?;
        report.end()
    }
}

/// Reports that nobody had to run.
#[cfg(test)]
pub(super) mod fixtures {
    use super::super::expected::expected;
    use super::*;

    /// Each place has seen what the rules say.
    pub(in super::super) fn as_expected(
        tree: Tree,
        places: Vec<Place>,
        modes: &[Modes],
    ) -> MatrixReport {
        let nodes = tree.nodes();
        let cell = |place: Place, modes: &Modes, held: &Node, requested: &Node| {
            let expected = expected(place, (held, modes.held), (requested, modes.requested));
            let seen = match &expected {
                Expected::Granted => Seen::Granted,
                Expected::Blocked { at } => Seen::Blocked { at: at.to_string() },
            };
            Cell { held: held.clone(), requested: requested.clone(), expected, seen }
        };
        let board = |place: Place, modes: &Modes| {
            let pairs = nodes.iter().flat_map(|held| nodes.iter().map(move |other| (held, other)));
            let cells = pairs.map(|(held, requested)| cell(place, modes, held, requested));
            let cells = cells.collect();
            Board { place, modes: *modes, cells, elapsed: Duration::from_millis(1234) }
        };
        let boards = places.iter().flat_map(|place| modes.iter().map(|modes| board(*place, modes)));
        let boards = boards.collect();
        MatrixReport { tree, boards, unusable: Vec::new(), elapsed: Duration::from_millis(5678) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::fixtures::as_expected;
    use super::*;
    use crate::place::Engine;

    fn everywhere() -> MatrixReport {
        as_expected(Tree::default(), places(Engine::ALL), &[Modes::EXCLUSIVE])
    }

    #[test]
    fn what_looks_the_same_is_one_picture() {
        let mut report = everywhere();
        assert_eq!(report.boards.len(), 12);
        assert_eq!(report.pictures().len(), 1);
        report.boards[3].cells[5].seen = Seen::Granted;
        let pictures = report.pictures();
        assert_eq!(pictures.iter().map(Vec::len).collect::<Vec<_>>(), [11, 1]);
    }

    #[test]
    fn pictures_of_the_same_modes_follow_each_other() {
        let report = as_expected(Tree::default(), places(Engine::ALL), &Modes::all());
        let mut modes: Vec<Modes> = report.pictures().iter().map(|alike| alike[0].modes).collect();
        assert!(modes.len() > 9, "some places lack some modes");
        modes.dedup();
        assert_eq!(modes, Modes::all());
    }

    /// The control: whatever is flipped, in what is expected or in what was seen, is told.
    #[test]
    fn every_flip_is_a_disagreement() {
        let report = everywhere();
        assert!(report.agrees());
        for place in 0..report.boards[0].cells.len() {
            let mut flipped = report.clone();
            let cell = &mut flipped.boards[0].cells[place];
            cell.expected = match &cell.expected {
                Expected::Granted => Expected::Blocked { at: cell.held.clone() },
                Expected::Blocked { .. } => Expected::Granted,
            };
            assert!(!flipped.agrees());
            assert_eq!(flipped.disagreements().count(), 1);
            assert_eq!(flipped.counts().disagreements, 1);
            for seen in [
                Seen::Granted,
                Seen::Blocked { at: "u9".into() },
                Seen::Odd { why: "fails".into() },
            ] {
                let mut other = report.clone();
                let cell = &mut other.boards[0].cells[place];
                let differs = cell.seen != seen;
                cell.seen = seen;
                assert_eq!(other.agrees(), !differs);
            }
        }
    }

    #[test]
    fn a_place_that_was_not_run_is_no_agreement() {
        let mut report = everywhere();
        let place = report.boards[0].place;
        report.unusable.push(Unusable { place, why: "there is no server".into() });
        assert!(!report.agrees());
    }

    #[test]
    fn json_has_all_of_it() {
        let tree = Tree { users: 1, accounts: 0, resources: 0 };
        let report = as_expected(tree, places([Engine::Memory]), &[Modes::EXCLUSIVE]);
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({
            "tree": "1×0×0",
            "nodes": ["u1"],
            "agrees": true,
            "counts": { "pairs": 1, "blocked": 1, "granted": 0, "odd": 0, "disagreements": 0 },
            "elapsed_ms": 5678,
            "boards": [{
                "place": "memory",
                "held": "exclusive",
                "requested": "exclusive",
                "elapsed_ms": 1234,
                "counts": { "pairs": 1, "blocked": 1, "granted": 0, "odd": 0, "disagreements": 0 },
                "cells": [{
                    "held": "u1",
                    "requested": "u1",
                    "expected": { "is": "blocked", "at": "u1" },
                    "seen": { "is": "blocked", "at": "u1" },
                }],
            }],
            "unusable": [],
        });
        assert_eq!(json, expected);
    }
}
