//! Tests of the lock manager as a whole: its invariants after every operation, its use of memory, plans over many shards,
//! and (with the feature `model`) its interleavings.

use super::{Manager, MemoryHold};
use crate::backend::WaitLimit;
use crate::plan::Claims;
use crate::{Claim, Hierarchy, Mode};
use std::sync::Arc;

pub(super) fn manager() -> Arc<Manager> {
    Arc::new(Manager::new(Hierarchy::default()))
}

fn claims(paths: &[&str], mode: Mode) -> Claims {
    paths.iter().map(|path| Claim { target: path.parse().unwrap(), mode }).collect()
}

/// Acquires, and waits if necessary.
async fn acquire(manager: &Arc<Manager>, paths: &[&str], mode: Mode) -> MemoryHold {
    let hold = MemoryHold::begin(manager, claims(paths, mode), None, WaitLimit::Forever).unwrap();
    hold.wait(WaitLimit::Forever).await.expect("ordered acquires do not deadlock");
    hold
}

/// Starts to extend a hold by a node. Returns the extension if it has to wait.
fn extend(hold: &mut MemoryHold, path: &str) -> Option<MemoryHold> {
    hold.begin_extension(claims(&[path], Mode::Exclusive), WaitLimit::Forever).unwrap()
}

impl Manager {
    fn is_empty(&self) -> bool {
        let locked = self.lock(super::manager::ALL_SHARDS);
        let sizes = |table: &super::table::Table| {
            [table.nodes.len(), table.owners.len(), table.waiting.len()]
        };
        locked.tables.iter().all(|table| sizes(table) == [0; 3])
    }
}

#[cfg(not(feature = "model"))]
mod plain {
    use super::*;
    use crate::backend::Hold as _;
    use crate::memory::manager::ALL_SHARDS;
    use crate::memory::node::Owner;
    use crate::mode::SlotMode;
    use crate::target::Target;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    impl Manager {
        /// Asserts the invariants of all tables:
        /// 1. The holders of each node are those of the tickets, and there is no other node.
        /// 2. Each waiting owner is once in the queue of the node that its ticket waits for, and in the list of waiters.
        /// 3. No two owners hold a node in conflicting modes.
        fn verify(&self) {
            let locked = self.lock(ALL_SHARDS);
            let mut held: BTreeMap<Target, Vec<(Owner, SlotMode)>> = BTreeMap::new();
            let mut waits: BTreeSet<(Target, Owner)> = BTreeSet::new();
            for entry in locked.owners() {
                for (node, mode) in entry.modes() {
                    held.entry(node).or_default().push((entry.ticket.owner, mode));
                }
                for ticket in entry.tickets() {
                    if let Some(step) = ticket.waits_at() {
                        assert!(waits.insert((ticket.steps.node(step), ticket.owner)));
                    }
                    assert!(ticket.taken() <= ticket.steps.list.len());
                }
            }
            let mut nodes = 0;
            for entry in locked.tables.iter().flat_map(|table| table.nodes.iter()) {
                nodes += 1;
                let node = entry.target.cut(entry.node.path_end.into());
                let holders = held.get(&node).map_or(&[][..], Vec::as_slice);
                for mode in SlotMode::ALL {
                    let expected = holders.iter().filter(|(_, held)| *held == mode).count();
                    assert_eq!(entry.node.holders(mode), expected, "{node} {mode}: {holders:?}");
                }
                for (i, (a, held)) in holders.iter().enumerate() {
                    for (b, other) in &holders[i + 1..] {
                        assert!(held.is_compatible_with(*other), "{node}: {a:?} {b:?}");
                    }
                }
                for waiter in entry.node.queue() {
                    assert!(waiter.ticket.waits_at().is_some());
                    assert!(waits.contains(&(node.clone(), waiter.owner)), "{node} {waiter:?}");
                }
            }
            assert_eq!(nodes, held.len(), "a node without a holder, or a hold without its node");
            let listed: BTreeSet<Owner> = locked.waiting().collect();
            assert_eq!(listed, waits.into_iter().map(|(_, owner)| owner).collect());
        }

        fn capacity(&self) -> usize {
            let locked = self.lock(ALL_SHARDS);
            let tables = locked.tables.iter();
            tables.map(|table| table.nodes.capacity() + table.owners.capacity()).sum()
        }
    }

