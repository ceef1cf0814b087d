//! Running the pairs: one node is held, another is asked for, and the lock manager (on a server, the
//! server) is asked whether the request waits. Nothing here knows what is expected to be seen, or sleeps
//! and hopes.
//!
//! ```text
//!   hold ──► request ──► granted: beside the holder
//!                   └──► waits for the holder, as the lock manager says
//!                           └──► release ──► granted: when the holder let go
//! ```

use super::MatrixOptions;
use super::expected::expected;
use super::ground::{Ground, GroundError};
use super::report::{MatrixBoard, MatrixCell, ModePair, PairOutcome};
use super::tree::Node;
use crate::lab::Lab;
use crate::place::Place;
use hierlock::{Guard, Hierlock, Mode, Target};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// How often the list of waiters is read; the library itself decides when it asks the server.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixProgress {
    /// Where.
    pub place: Place,
    /// How many pairs have been run there, in all modes.
    pub done: usize,
    /// How many there are.
    pub total: usize,
}

/// Why a place has nothing to show, in a sentence.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(transparent)]
    Ground(#[from] GroundError),
    #[error(transparent)]
    Locks(#[from] hierlock::Error),
    #[error("two nodes of the tree share a slot, so the pairs would say nothing")]
    SharedSlot,
}

/// All boards of one place, which is made before and removed afterwards, whatever happens.
pub(super) async fn place(
    lab: &Lab,
    place: Place,
    options: &MatrixOptions,
    progress: &(dyn Fn(MatrixProgress) + Send + Sync),
) -> Result<Vec<MatrixBoard>, PlaceError> {
    let nodes = options.tree.nodes();
    let targets = targets(&nodes)?;
    let ground = Ground::make(lab, place, &targets, options.buckets).await?;
    let boards = boards(place, options, (&nodes, &targets), &ground.locks, progress).await;
    let cleared = ground.clear().await;
    let boards = boards?;
    cleared?;
    Ok(boards)
}

/// The nodes, in the library's words.
pub(super) fn targets(nodes: &[Node]) -> hierlock::Result<Vec<Target>> {
    nodes.iter().map(|node| node.to_string().parse()).collect()
}

async fn boards(
    place: Place,
    options: &MatrixOptions,
    (nodes, targets): (&[Node], &[Target]),
    locks: &Hierlock,
    progress: &(dyn Fn(MatrixProgress) + Send + Sync),
) -> Result<Vec<MatrixBoard>, PlaceError> {
    if options.buckets.is_none() {
        // A slot that two nodes share is one step of a plan.
        let slots = locks.plan(targets.iter().cloned(), Mode::Exclusive)?.steps().len();
        if slots != nodes.len() {
            return Err(PlaceError::SharedSlot);
        }
    }
    let total = nodes.len() * nodes.len() * options.modes.len();
    let mut boards = Vec::new();
    let mut done = 0;
    for &modes in &options.modes {
        let begun = Instant::now();
        let mut cells = Vec::with_capacity(nodes.len() * nodes.len());
        for (held, hold) in nodes.iter().zip(targets) {
            for (requested, request) in nodes.iter().zip(targets) {
                let pair = Pair { locks, hold, request, modes, limit: options.limit };
                cells.push(MatrixCell {
                    held: held.clone(),
                    requested: requested.clone(),
                    expected: expected(place, (held, modes.held), (requested, modes.requested)),
                    seen: pair.run().await,
                });
                done += 1;
                progress(MatrixProgress { place, done, total });
            }
        }
        boards.push(MatrixBoard { place, modes, cells, elapsed: begun.elapsed() });
    }
    Ok(boards)
}

/// One ordered pair, to be run on locks that nobody else uses.
struct Pair<'a> {
    locks: &'a Hierlock,
    hold: &'a Target,
    request: &'a Target,
    modes: ModePair,
    limit: Duration,
}

impl Pair<'_> {
    /// Runs it; nothing is held before and after.
    async fn run(&self) -> PairOutcome {
        match self.observe().await {
            Ok(seen) => seen,
            Err(why) => {
                // What was dropped on the way here is given back by tasks; the next pair must not meet it.
                let nobody = async {
                    while !self.locks.holders().is_empty() {
                        sleep(LOOK_EVERY).await;
                    }
                };
                let _ = timeout(self.limit, nobody).await;
                PairOutcome::Odd { why }
            }
        }
    }

    async fn observe(&self) -> Result<PairOutcome, String> {
        let hold = self.locks.request(self.hold.clone()).mode(self.modes.held);
        let holder = self.in_time("the first lock", hold.within(self.limit).acquire()).await?;
        let request = self.locks.request(self.request.clone()).mode(self.modes.requested);
        let mut request = pin!(request.acquire());
        let begun = Instant::now();
        // A lock manager in this process knows at once; a server is asked by the library after a while.
        let mut looked = false;
        let at = loop {
            let pause = async {
                match looked {
                    false => yield_now().await,
                    true => sleep(LOOK_EVERY).await,
                }
            };
            tokio::select! {
                biased;
                got = &mut request => {
                    self.let_go(got).await?;
                    self.let_go(Ok(holder)).await?;
                    return Ok(PairOutcome::Granted);
                }
                () = pause => looked = true,
            }
            if let Some(at) = self.waits_for(&holder)? {
                break at;
            }
            if begun.elapsed() > self.limit {
                return Err(format!("neither granted nor seen to wait in {:?}", self.limit));
            }
        };
        self.let_go(Ok(holder)).await?;
        let got = self.in_time("the request, after the holder let go,", request).await;
        self.let_go(Ok(got?)).await?;
        Ok(PairOutcome::Blocked { at: at.to_string() })
    }

    /// The node at which somebody waits for the holder; nobody else is there to be waited for.
    fn waits_for(&self, holder: &Guard) -> Result<Option<Target>, String> {
        let all = self.locks.holders();
        let Some(wait) = all.into_iter().find_map(|somebody| somebody.waits) else {
            return Ok(None);
        };
        match wait.blocked_by == [holder.id()] {
            true => Ok(Some(wait.target)),
            false => Err(format!("waits at {}, but not for the holder", wait.target)),
        }
    }

    async fn in_time(
        &self,
        what: &str,
        lock: impl Future<Output = hierlock::Result<Guard>>,
    ) -> Result<Guard, String> {
        match timeout(self.limit, lock).await {
            Ok(got) => got.map_err(|error| format!("{what} failed: {error}")),
            Err(_) => Err(format!("{what} was not granted in {:?}", self.limit)),
        }
    }

    async fn let_go(&self, guard: hierlock::Result<Guard>) -> Result<(), String> {
        let guard = guard.map_err(|error| format!("fails: {error}"))?;
        guard.release().await.map_err(|error| format!("cannot be released: {error}"))
    }
}
