//! Compares the formulas with simulations of real keys and plans and with textbook values, and checks extreme arguments.

use super::spread::bucket_groups;
use super::{Collisions, LevelLoad, Workload, sharing_chance};
use crate::{Buckets, Claim, Hierarchy, Mode, ModeSet, Plan, SlotMode, Slots, Target};
use fastrand::Rng;
use proptest::prelude::*;
use std::collections::HashMap;

fn buckets(count: u32) -> Buckets {
    Buckets::new(count).unwrap()
}

/// Returns a node with unique IDs.
fn random_node(random: &mut Rng, level: usize) -> Target {
    let ids = ["u", "a", "r"].map(|prefix| format!("{prefix}{}", random.u64(..)));
    Target::path(&ids[..=level]).unwrap()
}

/// Asserts that the mean of the values is within four standard errors of the expected value. One in 16,000 would not be,
/// and the seeds are fixed.
fn assert_mean(values: &[f64], expected: f64, name: &str) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = (variance / count).sqrt();
    assert!((mean - expected).abs() <= 4.0 * error, "{name}: {mean} ± {error}, not {expected}");
}

#[test]
fn collisions_match_a_simulation_with_real_keys() {
    let mut random = Rng::with_seed(15);
    for (count, nodes) in
        [(1, 20), (7, 5), (100, 100), (1000, 5000), (65_536, 900), (20_000, 10_000)]
    {
        let trials = (0..24).map(|_| {
            let mut loads = HashMap::<u32, u64>::new();
            for _ in 0..nodes {
                *loads.entry(random_node(&mut random, 2).bucket(buckets(count))).or_default() += 1;
            }
            loads.into_values().collect::<Vec<_>>()
        });
        let trials: Vec<Vec<u64>> = trials.collect();
        let expected = Collisions::expected(buckets(count), nodes);
        let of_each = |statistic: &dyn Fn(&Vec<u64>) -> u64| -> Vec<f64> {
            trials.iter().map(|loads| statistic(loads) as f64).collect()
        };
        let named = |name| format!("{nodes} nodes in {count} buckets: {name}");
        let sharing = of_each(&|loads| loads.iter().filter(|load| **load > 1).sum());
        assert_mean(&sharing, expected.sharing_nodes, &named("sharing nodes"));
        let pairs = of_each(&|loads| loads.iter().map(|load| load * (load - 1) / 2).sum());
        assert_mean(&pairs, expected.pairs, &named("pairs"));
        assert_mean(&of_each(&|loads| loads.len() as u64), expected.used_buckets, &named("used"));
        let mut fullest = of_each(&|loads| loads.iter().copied().max().unwrap());
        fullest.sort_by(f64::total_cmp);
        let difference = (fullest[trials.len() / 2] - expected.fullest_bucket as f64).abs();
        assert!(difference <= 1.0, "{}: {fullest:?}, not {expected:?}", named("fullest"));
    }
}

/// Most programs number their IDs. FNV-1a puts hardly more of them into one bucket than chance would, and with many
/// buckets fewer.
#[test]
fn sequential_ids_collide_hardly_more_than_random_ones() {
    for (count, nodes) in [(1000, 2000), (100_000, 50_000), (10_000_000, 60_000)] {
        let mut loads = HashMap::<u32, u64>::new();
        for number in 0..nodes {
            let id = format!("r{number}");
            let node = Target::resource("u1", "a1", &id).unwrap();
            *loads.entry(node.bucket(buckets(count))).or_default() += 1;
        }
        let pairs: u64 = loads.values().map(|load| load * (load - 1) / 2).sum();
        let expected = Collisions::expected(buckets(count), nodes).pairs;
        assert!((pairs as f64) < 1.2 * expected, "{count}: {pairs} pairs, not {expected}");
    }
}

/// Held buckets, each in its strongest mode.
struct HeldBuckets(HashMap<(usize, u64), SlotMode>);