    /// One operation on a manager. The numbers select an owner.
    #[derive(Clone, Debug)]
    enum Operation {
        Acquire(Claims, WaitLimit),
        Extend(usize, Claims, WaitLimit),
        Upgrade(usize),
        Poll(usize),
        Drop(usize),
        Cancel(usize),
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let paths = vec![
            "u1", "u2", "u1/a1", "u1/a2", "u2/a1", "u1/a1/r1", "u1/a1/r2", "u1/a2/r1", "u2/a1/r1",
        ];
        let mode = prop::sample::select(vec![Mode::Shared, Mode::Update, Mode::Exclusive]);
        let claim = (prop::sample::select(paths), mode)
            .prop_map(|(path, mode)| Claim { target: path.parse().unwrap(), mode });
        let claims = || prop::collection::vec(claim.clone(), 1..4).prop_map(Claims::from_vec);
        let limit = || prop::sample::select(vec![WaitLimit::Forever, WaitLimit::Never]);
        let owner = any::<usize>;
        let operation = prop_oneof![
            4 => (claims(), limit()).prop_map(|(claims, limit)| Operation::Acquire(claims, limit)),
            3 => (owner(), claims(), limit())
                .prop_map(|(owner, claims, limit)| Operation::Extend(owner, claims, limit)),
            1 => owner().prop_map(Operation::Upgrade),
            3 => owner().prop_map(Operation::Poll),
            3 => owner().prop_map(Operation::Drop),
            1 => owner().prop_map(Operation::Cancel),
        ];
        prop::collection::vec(operation, 1..60)
    }

    /// An owner that holds, waits, or waits for an extension. The extension is dropped first, like a future that borrows
    /// its guard.
    struct TestOwner {
        extension: Option<MemoryHold>,
        hold: MemoryHold,
    }

    impl TestOwner {
        fn is_waiting(&self) -> bool {
            self.extension.is_some() || !self.hold.is_complete()
        }

        fn extend(&mut self, claims: Claims, limit: WaitLimit) {
            if !self.is_waiting() {
                self.extension = self.hold.begin_extension(claims, limit).ok().flatten();
            }
        }

