//! The exhaustive matrix: every ordered pair of nodes of a tree, one held and the other requested, at
//! every place. What blocks is *observed*, and compared with rules that are stated here once more.
//!
//! ```text
//!   tree ──► every pair ──► run: hold, request, look, release ──► report ──► text, svg, JSON
//!     └────► expected: the rules, as told to people ───────────────┘
//!                                     ground: a database (or file, or tree) of its own
//! ```
//!
//! Who starts servers, and what is typed to get here, is not known here.

mod expected;
mod ground;
mod report;
mod run;
mod svg;
mod text;
mod tree;

pub use report::{
    MatrixBoard, MatrixCell, MatrixCounts, MatrixReport, ModePair, PairOutcome, UnusablePlace,
};
pub use run::MatrixProgress;
pub use tree::{TreeError, TreeSize};

use crate::lab::Lab;
use crate::place::{Engine, Place};
use futures_util::StreamExt;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug)]
pub struct MatrixOptions {
    /// Whose nodes.
    pub tree: TreeSize,
    /// Where, in the order in which they are shown.
    pub places: Vec<Place>,
    /// How: each combination is a board of its own.
    pub modes: Vec<ModePair>,
    /// How many places at a time. Pairs of one place come one after the other.
    pub jobs: usize,
    /// How long a step may take before it counts as odd.
    pub limit: Duration,
    /// Over how many buckets striped places are striped. Unless told, so many that no two nodes share
    /// one; with few, false contention shows as disagreement.
    pub buckets: Option<u32>,
}

impl Default for MatrixOptions {
    /// 2×2×2, exclusive, on what needs no server.
    fn default() -> Self {
        Self {
            tree: TreeSize::default(),
            places: Place::all([Engine::Memory, Engine::File]),
            modes: vec![ModePair::EXCLUSIVE],
            jobs: 4,
            limit: Duration::from_secs(10),
            buckets: None,
        }
    }
}

/// Why a place that was not through has nothing to show.
const INTERRUPTED: &str = "interrupted before all of its pairs were run; this report is partial";

/// What cannot be run at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A tree that cannot be run.
    #[error(transparent)]
    TreeSize(#[from] TreeError),
    /// Nowhere, or in no mode.
    #[error("there is nothing to run: name at least one place and one combination of modes")]
    Nothing,
}

impl Lab {
    /// Runs every pair at every place, on the servers of this lab. A place that cannot be used is told in the
    /// report, and the others are run all the same.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use hierlock_lab::{Lab, MatrixOptions};
    ///
    /// let report = Lab::new()?.matrix(&MatrixOptions::default(), |_| ()).await?;
    /// assert!(report.agrees());
    /// println!("{}", report.text(false));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A tree of no size or too large, or nothing to run.
    ///
    /// # Cancel safety
    /// Dropped before its end, it ends its requests and removes what it made on the servers.
    pub async fn matrix(
        &self,
        options: &MatrixOptions,
        progress: impl Fn(MatrixProgress) + Send + Sync,
    ) -> Result<MatrixReport, MatrixError> {
        self.matrix_until(options, progress, std::future::pending()).await
    }

    /// The same, until `stop` comes: places that are not through by then are [unusable](MatrixReport::unusable).
    /// What was made there is removed in the background; that is done when the lab has been dropped.
    ///
    /// # Errors
    /// As of [`matrix`](Self::matrix).
    ///
    /// # Cancel safety
    /// As of [`matrix`](Self::matrix).
    pub async fn matrix_until(
        &self,
        options: &MatrixOptions,
        progress: impl Fn(MatrixProgress) + Send + Sync,
        stop: impl Future<Output = ()>,
    ) -> Result<MatrixReport, MatrixError> {
        options.tree.check()?;
        if options.places.is_empty() || options.modes.is_empty() {
            return Err(MatrixError::Nothing);
        }
        let begun = Instant::now();
        let progress: &(dyn Fn(MatrixProgress) + Send + Sync) = &progress;
        let mut runs = Vec::new();
        for &place in &options.places {
            runs.push(async move { (place, run::place(self, place, options, progress).await) });
        }
        let jobs = options.jobs.max(1);
        let mut all = Vec::new();
        let finished = async {
            let mut runs = std::pin::pin!(futures_util::stream::iter(runs).buffer_unordered(jobs));
            while let Some(ran) = runs.next().await {
                all.push(ran);
            }
        };
        tokio::select! {
            () = finished => {}
            () = stop => {}
        }
        let mut report = MatrixReport {
            tree: options.tree,
            boards: Vec::new(),
            unusable: Vec::new(),
            elapsed: begun.elapsed(),
        };
        for &place in &options.places {
            let at = all.iter().position(|(known, _)| *known == place);
            match at.map(|at| all.swap_remove(at)) {
                Some((_, Ok(boards))) => report.boards.extend(boards),
                Some((_, Err(error))) => {
                    report.unusable.push(UnusablePlace { place, why: error.to_string() });
                }
                None => report.unusable.push(UnusablePlace { place, why: INTERRUPTED.to_owned() }),
            }
        }
        Ok(report)
    }
}
