//! The observed outcomes of all pairs. As JSON through serde.

use super::tree::{TreeNode, TreeSize};
use super::{MatrixError, MatrixOptions};
use crate::engine::BackendKind;
use crate::environment::LabError;
use crate::group::group_by;
use hierlock::Mode;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// The observed outcome of a request while another node is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum PairOutcome {
    /// Granted while the other node was held.
    Granted,
    /// The lock manager reported a wait for the holder; when the holder released, the request was granted.
    Blocked {
        /// The node at which it waited, as a path.
        at: String,
    },
    /// Any other outcome, which always disagrees: an error, or a wait for another session or beyond the release.
    #[serde(rename = "odd")]
    Unexpected {
        /// The outcome, as the end of a sentence.
        why: String,
    },
}

impl fmt::Display for PairOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted beside it"),
            Self::Blocked { at } => write!(f, "waits for it at {at}"),
            Self::Unexpected { why } => f.write_str(why),
        }
    }
}

/// One ordered pair of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatrixCell {
    pub(crate) held: TreeNode,
    pub(crate) requested: TreeNode,
    pub(crate) expected: PairOutcome,
    pub seen: PairOutcome,
}

impl MatrixCell {
    pub fn agrees(&self) -> bool {
        self.expected == self.seen
    }
}

/// The modes of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModePair {
    /// The mode of the held node.
    pub held: Mode,
    /// The mode of the requested node.
    pub requested: Mode,
}

impl ModePair {
    /// Exclusive for both, the default of the library.
    pub const EXCLUSIVE: ModePair = ModePair { held: Mode::Exclusive, requested: Mode::Exclusive };

    /// Returns all nine combinations, the strongest first.
    pub fn all() -> Vec<ModePair> {
        let modes = [Mode::Exclusive, Mode::Update, Mode::Shared];
        let pairs = modes.map(|held| modes.map(|requested| ModePair { held, requested }));
        pairs.as_flattened().to_vec()
    }
}

impl fmt::Display for ModePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.held, self.requested)
    }
}

/// All pairs on one backend, in one combination of modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixBoard {
    pub backend: BackendKind,
    pub modes: ModePair,
    /// Row by row: all requests while the first node is held, then while the second is.
    pub cells: Vec<MatrixCell>,
    pub elapsed: Duration,
}

impl MatrixBoard {
    pub fn counts(&self) -> MatrixCounts {
        MatrixCounts::of(&self.cells)
    }
}

impl Serialize for MatrixBoard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MatrixBoard { backend, modes, cells, elapsed } = self;
        let mut board = serializer.serialize_struct("MatrixBoard", 6)?;
        board.serialize_field("backend", backend)?;
        board.serialize_field("held", &modes.held.to_string())?;
        board.serialize_field("requested", &modes.requested.to_string())?;
        board.serialize_field("elapsed_ms", &(elapsed.as_millis() as u64))?;
        board.serialize_field("counts", &self.counts())?;
        board.serialize_field("cells", cells)?;
        board.end()
    }
}

/// A backend that could not be run to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnusableBackend {
    pub backend: BackendKind,
    /// The reason, in a sentence.
    pub why: String,
}

/// The number of pairs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MatrixCounts {
    /// The number of pairs that were run.
    pub pairs: usize,
    /// Waited, and were granted when the holder released.
    pub blocked: usize,
    /// Granted at once.
    pub granted: usize,
    /// Neither granted nor blocked by the holder.
    #[serde(rename = "odd")]
    pub unexpected: usize,
    /// Not as the rules expect.
    pub disagreements: usize,
}

impl MatrixCounts {
    fn of<'a>(cells: impl IntoIterator<Item = &'a MatrixCell>) -> Self {
        let mut counts = Self::default();
        for cell in cells {
            counts.pairs += 1;
            match cell.seen {
                PairOutcome::Granted => counts.granted += 1,
                PairOutcome::Blocked { .. } => counts.blocked += 1,
                PairOutcome::Unexpected { .. } => counts.unexpected += 1,
            }
            counts.disagreements += usize::from(!cell.agrees());
        }
        counts
    }
}

/// The outcomes of all backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixReport {
    /// The size of the tree.
    pub tree: TreeSize,
    /// The boards, in the order of the backends and modes in the options.
    pub boards: Vec<MatrixBoard>,
    /// The backends that could not be run to the end.
    pub unusable: Vec<UnusableBackend>,
    /// The duration of the run.
    pub elapsed: Duration,
}

impl MatrixReport {
    /// Returns the report of a run that has not begun.
    ///
    /// # Errors
    /// The tree has no nodes or too many, or there is no backend or no modes.
    pub fn new(options: &MatrixOptions) -> Result<Self, MatrixError> {
        options.tree.check()?;
        if options.backends.is_empty() || options.modes.is_empty() {
            return Err(MatrixError::Nothing);
        }
        let interrupted = "interrupted before all of its pairs were run; this report is partial";
        let not_done = |backend: &BackendKind| UnusableBackend {
            backend: *backend,
            why: interrupted.to_owned(),
        };
        let unusable = options.backends.iter().map(not_done).collect();
        Ok(Self { tree: options.tree, boards: Vec::new(), unusable, elapsed: Duration::ZERO })
    }

