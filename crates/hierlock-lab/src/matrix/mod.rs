//! The exhaustive matrix: every ordered pair of nodes of a tree, one held and the other requested, at
//! every place. What blocks is *observed*, and compared with rules that are stated here once more.
//!
//! ```text
//!   tree ──► every pair ──► pairs: a case each ──runner──► records ──► report ──► text, svg, JSON
//!     └────► expected: the rules, as told to people ───────────────────┘
//! ```

mod expected;
mod pairs;
mod report;
mod svg;
mod text;
mod tree;

pub use report::{MatrixReport, ModePair, PairOutcome};
pub use tree::TreeSize;

use crate::lab::{Lab, RunEvent};
use crate::place::{Engine, Place};
use futures_util::{StreamExt, stream};
use std::time::Instant;

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
    /// The number of buckets of striped places; by default so many that no two nodes share one.
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
            buckets: None,
        }
    }
}

/// What cannot be run at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// A text that is not three numbers.
    #[error(
        "`{0}` is no tree; write how many users, accounts each and resources each, such as 2x2x2"
    )]
    Unreadable(String),
    /// A tree without a user, or with too many pairs to run.
    #[error("a tree of {0} has {nodes} nodes; it may have 1 to {max}", nodes = .0.len(), max = TreeSize::MOST_NODES)]
    TreeSize(TreeSize),
    /// Nowhere, or in no mode.
    #[error("there is nothing to run: name at least one place and one combination of modes")]
    Nothing,
}

impl Lab {
    /// Runs every pair at every place of these options, on the servers of this lab. A place is in the report as
    /// soon as it is done, or has failed; the others are run all the same. `on_event` is called with what
    /// happens, as it happens: each pair is a case.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use hierlock_lab::{Lab, MatrixOptions, MatrixReport};
    ///
    /// let options = MatrixOptions::default();
    /// let mut report = MatrixReport::new(&options)?;
    /// Lab::new()?.matrix(&options, &mut report, |_| ()).await;
    /// assert!(report.agrees());
    /// println!("{}", report.text(false));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropped before its end, it cancels its requests and removes what it made on the servers; the report has
    /// the places that were done by then.
    pub async fn matrix(
        &self,
        options: &MatrixOptions,
        report: &mut MatrixReport,
        on_event: impl Fn(RunEvent<'_>) + Sync,
    ) {
        let (started, on_event) = (Instant::now(), &on_event);
        let planned = options.tree.pairs() * options.modes.len() * options.places.len();
        on_event(RunEvent::RunStarted { planned });
        let runs = stream::iter(&options.places).map(|&place| async move {
            (place, pairs::run_place(self, place, options, on_event).await)
        });
        let mut runs = std::pin::pin!(runs.buffer_unordered(options.jobs.max(1)));
        while let Some((place, boards)) = runs.next().await {
            report.add(place, boards, options);
            report.elapsed = started.elapsed();
        }
        on_event(RunEvent::RunFinished);
    }
}
