//! Many at once, at random.

use crate::{GENEROUS, Intentions, matrix::nodes, until_idle};
use hierlock::{Guard, Hierlock, Mode, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// A small generator of our own: the same run for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Who is inside, leaf by leaf: the number of readers, or -1 for a writer.
struct Inside(BTreeMap<Target, AtomicI32>);

impl Inside {
    fn new() -> Self {
        let leaves = nodes().into_iter().filter(|node| node.level() == 2);
        Self(leaves.map(|leaf| (leaf, AtomicI32::new(0))).collect())
    }

    /// The strongest mode in which a guard covers each leaf.
    fn covered<'a>(
        &'a self,
        targets: &'a BTreeMap<Target, Mode>,
    ) -> impl Iterator<Item = (&'a Target, &'a AtomicI32, Mode)> {
        self.0.iter().filter_map(|(leaf, inside)| {
            let over = targets.iter().filter(|(target, _)| target.contains(leaf));
            over.map(|(_, mode)| *mode).max().map(|mode| (leaf, inside, mode))
        })
    }

    fn enter(&self, guard: &Guard) {
        let targets = guard.targets();
        for (leaf, inside, mode) in self.covered(&targets) {
            let (others, fits) = match mode {
                // An updater is a reader until it is upgraded.
                Mode::Shared | Mode::Update => {
                    let others = inside.fetch_add(1, Ordering::SeqCst);
                    (others, others >= 0)
                }
                Mode::Exclusive => {
                    let others = inside.swap(-1, Ordering::SeqCst);
                    (others, others == 0)
                }
            };
            assert!(fits, "{mode} {leaf} while {others} others are inside");
        }
    }

    fn leave(&self, guard: &Guard) {
        let targets = guard.targets();
        for (_, inside, mode) in self.covered(&targets) {
            match mode {
                Mode::Shared | Mode::Update => inside.fetch_sub(1, Ordering::SeqCst),
                Mode::Exclusive => inside.swap(0, Ordering::SeqCst),
            };
        }
    }
}

pub async fn random_acquires_never_deadlock_and_never_overlap(locks: Hierlock, _: Intentions) {
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
                        let mode = [Mode::Shared, Mode::Exclusive][dice.below(2)];
                        request = request.and(nodes[dice.below(nodes.len())].clone(), mode);
                    }
                    let guard = request.within(GENEROUS).acquire().await.expect("never a deadlock");
                    inside.enter(&guard);
                    tokio::task::yield_now().await;
                    inside.leave(&guard);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    until_idle(&locks).await;
}

/// Guards that grow at random do meet deadlocks; someone is always told, and all end.
pub async fn random_extensions_are_never_stuck(locks: Hierlock, _: Intentions) {
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
                    inside.enter(&guard);
                    tokio::task::yield_now().await;
                    inside.leave(&guard);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(grown.load(Ordering::Relaxed) > 0);
    until_idle(&locks).await;
}