impl HeldBuckets {
    fn acquire(targets: impl IntoIterator<Item = Target>, slots: Slots) -> Self {
        let mut held = HashMap::new();
        for target in targets {
            for step in plan(target, slots).steps() {
                let mode = held.entry((step.level, step.slot)).or_insert(step.mode);
                *mode = (*mode).max(step.mode);
            }
        }
        Self(held)
    }

    fn block(&self, target: Target, slots: Slots) -> bool {
        let conflicts = |step: crate::Step| {
            let held = self.0.get(&(step.level, step.slot));
            held.is_some_and(|held| [*held, step.mode].contains(&SlotMode::Exclusive))
        };
        plan(target, slots).steps().any(conflicts)
    }
}

fn plan(target: Target, slots: Slots) -> Plan {
    let claim = Claim { target, mode: Mode::Exclusive };
    Plan::new(&Hierarchy::default(), [claim], slots, ModeSet::SharedExclusive).unwrap()
}

#[test]
fn false_contention_matches_a_simulation_with_real_plans() {
    let mut random = Rng::with_seed(2026);
    for (count, held) in [
        (1, [0, 0, 1]),
        (7, [0, 0, 3]),
        (1000, [0, 0, 50]),
        (10_000, [0, 0, 500]),
        (500, [10, 0, 0]),
        (500, [3, 20, 60]),
    ] {
        let slots = Slots::Buckets(buckets(count));
        let levels = held.map(|held| LevelLoad { nodes: u64::MAX, held }).to_vec();
        let workload = Workload { levels };
        for level in 0..3 {
            let trials = (0..24).map(|_| {
                let targets = (0..3).flat_map(|level| vec![level; held[level] as usize]);
                let targets: Vec<Target> =
                    targets.map(|level| random_node(&mut random, level)).collect();
                let held = HeldBuckets::acquire(targets, slots);
                let acquires = 200;
                let blocked = (0..acquires)
                    .filter(|_| held.block(random_node(&mut random, level), slots))
                    .count();
                blocked as f64 / f64::from(acquires)
            });
            let expected = workload.false_contention(slots, level);
            let name = format!("{held:?} held in {count} buckets, level {level}");
            assert_mean(&trials.collect::<Vec<_>>(), expected, &name);
        }
    }
}

/// All locks are below the only other user, so an acquire of a user can conflict with one bucket and not with a hundred.
#[test]
fn a_level_with_few_nodes_has_less_false_contention() {
    let mut random = Rng::with_seed(7);
    let slots = Slots::Buckets(buckets(20));
    let mut workload = Workload::of_leaves(3, 1_000_000, 100);
    workload.levels[0].nodes = 2;
    let trials = (0..2000).map(|_| {
        let user = format!("u{}", random.u64(..));
        let below = (0..100).map(|i| Target::resource(&user, "a", &format!("r{i}")).unwrap());
        let held = HeldBuckets::acquire(below, slots);
        f64::from(u8::from(held.block(random_node(&mut random, 0), slots)))
    });
    assert_mean(&trials.collect::<Vec<_>>(), workload.false_contention(slots, 0), "a user");
    assert!(workload.false_contention(slots, 2) > 0.99);
}

#[test]
fn results_match_textbook_values() {
    let close = |computed: f64, expected: f64| {
        assert!((computed / expected - 1.0).abs() < 1e-6, "{computed}, not {expected}");
    };
    // 23 people, if a year had 512 days: 1 - (1 - 1/512)^22 for one of them, 23 · 22 / 2 / 512 pairs.
    let year = buckets(512);
    close(sharing_chance(Slots::Buckets(year), 22), 1.0 - (511.0_f64 / 512.0).powi(22));
    let birthdays = Collisions::expected(year, 23);
    close(birthdays.pairs, 253.0 / 512.0);
    close(birthdays.used_buckets, 512.0 * (1.0 - (511.0_f64 / 512.0).powi(23)));
    close(sharing_chance(Slots::Keys, 200), 200.0 / 2.0_f64.powi(64));
    close(sharing_chance(Slots::Bytes, 200), 200.0 / 2.0_f64.powi(60));
    assert_eq!(sharing_chance(Slots::Paths, u64::MAX), 0.0);
    // As many nodes as buckets: about ln n / ln ln n.
    assert_eq!(Collisions::expected(buckets(1_000_000), 1_000_000).fullest_bucket, 9);
}