    /// Adds the boards of a backend, or the error, in the order of the options.
    pub(super) fn add(
        &mut self,
        backend: BackendKind,
        boards: Result<Vec<MatrixBoard>, LabError>,
        options: &MatrixOptions,
    ) {
        match boards {
            Ok(boards) => {
                self.unusable.retain(|unusable| unusable.backend != backend);
                self.boards.extend(boards);
                self.boards.sort_by_key(|board| {
                    options.backends.iter().position(|backend| *backend == board.backend)
                });
            }
            Err(LabError(why)) => {
                let this = self.unusable.iter_mut().filter(|unusable| unusable.backend == backend);
                this.for_each(|unusable| unusable.why.clone_from(&why));
            }
        }
    }

    /// Returns whether every pair has the expected outcome on every backend.
    pub fn agrees(&self) -> bool {
        self.unusable.is_empty() && self.counts().disagreements == 0
    }

    /// Returns the number of pairs by outcome, of all backends.
    pub fn counts(&self) -> MatrixCounts {
        MatrixCounts::of(self.boards.iter().flat_map(|board| &board.cells))
    }

    /// Returns the boards in groups with equal modes and cells; groups with the same modes follow each other.
    pub fn distinct_boards(&self) -> Vec<Vec<&MatrixBoard>> {
        let by_modes = group_by(&self.boards, |board| board.modes).into_iter();
        let by_cells = by_modes.flat_map(|(_, boards)| group_by(boards, |board| &board.cells));
        by_cells.map(|(_, boards)| boards).collect()
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::expected::expected;
    use super::*;
    use crate::engine::Engine;

    /// Returns a report in which every outcome is as expected.
    pub(in super::super) fn agreeing_report(
        tree: &str,
        engines: &[Engine],
        all_modes: &[ModePair],
    ) -> MatrixReport {
        let tree: TreeSize = tree.parse().unwrap();
        let (nodes, backends) = (tree.nodes(), BackendKind::all(engines.iter().copied()));
        let mut boards = Vec::new();
        for (backend, modes) in
            backends.iter().flat_map(|p| all_modes.iter().map(move |m| (*p, *m)))
        {
            let mut cells = Vec::new();
            for (held, requested) in nodes.iter().flat_map(|a| nodes.iter().map(move |b| (a, b))) {
                let expected = expected(backend, held, requested, modes);
                let (held, requested, seen) = (held.clone(), requested.clone(), expected.clone());
                cells.push(MatrixCell { held, requested, expected, seen });
            }
            let elapsed = Duration::from_millis(1234);
            boards.push(MatrixBoard { backend, modes, cells, elapsed });
        }
        MatrixReport { tree, boards, unusable: Vec::new(), elapsed: Duration::from_millis(5678) }
    }

    pub(in super::super) fn report_of_all_backends() -> MatrixReport {
        agreeing_report("2x2x2", &Engine::ALL, &[ModePair::EXCLUSIVE])
    }

    #[test]
    fn equal_boards_are_one_group() {
        let mut report = report_of_all_backends();
        assert_eq!(report.boards.len(), 12);
        assert_eq!(report.distinct_boards().len(), 1);
        report.boards[3].cells[5].seen = PairOutcome::Granted;
        let distinct = report.distinct_boards();
        assert_eq!(distinct.iter().map(Vec::len).collect::<Vec<_>>(), [11, 1]);
    }

    #[test]
    fn boards_of_the_same_modes_follow_each_other() {
        let report = agreeing_report("2x2x2", &Engine::ALL, &ModePair::all());
        let mut modes: Vec<ModePair> =
            report.distinct_boards().iter().map(|group| group[0].modes).collect();
        assert!(modes.len() > 9, "no backend lacks a mode");
        modes.dedup();
        assert_eq!(modes, ModePair::all());
    }

    /// Every change of an expected or an observed outcome is reported.
    #[test]
    fn every_changed_outcome_is_a_disagreement() {
        let report = report_of_all_backends();
        assert!(report.agrees());
        for index in 0..report.boards[0].cells.len() {
            let mut changed = report.clone();
            let cell = &mut changed.boards[0].cells[index];
            cell.expected = match &cell.expected {
                PairOutcome::Granted => PairOutcome::Blocked { at: cell.held.to_string() },
                _ => PairOutcome::Granted,
            };
            assert!(!changed.agrees());
            assert_eq!(changed.counts().disagreements, 1);
            for seen in [
                PairOutcome::Granted,
                PairOutcome::Blocked { at: "u9".into() },
                PairOutcome::Unexpected { why: "fails".into() },
            ] {
                let mut other = report.clone();
                let cell = &mut other.boards[0].cells[index];
                let differs = cell.seen != seen;
                cell.seen = seen;
                assert_eq!(other.agrees(), !differs);
            }
        }
    }

    #[test]
    fn a_report_with_a_failed_place_does_not_agree() {
        let mut report = report_of_all_backends();
        let backend = report.boards[0].backend;
        report.unusable.push(UnusableBackend { backend, why: "there is no server".into() });
        assert!(!report.agrees());
    }

    #[test]
    fn json_contains_all_fields() {
        let report = agreeing_report("1x0x0", &[Engine::Memory], &[ModePair::EXCLUSIVE]);
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({
            "tree": "1×0×0",
            "nodes": ["u1"],
            "agrees": true,
            "counts": { "pairs": 1, "blocked": 1, "granted": 0, "odd": 0, "disagreements": 0 },
            "elapsed_ms": 5678,
            "boards": [{
                "backend": "memory",
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
