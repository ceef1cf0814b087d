//! Held and requested locks, for every ordered pair of nodes of a 3×3×3 tree.

use crate::{is_granted, spawn_acquire, target, until_idle, until_waiting};
use hierlock::backend::Backend;
use hierlock::{Hierlock, Mode, ModeSet, SlotMode, Target};

const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// Returns the 39 nodes of the tree.
pub fn nodes() -> Vec<Target> {
    let ids = |kind: char| (1..=3).map(move |i| format!("{kind}{i}"));
    let mut nodes = vec![];
    for user in ids('u') {
        nodes.push(Target::user(&user).unwrap());
        for account in ids('a') {
            nodes.push(Target::account(&user, &account).unwrap());
            nodes.extend(ids('r').map(|r| Target::resource(&user, &account, &r).unwrap()));
        }
    }
    assert_eq!(nodes.len(), 39);
    nodes
}

/// The model: two locks conflict if one node contains the other and one of the two locks is exclusive.
fn conflict(a: (&Target, Mode), b: (&Target, Mode), modes: ModeSet) -> bool {
    let related = a.0.contains(b.0) || b.0.contains(a.0);
    // Without intention modes an inner node is rounded up to exclusive.
    let is_exclusive = |(node, mode): (&Target, Mode)| {
        mode == Mode::Exclusive || (modes != ModeSet::Intentions && node.level() < 2)
    };
    related && (is_exclusive(a) || is_exclusive(b))
}

pub async fn every_pair_conflicts_as_the_model_says<B: Backend>(locks: Hierlock<B>) {
    let modes = locks.backend().modes();
    let nodes = nodes();
    let mut conflicts = 0;
    for held in &nodes {
        for held_mode in MODES {
            let guard = locks.request(held.clone()).mode(held_mode).acquire().await.unwrap();
            for wanted in &nodes {
                for mode in MODES {
                    let refused = !is_granted(locks.request(wanted.clone()).mode(mode)).await;
                    let expected = conflict((held, held_mode), (wanted, mode), modes);
                    assert_eq!(refused, expected, "{held_mode} {held}, then {mode} {wanted}");
                    conflicts += usize::from(refused);
                }
            }
            guard.release().await.unwrap();
        }
    }
    assert!(conflicts > 0);
    until_idle(&locks).await;
}

/// The same pairs, with waiting: each waiter is listed as waiting, and gets its lock when the holder releases.
pub async fn release_grants_the_lock_to_the_waiter<B: Backend>(locks: Hierlock<B>) {
    let nodes: Vec<_> =
        nodes().into_iter().filter(|node| node.to_string().starts_with("u1")).collect();
    for held in &nodes {
        for wanted in &nodes {
            if !held.contains(wanted) && !wanted.contains(held) {
                continue;
            }
            let guard = locks.acquire(held.clone()).await.unwrap();
            let waiter = spawn_acquire(&locks, &wanted.to_string());
            until_waiting(&locks, 1).await;
            assert!(!waiter.is_finished(), "{held}, then {wanted}");
            guard.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }
    until_idle(&locks).await;
}

pub async fn modes_are_never_weaker_than_requested<B: Backend>(locks: Hierlock<B>) {
    for node in nodes() {
        for mode in [Mode::Shared, Mode::Update, Mode::Exclusive] {
            let guard = locks.request(node.clone()).mode(mode).acquire().await.unwrap();
            let taken = guard.modes();
            assert_eq!(taken.len(), node.level() + 1, "the node and each ancestor");
            let requested = ModeSet::Intentions.target(mode, true);
            assert_eq!(taken[&node].join(requested), taken[&node], "{mode} {node}: {taken:?}");
            assert_eq!(guard.targets().into_iter().collect::<Vec<_>>(), [(node.clone(), mode)]);
            guard.release().await.unwrap();
        }
    }
}

/// An update lock is compatible with readers in either order; one that was rounded up is compatible with none.
pub async fn an_update_lock_is_compatible_only_with_readers<B: Backend>(locks: Hierlock<B>) {
    let node = target("u1/a1/r1");
    let plan = locks.request(node.clone()).mode(Mode::Update).plan().unwrap();
    let has_update_mode = plan.steps().any(|step| step.mode == SlotMode::Update);
    for held in [Mode::Update, Mode::Shared] {
        let guard = locks.request(node.clone()).mode(held).acquire().await.unwrap();
        for mode in [Mode::Shared, Mode::Update, Mode::Exclusive] {
            let expected = match (held, mode) {
                (Mode::Shared, Mode::Shared) => true,
                (Mode::Shared, Mode::Update) | (Mode::Update, Mode::Shared) => has_update_mode,
                _ => false,
            };
            let granted = is_granted(locks.request(node.clone()).mode(mode)).await;
            assert_eq!(granted, expected, "{held}, then {mode}");
        }
        guard.release().await.unwrap();
    }
    until_idle(&locks).await;
}

pub async fn unrelated_nodes_do_not_wait<B: Backend>(locks: Hierlock<B>) {
    let _guards = [
        locks.acquire(target("u1/a1/r1")).await.unwrap(),
        locks.acquire(target("u1/a1/r2")).await.unwrap(),
        locks.acquire(target("u1/a2")).await.unwrap(),
        locks.acquire(target("u2")).await.unwrap(),
    ];
}