#[test]
fn extreme_arguments_give_finite_results() {
    let counts = [0, 1, 2, 1000, 1 << 32, u64::MAX - 1, u64::MAX];
    for count in [1, 2, 3, 10_000_000, i32::MAX as u32] {
        let slots = Slots::Buckets(buckets(count));
        for nodes in counts {
            let Collisions { sharing_nodes, pairs, neighbours, used_buckets, fullest_bucket } =
                Collisions::expected(buckets(count), nodes);
            for value in [sharing_nodes, pairs, neighbours, used_buckets] {
                assert!(value.is_finite() && value >= 0.0, "{nodes} in {count}: {value}");
            }
            assert!(sharing_nodes <= nodes as f64 && used_buckets <= f64::from(count) * 1.000_001);
            assert!(fullest_bucket <= nodes && fullest_bucket >= nodes / u64::from(count));
            for held in counts {
                let workload = Workload { levels: vec![LevelLoad { nodes, held }; 8] };
                for level in [0, 7, 8] {
                    let chance = workload.false_contention(slots, level);
                    assert!((0.0..=1.0).contains(&chance), "{nodes} {held} in {count}: {chance}");
                }
                _ = workload.smallest_buckets(0.001);
            }
        }
    }
    assert_eq!(Workload::default().highest_false_contention(Slots::Keys), 0.0);
    assert_eq!(Workload::of_leaves(3, 1, u64::MAX).smallest_buckets(0.0), Some(buckets(1000)));
    assert_eq!(Workload::of_leaves(3, u64::MAX, u64::MAX).smallest_buckets(0.001), None);
}

proptest! {
    #[test]
    fn groups_cover_all_buckets_and_all_hashes(count in 1..=i32::MAX as u32) {
        let groups = bucket_groups(buckets(count));
        let slots: f64 = groups.iter().map(|group| group.slots).sum();
        let chance: f64 = groups.iter().map(|group| group.slots * group.chance).sum();
        prop_assert_eq!(slots, f64::from(count));
        prop_assert!((chance - 1.0).abs() < 1e-12);
    }

    #[test]
    fn more_buckets_and_fewer_locks_have_less_contention(
        count in 1..=i32::MAX as u32 / 2, held in 0..1_u64 << 40, nodes in 0..1_u64 << 40
    ) {
        let workload = |held| Workload::of_leaves(3, nodes, held);
        let chance = |count, held| {
            workload(held).highest_false_contention(Slots::Buckets(buckets(count)))
        };
        prop_assert!(chance(2 * count, held) <= chance(count, held));
        prop_assert!(chance(count, held) <= chance(count, 2 * held));
        let (few, many) = (Collisions::expected(buckets(count), nodes),
                           Collisions::expected(buckets(2 * count), nodes));
        prop_assert!(many.pairs <= few.pairs && many.sharing_nodes <= few.sharing_nodes);
        prop_assert!(many.fullest_bucket <= few.fullest_bucket);
    }

    #[test]
    fn the_smallest_bucket_count_reaches_the_target_and_a_tenth_of_it_does_not(
        held in 0..1_000_000_u64, target in 1e-6..1.0
    ) {
        let workload = Workload::of_leaves(3, u64::MAX, held);
        let chance = |count| workload.highest_false_contention(Slots::Buckets(buckets(count)));
        match workload.smallest_buckets(target) {
            Some(smallest) => {
                prop_assert!(chance(smallest.count()) <= target);
                prop_assert!(smallest.count() == 1000 || chance(smallest.count() / 10) > target);
            }
            None => prop_assert!(chance(1_000_000_000) > target),
        }
    }
}
