//! Many tasks lock random nodes at the same time.

use crate::{MAX_WAIT, matrix::nodes, until_idle};
use fastrand::Rng;
use hierlock::backend::{Backend, Hold};
use hierlock::{Guard, Hierlock, Mode, Target};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

fn mode(random: &mut Rng) -> Mode {
    [Mode::Shared, Mode::Update, Mode::Exclusive][random.usize(..3)]
}

fn node(random: &mut Rng, nodes: &[Target]) -> Target {
    nodes[random.usize(..nodes.len())].clone()
}

/// The tasks that currently have access to each leaf.
struct Leaves(Mutex<BTreeMap<Target, Vec<Visitor>>>);

struct Visitor {
    task: usize,
    mode: Mode,
    targets: BTreeMap<Target, Mode>,
}

impl Leaves {
    fn new() -> Self {
        let leaves = nodes().into_iter().filter(|node| node.level() == 2);
        Self(Mutex::new(leaves.map(|leaf| (leaf, Vec::new())).collect()))
    }

    /// Records access to each leaf that a guard covers, in the strongest mode that covers it, and ends the access
    /// again.
    async fn visit<H: Hold>(&self, task: usize, guard: &Guard<H>) {
        self.enter(task, &guard.targets());
        tokio::task::yield_now().await;
        for visitors in self.0.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            visitors.retain(|visitor| visitor.task != task);
        }
    }

    /// Panics if the access of two tasks to a leaf conflicts, and names both.
    fn enter(&self, task: usize, targets: &BTreeMap<Target, Mode>) {
        for (leaf, visitors) in &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let covering = targets.iter().filter(|(target, _)| target.contains(leaf));
            let Some(mode) = covering.map(|(_, mode)| *mode).max() else { continue };
            // An update lock is compatible with readers, but not with another update lock.
            let excludes = |other: &&Visitor| match [mode, other.mode] {
                [Mode::Update, Mode::Update] => true,
                both => both.contains(&Mode::Exclusive),
            };
            if let Some(Visitor { task: other, targets: held, .. }) = visitors.iter().find(excludes)
            {
                panic!(
                    "{leaf} is accessed by task {task} ({targets:?}) and task {other} ({held:?})"
                );
            }
            visitors.push(Visitor { task, mode, targets: targets.clone() });
        }
    }
}

/// Runs tasks concurrently, all to their end even if one fails, because another may show the reason.
async fn run_tasks<F: Future<Output = ()> + Send + 'static>(
    count: usize,
    task: impl Fn(usize, Arc<Vec<Target>>, Arc<Leaves>) -> F,
) {
    let (nodes, leaves) = (Arc::new(nodes()), Arc::new(Leaves::new()));
    let tasks: Vec<_> =
        (0..count).map(|i| tokio::spawn(task(i, nodes.clone(), leaves.clone()))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await);
    }
    for result in results {
        result.unwrap();
    }
}

pub async fn random_acquires_never_deadlock_and_never_overlap<B: Backend>(locks: Hierlock<B>) {
    run_tasks(20, |task, nodes, leaves| {
        let locks = locks.clone();
        async move {
            let mut random = Rng::with_seed(task as u64);
            for _ in 0..100 {
                let mut request = locks.request(node(&mut random, &nodes));
                for _ in 0..random.usize(..4) {
                    let mode = mode(&mut random);
                    request = request.and(node(&mut random, &nodes), mode);
                }
                let guard = request.within(MAX_WAIT).acquire().await.expect("an acquire failed");
                leaves.visit(task, &guard).await;
                guard.release().await.unwrap();
            }
        }
    })
    .await;
    until_idle(&locks).await;
}

/// Random extensions do deadlock; then one of them fails, and all tasks end.
pub async fn random_extensions_never_hang<B: Backend>(locks: Hierlock<B>) {
    let extended = Arc::new(AtomicUsize::new(0));
    run_tasks(16, |task, nodes, leaves| {
        let (locks, extended) = (locks.clone(), extended.clone());
        async move {
            let mut random = Rng::with_seed(1000 + task as u64);
            for _ in 0..60 {
                let mode = mode(&mut random);
                let request = locks.request(node(&mut random, &nodes)).mode(mode);
                let mut guard = request.acquire().await.unwrap();
                tokio::task::yield_now().await;
                let added = node(&mut random, &nodes);
                let result = match random.usize(..3) {
                    0 => guard.upgrade().await,
                    _ => guard.request(added).within(MAX_WAIT).acquire().await,
                };
                match result {
                    Ok(()) => _ = extended.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert!(error.is_deadlock(), "{error}"),
                }
                // A failed extension keeps the locks of the guard, which still exclude others.
                leaves.visit(task, &guard).await;
            }
        }
    })
    .await;
    assert!(extended.load(Ordering::Relaxed) > 0);
    until_idle(&locks).await;
}
