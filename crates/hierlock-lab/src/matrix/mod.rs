//! The exhaustive matrix: every ordered pair of nodes of a tree, one held and the other requested, on every backend. The
//! outcome is *observed*, and compared with rules that are implemented here a second time.
//!
//! ```text
//!   tree ──► every pair ──► pairs: a case each ──runner──► records ──► report ──► text, svg, JSON
//!     └────► expected: the documented rules ───────────────────────────┘
//! ```

mod expected;
mod pairs;
mod report;
mod svg;
mod text;
mod tree;

pub use report::{MatrixReport, ModePair, PairOutcome};
pub use tree::TreeSize;

use crate::engine::{BackendKind, Engine};
use crate::lab::{Lab, RunEvent};
use futures_util::{StreamExt, stream};
use std::time::Instant;

/// Options of a run of the matrix.
#[derive(Clone, Debug)]
pub struct MatrixOptions {
    /// The size of the tree.
    pub tree: TreeSize,
    /// The backends, in the order of the report.
    pub backends: Vec<BackendKind>,
    /// The combinations of modes, each with a board of its own.
    pub modes: Vec<ModePair>,
    /// The number of backends that run at the same time. The pairs of one backend run one after the other.
    pub jobs: usize,
    /// The number of buckets of striped backends; by default so many that no two nodes share one.
    pub buckets: Option<u32>,
}

impl Default for MatrixOptions {
    /// 2×2×2, exclusive, on the engines that need no server.
    fn default() -> Self {
        Self {
            tree: TreeSize::default(),
            backends: BackendKind::all([Engine::Memory, Engine::File]),
            modes: vec![ModePair::EXCLUSIVE],
            jobs: 4,
            buckets: None,
        }
    }
}

/// The reason why the options cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// The text does not consist of three numbers.
    #[error(
        "`{0}` is not a tree; write how many users, accounts each and resources each, such as 2x2x2"
    )]
    Unreadable(String),
    /// A tree without nodes, or with too many.
    #[error("a tree of {0} has {nodes} nodes; it may have 1 to {max}", nodes = .0.len(), max = TreeSize::MAX_NODES)]
    TreeSize(TreeSize),
    /// No backend, or no modes.
    #[error("there is nothing to run: name at least one backend and one combination of modes")]
    Nothing,
}

impl Lab {
    /// Runs every pair on every backend of these options, on the servers of this lab. The report contains a backend as soon
    /// as it has ended or failed; a failure does not stop the others. `on_event` is called for each event as it
    /// happens: each pair is a case.
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
    /// If the future is dropped, it cancels its requests and removes its databases; the report contains the backends that
    /// have ended.
    pub async fn matrix(
        &self,
        options: &MatrixOptions,
        report: &mut MatrixReport,
        on_event: impl Fn(RunEvent<'_>) + Sync,
    ) {
        let (started, on_event) = (Instant::now(), &on_event);
        let planned = options.tree.pairs() * options.modes.len() * options.backends.len();
        on_event(RunEvent::RunStarted { planned });
        let runs = stream::iter(&options.backends).map(|&backend| async move {
            (backend, pairs::run_backend(self, backend, options, on_event).await)
        });
        let mut runs = std::pin::pin!(runs.buffer_unordered(options.jobs.max(1)));
        while let Some((backend, boards)) = runs.next().await {
            report.add(backend, boards, options);
            report.elapsed = started.elapsed();
        }
        on_event(RunEvent::RunFinished);
    }
}
