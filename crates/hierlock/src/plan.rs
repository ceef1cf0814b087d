//! From targets and modes to **one ordered list of slots without duplicates**. Pure code: it does not wait, lock or do I/O.
//!
//! The order is the same for all clients: ascending by (level, slot). A slot that is needed twice is in the list once, in
//! the strongest mode. So no two acquires can wait for each other (rule 2 in `DESIGN.md`).

use crate::error::TargetError;
use crate::key::{bucket_of, file_offset_of, key_hash_of};
use crate::{Buckets, Hierarchy, Mode, ModeSet, Result, SlotMode, Target};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A target and its requested mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The node to lock.
    pub target: Target,
    /// The requested mode.
    pub mode: Mode,
}

/// The claims of one request; nearly always one.
pub(crate) type Claims = SmallVec<[Claim; 1]>;

/// Returns the targets of claims, for errors.
pub(crate) fn targets_of(claims: &[Claim]) -> Vec<Target> {
    claims.iter().map(|claim| claim.target.clone()).collect()
}

/// Adds claims to a map that has each target once, in the strongest mode.
pub(crate) fn add_claims(strongest: &mut BTreeMap<Target, Mode>, claims: &[Claim]) {
    for Claim { target, mode } in claims {
        let before = strongest.entry(target.clone()).or_insert(*mode);
        *before = (*before).max(*mode);
    }
}

/// How a node becomes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slots {
    /// Every node has its own slot; ordered by path, and `slot` is 0.
    Paths,
    /// A striped bucket: [`Target::bucket`].
    Buckets(Buckets),
    /// A 64-bit key: [`Target::key_hash`].
    Keys,
    /// A byte of a file: [`Target::file_offset`].
    Bytes,
}

impl Slots {
    /// Returns the slot of the node with these bytes.
    fn number(self, path: &[u8]) -> u64 {
        match self {
            Slots::Paths => 0,
            Slots::Buckets(buckets) => bucket_of(path, buckets).into(),
            Slots::Keys => key_hash_of(path),
            Slots::Bytes => file_offset_of(path),
        }
    }
}

/// One slot of a plan, for callers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The node; if several nodes of the plan share the slot, the first of them.
    pub target: Target,
    /// The level of the node.
    pub level: usize,
    /// The slot of the node; 0 where slots are paths.
    pub slot: u64,
    /// The mode in which the slot is locked.
    pub mode: SlotMode,
}

/// Identifies a slot on any backend. The order is that of every plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotId {
    level: usize,
    slot: u64,
    /// The node, where slots are paths.
    path: Option<Target>,
}

/// One slot of a plan, for backends. Small: a million holds in memory have three million steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanStep {
    /// The number of the slot; in memory the hash of the node's path.
    pub(crate) slot: u64,
    /// The claim whose target is the node or below it.
    pub(crate) claim: u32,
    /// The length of the node's path within the bytes of that target.
    pub(crate) end: u16,
    pub(crate) mode: SlotMode,
    /// In an extension: the mode in which the owner holds the slot already.
    pub(crate) held: Option<SlotMode>,
}

/// Claims, and the nodes from the roots to their targets.
#[derive(Clone, Debug)]
pub(crate) struct PlanSteps {
    pub(crate) claims: Claims,
    pub(crate) list: SmallVec<[PlanStep; 3]>,
}

impl PlanSteps {
    /// Returns each node once, in the strongest mode: by level, if there is one claim, otherwise by path. `number` returns
    /// the slot of a node; it is called from each root downwards. Fails as [`Plan::new`] does.
    pub(crate) fn new(
        hierarchy: &Hierarchy,
        mut claims: Claims,
        modes: ModeSet,
        mut number: impl FnMut(&[u8]) -> u64,
    ) -> Result<Self> {
        if claims.is_empty() {
            return Err(TargetError::NoTarget.into());
        }
        for claim in &claims {
            hierarchy.check(&claim.target)?;
        }
        if claims.len() > 1 {
            // If a target is requested twice, the stronger mode comes first and the other is dropped.
            claims.sort_unstable_by(|a, b| {
                a.target.path_cmp(&b.target).then_with(|| b.mode.cmp(&a.mode))
            });
            claims.dedup_by(|later, first| later.target == first.target);
        }
        let mut list: SmallVec<[PlanStep; 3]> = SmallVec::new();
        // Claims are sorted by path. So an ancestor that a claim shares with any earlier claim, it shares with the
        // previous one. `last` has, for each level, the step of the last claim that has a node there.
        let mut last = [0; Hierarchy::MAX_LEVELS];
        let mut before: &[u8] = &[];
        for (claim, Claim { target, mode }) in claims.iter().enumerate() {
            let bytes = target.bytes();
            for (level, end) in target.ends().enumerate() {
                let mode = modes.of_node(*mode, end == bytes.len(), hierarchy.is_leaf(level));
                if before.starts_with(&bytes[..end]) {
                    let step = &mut list[last[level]];
                    step.mode = step.mode.join(mode);
                } else {
                    last[level] = list.len();
                    // 8 IDs of 255 bytes with their lengths are 2048 bytes, and 2³² claims do not fit into memory.
                    let (slot, claim, end) = (number(&bytes[..end]), claim as u32, end as u16);
                    list.push(PlanStep { slot, claim, end, mode, held: None });
                }
            }
            before = bytes;
        }
        Ok(Self { claims, list })
    }