        fn poll(&mut self) {
            let waiting = self.extension.as_ref().unwrap_or(&self.hold);
            let mut context = Context::from_waker(Waker::noop());
            let polled = pin!(waiting.wait(WaitLimit::Forever)).poll(&mut context);
            let Poll::Ready(ended) = polled else { return };
            match (ended, self.extension.take()) {
                (Ok(()), Some(extension)) => self.hold.absorb(extension),
                (ended, extension) => {
                    assert!(ended.is_ok() || extension.is_some(), "the victim is an extension");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// After each operation the tables agree with the tickets, and at the end nothing is left. No deadlock is left:
        /// while some owners wait, at least one does not.
        #[test]
        fn the_invariants_hold_after_every_operation(operations in operations()) {
            let manager = manager();
            let mut owners: Vec<TestOwner> = vec![];
            for operation in operations {
                let count = owners.len().max(1);
                match operation {
                    Operation::Acquire(claims, limit) => {
                        let hold = MemoryHold::begin(&manager, claims, None, limit);
                        owners.extend(hold.map(|hold| TestOwner { extension: None, hold }));
                    }
                    _ if owners.is_empty() => {}
                    Operation::Extend(i, claims, limit) => owners[i % count].extend(claims, limit),
                    Operation::Upgrade(i) => {
                        let owner = &mut owners[i % count];
                        let exclusive = |target| Claim { target, mode: Mode::Exclusive };
                        let claims = owner.hold.targets().into_keys().map(exclusive).collect();
                        owner.extend(claims, WaitLimit::Forever);
                    }
                    Operation::Poll(i) => owners[i % count].poll(),
                    Operation::Drop(i) => drop(owners.swap_remove(i % count)),
                    Operation::Cancel(i) => {
                        owners[i % count].extension = None;
                        if !owners[i % count].hold.is_complete() {
                            owners.swap_remove(i % count);
                        }
                    }
                }
                manager.verify();
            }
            // Finishes all owners: those that do not wait are dropped. In one round an owner may only move from one queue
            // to the next, or fail as a victim, so several rounds are needed; a plan has few nodes.
            let mut rounds = 0;
            while !owners.is_empty() {
                owners.iter_mut().for_each(TestOwner::poll);
                manager.verify();
                owners.retain(TestOwner::is_waiting);
                manager.verify();
                rounds += 1;
                prop_assert!(rounds < 1_000, "the remaining owners wait for each other");
            }
            prop_assert!(manager.is_empty());
        }
    }

    #[tokio::test]
    async fn tables_shrink_after_releases() {
        let manager = manager();
        let empty = manager.capacity();
        let mut holds = vec![];
        for i in 0..100_000 {
            let path = format!("u{}/a{}/r{i}", i % 10, i % 100);
            holds.push(acquire(&manager, &[&path], Mode::Exclusive).await);
        }
        let full = manager.capacity();
        assert!(full > 100_000);
        holds.truncate(1_000);
        assert!(manager.capacity() < full / 8, "the tables must shrink while some holds are left");
        drop(holds);
        assert!(manager.is_empty());
        assert!(manager.capacity() < empty + 64 * 1024);
    }

    #[tokio::test]
    async fn a_plan_can_have_nodes_in_many_shards() {
        let manager = manager();
        let paths: Vec<String> = (0..500).map(|i| format!("u{i}/a")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut hold = acquire(&manager, &paths, Mode::Exclusive).await;
        assert_eq!(hold.modes().len(), 1000);
        let extension = claims(&["v1", "v2", "u7"], Mode::Shared);
        assert!(hold.begin_extension(extension, WaitLimit::Never).unwrap().is_none());
        assert_eq!(hold.modes().len(), 1002);
        drop(hold);
        assert!(manager.is_empty());
    }

    /// An extension that is leaked while it waits must not be granted after its guard is dropped: the node would never be
    /// released.
    #[tokio::test]
    async fn a_leaked_extension_ends_with_its_guard() {
        let manager = manager();
        let other = acquire(&manager, &["u1"], Mode::Exclusive).await;
        let mut hold = acquire(&manager, &["u2"], Mode::Exclusive).await;
        std::mem::forget(extend(&mut hold, "u1").expect("u1 is held"));
        drop(hold);
        drop(other);
        assert!(manager.is_empty());
    }
}

/// Tests with shuttle: every run is one interleaving of the threads' lock operations.
#[cfg(feature = "model")]
mod model {
    use super::*;
    use shuttle::future::block_on;
    use shuttle::thread::{self, JoinHandle};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
    use std::task::Poll;

    const RUNS: usize = 2_000;

    /// Runs a test under random schedules, and under PCT schedules with few preemptions. Nothing may be left at the end.
    fn explore(test: impl Fn(Arc<Manager>) + Send + Sync + Clone + 'static) {
        let run = move || {
            let manager = manager();
            test(manager.clone());
            assert!(manager.is_empty());
        };
        shuttle::check_random(run.clone(), RUNS);
        shuttle::check_pct(run, RUNS, 3);
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        thread::spawn(move || block_on(task))
    }

    fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn holders_exclude_each_other_and_every_waiter_is_woken() {
        explore(|manager| {
            let inside = Arc::new(AtomicI32::new(0));
            // Each pair conflicts with the others.
            let pairs = [["u1/a/r", "u2"], ["u2/a", "u1"], ["u1/a", "u2/b"]];
            join(pairs.map(|paths| {
                let (manager, inside) = (manager.clone(), inside.clone());
                spawn(async move {
                    let hold = acquire(&manager, &paths, Mode::Exclusive).await;
                    let common = acquire(&manager, &["z/z/z"], Mode::Exclusive).await;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners hold z/z/z");
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop((common, hold));
                })
            }));
        });
    }

    #[test]
    fn a_cancelled_wait_leaves_nothing() {
        explore(|manager| {
            let holds = manager.clone();
            let holder =
                spawn(async move { drop(acquire(&holds, &["u1/a1"], Mode::Exclusive).await) });
            let cancels = manager.clone();
            let canceller = spawn(async move {
                // Polled at most twice, then dropped: while it waits, is granted, or is complete.
                let paths = ["u1/a1/r1", "u2"];
                let mut acquire = pin!(acquire(&cancels, &paths, Mode::Exclusive));
                let mut polls = 0;
                poll_fn(|context| {
                    polls += 1;
                    match acquire.as_mut().poll(context) {
                        Poll::Ready(hold) => Poll::Ready(Some(hold)),
                        Poll::Pending if polls == 2 => Poll::Ready(None),
                        Poll::Pending => {
                            context.waker().wake_by_ref();
                            Poll::Pending
                        }
                    }
                })
                .await;
            });
            drop(block_on(acquire(&manager, &["u1"], Mode::Shared)));
            join([holder, canceller]);
        });
    }

    /// Two guards extend by each other's node.
    #[test]
    fn a_deadlock_has_one_victim_and_the_other_owner_continues() {
        explore(|manager| {
            let victims = Arc::new(AtomicUsize::new(0));
            let first = block_on(acquire(&manager, &["u1"], Mode::Exclusive));
            let second = block_on(acquire(&manager, &["u2"], Mode::Exclusive));
            join([(first, "u2"), (second, "u1")].map(|(mut hold, path)| {
                let victims = victims.clone();
                spawn(async move {
                    if let Some(extension) = extend(&mut hold, path)
                        && extension.wait(WaitLimit::Forever).await.is_err()
                    {
                        victims.fetch_add(1, Ordering::SeqCst);
                    }
                })
            }));
            assert_eq!(victims.load(Ordering::SeqCst), 1);
        });
    }

    /// The acquire has u1 and waits for u2; the extension has u3 and waits for u1; then u2 is released, and the acquire
    /// closes the cycle by waiting for u3. The deadlock must be detected, and the acquire must not be the victim.
    #[test]
    fn an_acquire_that_closes_a_cycle_is_not_the_victim() {
        explore(|manager| {
            let between = block_on(acquire(&manager, &["u2"], Mode::Exclusive));
            let mut hold = block_on(acquire(&manager, &["u3"], Mode::Exclusive));
            let extends = spawn(async move {
                if let Some(extension) = extend(&mut hold, "u1")
                    && extension.wait(WaitLimit::Forever).await.is_ok()
                {
                    hold.absorb(extension);
                }
            });
            let ordered = spawn(async move {
                drop(acquire(&manager, &["u1", "u2", "u3"], Mode::Exclusive).await);
            });
            thread::yield_now();
            drop(between);
            join([extends, ordered]);
        });
    }
}
