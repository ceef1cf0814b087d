//! Many at once, at random.

use crate::{GENEROUS, Intentions, matrix::nodes, until_idle};
use hierlock::backend::{Backend, Hold};
use hierlock::{Guard, Hierlock, Mode, Target};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// A small generator of our own: the same run for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Who is inside, leaf by leaf.
struct Inside(Mutex<BTreeMap<Target, Vec<Visit>>>);

/// Somebody who is.
struct Visit {
    task: usize,
    mode: Mode,
    /// What it holds.
    targets: BTreeMap<Target, Mode>,
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.targets.iter().map(|(target, mode)| format!("{mode} {target}"));
        write!(f, "task {} ({})", self.task, held.collect::<Vec<_>>().join(", "))
    }
}

impl Inside {
    fn new() -> Self {
        let leaves = nodes().into_iter().filter(|node| node.level() == 2);
        Self(Mutex::new(leaves.map(|leaf| (leaf, Vec::new())).collect()))
    }

    /// Each leaf that a guard covers, in the strongest mode in which it does. A visitor who must not be
    /// there is told with whom it met.
    fn enter<H: Hold>(&self, task: usize, guard: &Guard<H>) {
        let targets = guard.targets();
        for (leaf, visits) in &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let over = targets.iter().filter(|(target, _)| target.contains(leaf));
            let Some(mode) = over.map(|(_, mode)| *mode).max() else { continue };
            // An updater goes with readers, but not with another.
            let excludes = |visit: &&Visit| match [mode, visit.mode] {
                [Mode::Update, Mode::Update] => true,
                both => both.contains(&Mode::Exclusive),
            };
            let visit = Visit { task, mode, targets: targets.clone() };
            if let Some(other) = visits.iter().find(excludes) {
                panic!("{visit} meets {other} in {leaf}");
            }
            visits.push(visit);
        }
    }

    fn leave(&self, task: usize) {
        for visits in self.0.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            visits.retain(|visit| visit.task != task);
        }
    }
}

/// All to their end, also if one has failed: another may tell why.
async fn joined(tasks: Vec<JoinHandle<()>>) {
    let mut ended = Vec::new();
    for task in tasks {
        ended.push(task.await);
    }
    for end in ended {
        end.unwrap();
    }
}

pub async fn random_acquires_never_deadlock_and_never_overlap<B: Backend>(
    locks: Hierlock<B>,
    _: Intentions,
) {
    const TASKS: usize = 20;
    const EACH: usize = 100;
    let (nodes, inside) = (Arc::new(nodes()), Arc::new(Inside::new()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (locks, nodes, inside) = (locks.clone(), nodes.clone(), inside.clone());
            tokio::spawn(async move {
                let mut dice = Dice(task as u64);
                for _ in 0..EACH {
                    let mut request = locks.request(nodes[dice.below(nodes.len())].clone());
                    for _ in 0..dice.below(4) {
                        let mode = [Mode::Shared, Mode::Update, Mode::Exclusive][dice.below(3)];
                        request = request.and(nodes[dice.below(nodes.len())].clone(), mode);
                    }
                    let guard = request.within(GENEROUS).acquire().await.expect("never a deadlock");
                    inside.enter(task, &guard);
                    tokio::task::yield_now().await;
                    inside.leave(task);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    joined(tasks).await;
    until_idle(&locks).await;
}

/// Guards that grow at random do meet deadlocks; someone is always told, and all end.
pub async fn random_extensions_are_never_stuck<B: Backend>(locks: Hierlock<B>, _: Intentions) {
    const TASKS: usize = 16;
    const EACH: usize = 60;
    let (nodes, inside) = (Arc::new(nodes()), Arc::new(Inside::new()));
    let grown = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (locks, nodes, inside) = (locks.clone(), nodes.clone(), inside.clone());
            let grown = grown.clone();
            tokio::spawn(async move {
                let mut dice = Dice(1000 + task as u64);
                for _ in 0..EACH {
                    let mode = [Mode::Shared, Mode::Update, Mode::Exclusive][dice.below(3)];
                    let first = nodes[dice.below(nodes.len())].clone();
                    let mut guard = locks.request(first).mode(mode).acquire().await.unwrap();
                    tokio::task::yield_now().await;
                    let more = nodes[dice.below(nodes.len())].clone();
                    let grows = match dice.below(3) {
                        0 => guard.upgrade().await,
                        _ => guard.request(more).within(GENEROUS).acquire().await,
                    };
                    match grows {
                        Ok(()) => _ = grown.fetch_add(1, Ordering::Relaxed),
                        Err(error) => assert!(error.is_deadlock(), "{error}"),
                    }
                    // Whoever failed holds what it had, and nobody else is in there.
                    inside.enter(task, &guard);
                    tokio::task::yield_now().await;
                    inside.leave(task);
                }
            })
        })
        .collect();
    joined(tasks).await;
    assert!(grown.load(Ordering::Relaxed) > 0);
    until_idle(&locks).await;
}