    /// Returns the target of a step's claim: the node of the step, or a node below it.
    pub(crate) fn target(&self, step: &PlanStep) -> &Target {
        &self.claims[step.claim as usize].target
    }

    pub(crate) fn node(&self, step: &PlanStep) -> Target {
        self.target(step).cut(step.end.into())
    }

    pub(crate) fn path(&self, step: &PlanStep) -> &[u8] {
        &self.target(step).bytes()[..step.end.into()]
    }

    /// Sorts by level, then by `key`, then by path.
    pub(crate) fn sort_by_level<K: Ord>(&mut self, key: impl Fn(&PlanStep) -> K) {
        let Self { claims, list } = self;
        // The steps of a single claim are already in the order of their levels.
        if claims.len() > 1 {
            list.sort_by_cached_key(|step| (level_of(claims, step), key(step)));
        }
    }

    /// Merges nodes that share a slot into one step, in the strongest mode.
    fn merge_by_slot(&mut self) {
        let Self { claims, list } = self;
        list.dedup_by(|later, first| {
            let is_same =
                later.slot == first.slot && level_of(claims, later) == level_of(claims, first);
            if is_same {
                first.mode = first.mode.join(later.mode);
            }
            is_same
        });
    }
}

fn level_of(claims: &[Claim], step: &PlanStep) -> usize {
    let target = &claims[step.claim as usize].target;
    target.ends().take_while(|end| *end < step.end.into()).count()
}

/// The ordered slots and modes of one acquire.
///
/// ```
/// use hierlock::{Claim, Hierarchy, Mode, ModeSet, Plan, Slots, Target};
///
/// let claim = Claim { target: Target::resource("u1", "a1", "r1")?, mode: Mode::Exclusive };
/// let slots = Slots::Buckets(Default::default());
/// let plan = Plan::new(&Hierarchy::default(), [claim], slots, ModeSet::SharedExclusive)?;
/// let steps: Vec<_> = plan.steps().map(|s| format!("{} {} {}", s.target, s.slot, s.mode)).collect();
/// assert_eq!(steps, ["u1 2652417 shared", "u1/a1 4854276 shared", "u1/a1/r1 1358050 exclusive"]);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a plan locks nothing"]
pub struct Plan {
    steps: PlanSteps,
    slots: Slots,
}

impl Plan {
    /// Plans an acquire of all these claims together. Fails if there is no claim, or a target is deeper than the tree.
    pub fn new(
        hierarchy: &Hierarchy,
        claims: impl IntoIterator<Item = Claim>,
        slots: Slots,
        modes: ModeSet,
    ) -> Result<Self> {
        let number = |path: &[u8]| slots.number(path);
        let mut steps = PlanSteps::new(hierarchy, claims.into_iter().collect(), modes, number)?;
        steps.sort_by_level(|step| step.slot);
        if slots != Slots::Paths {
            steps.merge_by_slot();
        }
        Ok(Self { steps, slots })
    }

    getters! { self:
        /// Returns how nodes become slots in this plan.
        slots -> Slots = self.slots;
        /// Returns the requested targets and modes, sorted by path.
        claims -> &[Claim] = &self.steps.claims;
    }

    /// Returns the slots, in the order in which they are locked.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step> {
        self.steps.list.iter().map(|step| {
            let target = self.steps.node(step);
            Step { level: target.level(), target, slot: step.slot, mode: step.mode }
        })
    }

    pub(crate) fn id(&self, step: &Step) -> SlotId {
        let path = (self.slots == Slots::Paths).then(|| step.target.clone());
        SlotId { level: step.level, slot: step.slot, path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn plan(claims: &[(&str, Mode)], slots: Slots, modes: ModeSet) -> Plan {
        let claim =
            |(path, mode): &(&str, Mode)| Claim { target: path.parse().unwrap(), mode: *mode };
        Plan::new(&Hierarchy::default(), claims.iter().map(claim), slots, modes).unwrap()
    }

    #[test]
    fn a_plan_has_ancestors_and_targets_by_level() {
        let one = [("u1/a1/r1", Mode::Exclusive)];
        let several =
            [("u1", Mode::Shared), ("u1/a1/r1", Mode::Exclusive), ("u2/a1", Mode::Update)];
        for (claims, modes, expected) in [
            (&one[..], ModeSet::SharedExclusive, "u1 shared, u1/a1 shared, u1/a1/r1 exclusive"),
            (
                &several,
                ModeSet::Intentions,
                "u1 shared-intent-exclusive, u2 intent-exclusive, u1/a1 intent-exclusive, \
                 u2/a1 update, u1/a1/r1 exclusive",
            ),
        ] {
            let plan = plan(claims, Slots::Paths, modes);
            let steps: Vec<_> = plan.steps().map(|s| format!("{} {}", s.target, s.mode)).collect();
            assert_eq!(steps.join(", "), expected);
        }
    }

    /// The counterexample to ordering by ID: `r313` and `r36750` share a bucket, so {r35, r36750} and {r313, r35}, each
    /// in ID order, lock the same two rows in opposite order.
    #[test]
    fn slot_order_prevents_a_deadlock_that_id_order_would_have() {
        let buckets = Buckets::default();
        let by_id = |ids: [&str; 2]| {
            ids.map(|id| u64::from(Target::resource("u1", "a1", id).unwrap().bucket(buckets)))
        };
        let (first, second) = (by_id(["r35", "r36750"]), by_id(["r313", "r35"]));
        assert_eq!(first, [second[1], second[0]], "ID order locks the two rows in opposite order");

        let by_slot = |ids: [&str; 2]| -> Vec<u64> {
            let [a, b] = ids.map(|id| format!("u1/a1/{id}"));
            let claims = [(a.as_str(), Mode::Exclusive), (b.as_str(), Mode::Exclusive)];
            let plan = plan(&claims, Slots::Buckets(buckets), ModeSet::SharedExclusive);
            plan.steps().filter(|step| step.level == 2).map(|step| step.slot).collect()
        };
        assert_eq!(by_slot(["r35", "r36750"]), by_slot(["r313", "r35"]));
    }

    #[test]
    fn a_shared_bucket_is_one_step_in_the_strongest_mode() {
        let claims = [("u1/a1/r313", Mode::Shared), ("u1/a1/r36750", Mode::Exclusive)];
        let plan = plan(&claims, Slots::Buckets(Buckets::default()), ModeSet::SharedExclusive);
        assert_eq!(plan.steps().len(), 3);
        assert_eq!(plan.steps().last().unwrap().mode, SlotMode::Exclusive);
    }

    #[test]
    fn a_plan_without_a_target_is_an_error() {
        let nothing = Plan::new(&Hierarchy::default(), [], Slots::Paths, ModeSet::Intentions);
        assert!(nothing.unwrap_err().to_string().contains("no target"));
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let id = || prop::sample::select(vec!["a", "b", "c", "aa", "ユ"]);
        let mode = prop::sample::select(vec![Mode::Shared, Mode::Update, Mode::Exclusive]);
        let claim = (prop::collection::vec(id(), 1..=3), mode)
            .prop_map(|(ids, mode)| Claim { target: Target::path(ids).unwrap(), mode });
        prop::collection::vec(claim, 1..12)
    }

    proptest! {
        /// Compared with a model that does not sort: a map from slot to the joined mode.
        #[test]
        fn every_plan_is_sorted_and_has_each_slot_in_the_strongest_mode(claims in claims(), few in 1u32..40) {
            let tree = Hierarchy::default();
            let kinds = [Slots::Paths, Slots::Buckets(Buckets::new(few).unwrap()), Slots::Keys, Slots::Bytes];
            for slots in kinds {
                for modes in [ModeSet::Intentions, ModeSet::SharedExclusive, ModeSet::SharedUpdateExclusive] {
                    let plan = Plan::new(&tree, claims.clone(), slots, modes).unwrap();
                    let identity = |node: &Target| match slots {
                        Slots::Paths => (node.level(), 0, Some(node.clone())),
                        _ => (node.level(), slots.number(node.bytes()), None),
                    };
                    let mut model: HashMap<_, SlotMode> = HashMap::new();
                    for Claim { target, mode } in &claims {
                        for level in 0..=target.level() {
                            let wanted = if level == target.level() {
                                modes.target(*mode, tree.is_leaf(level))
                            } else {
                                modes.ancestor(*mode)
                            };
                            model
                                .entry(identity(&target.ancestor(level)))
                                .and_modify(|mode| *mode = mode.join(wanted))
                                .or_insert(wanted);
                        }
                    }
                    let steps: Vec<_> =
                        plan.steps().map(|step| (identity(&step.target), step.mode)).collect();
                    prop_assert!(steps.is_sorted_by(|a, b| a.0 < b.0), "{steps:?}");
                    prop_assert_eq!(steps.into_iter().collect::<HashMap<_, _>>(), model);
                }
            }
        }

        #[test]
        fn the_order_of_claims_does_not_change_a_plan(claims in claims().prop_shuffle(), seed in any::<u64>()) {
            let mut other = claims.clone();
            let turn = seed as usize % other.len();
            other.rotate_left(turn);
            let make = |claims| {
                Plan::new(&Hierarchy::default(), claims, Slots::Paths, ModeSet::Intentions).unwrap()
            };
            prop_assert!(make(claims).steps().eq(make(other).steps()));
        }
    }
}
