//! From targets and modes to **one ordered, de-duplicated list of slots**. Pure: nothing here
//! waits, locks or talks to anyone.
//!
//! The order is the same for everyone: ascending by (level, slot), and a slot that is needed twice
//! is taken once, in the strongest mode, *before* anything is held. So no two acquires can wait for
//! each other (rule 2 in `DESIGN.md`).

use crate::error::{Result, TargetError};
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use crate::mode::{Mode, ModeSet, SlotMode};
use crate::target::Target;
use smallvec::SmallVec;

/// A target and the mode it is asked for in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What to lock.
    pub target: Target,
    /// How.
    pub mode: Mode,
}

/// What is asked for together; nearly always one.
pub(crate) type Claims = SmallVec<[Claim; 1]>;

/// How a node becomes a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slots {
    /// Every node is a slot of its own; ordered by path, and `slot` is 0.
    Paths,
    /// A striped bucket: [`Target::bucket`].
    Buckets(Buckets),
    /// A 64-bit key: [`Target::key_hash`].
    Keys,
    /// A byte of a file: [`Target::file_offset`].
    Bytes,
}

impl Slots {
    fn number(self, node: &Target) -> u64 {
        match self {
            Slots::Paths => 0,
            Slots::Buckets(buckets) => node.bucket(buckets).into(),
            Slots::Keys => node.key_hash(),
            Slots::Bytes => node.file_offset(),
        }
    }
}

/// One slot of a plan, as a caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The node; where several share the slot, the first of them.
    pub target: Target,
    /// Its level.
    pub level: usize,
    /// The slot it maps to; 0 where slots are paths.
    pub slot: u64,
    /// The mode it is taken in.
    pub mode: SlotMode,
}

/// What a slot is, however nodes become slots; ordered as every plan takes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotId {
    level: usize,
    slot: u64,
    /// Where slots are paths.
    path: Option<Target>,
}

/// One slot of a plan, as a backend walks it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanStep {
    pub(crate) slot: u64,
    /// The claim whose target the node is an ancestor of, and where the node ends within it.
    pub(crate) claim: u32,
    pub(crate) end: u16,
    pub(crate) level: u8,
    pub(crate) mode: SlotMode,
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
#[must_use = "a plan takes nothing"]
pub struct Plan {
    claims: Claims,
    steps: SmallVec<[PlanStep; 3]>,
    slots: Slots,
}

impl Plan {
    /// Plans an acquire of all these claims together.
    ///
    /// # Errors
    /// No claim at all, or a target that is deeper than the tree.
    pub fn new(
        hierarchy: &Hierarchy,
        claims: impl IntoIterator<Item = Claim>,
        slots: Slots,
        modes: ModeSet,
    ) -> Result<Self> {
        let mut claims: Claims = claims.into_iter().collect();
        if claims.is_empty() {
            return Err(TargetError::NoTarget.into());
        }
        for claim in &claims {
            hierarchy.check(&claim.target)?;
        }
        if claims.len() > 1 {
            // Of one target twice, the stronger mode comes first and the other is dropped.
            claims.sort_unstable_by(|a, b| {
                a.target.path_cmp(&b.target).then_with(|| b.mode.cmp(&a.mode))
            });
            claims.dedup_by(|later, first| later.target == first.target);
        }
        let mut steps = steps_by_path(hierarchy, &claims, modes);
        if slots != Slots::Paths {
            for step in &mut steps {
                let node = claims[step.claim as usize].target.cut(step.end.into());
                step.slot = slots.number(&node);
            }
            merge_by_slot(&mut steps);
        }
        Ok(Self { claims, steps, slots })
    }

    /// How nodes become slots in it.
    pub fn slots(&self) -> Slots {
        self.slots
    }

    /// What was asked for, by path.
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The slots, in the order in which they are taken.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step> {
        self.steps.iter().map(|step| Step {
            target: self.node(step),
            level: step.level.into(),
            slot: step.slot,
            mode: step.mode,
        })
    }

    /// What the slot of a step is; the same for whoever else needs it.
    pub(crate) fn id(&self, step: &Step) -> SlotId {
        let path = (self.slots == Slots::Paths).then(|| step.target.clone());
        SlotId { level: step.level, slot: step.slot, path }
    }

    pub(crate) fn into_claims(self) -> Claims {
        self.claims
    }

    pub(crate) fn raw_steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// The node a step stands for.
    pub(crate) fn node(&self, step: &PlanStep) -> Target {
        self.claims[step.claim as usize].target.cut(step.end.into())
    }
}

/// The nodes from the roots to the targets, each once, ordered by (level, path). Claims are sorted by
/// path, so an ancestor that a claim has in common with an earlier one, it has with the one before.
fn steps_by_path(
    hierarchy: &Hierarchy,
    claims: &[Claim],
    modes: ModeSet,
) -> SmallVec<[PlanStep; 3]> {
    let mut steps: SmallVec<[PlanStep; 3]> = SmallVec::new();
    // At each level, the step of the last claim that went there.
    let mut last = [0; Hierarchy::MAX_LEVELS];
    let mut before: &[u8] = &[];
    for (claim, Claim { target, mode }) in claims.iter().enumerate() {
        let bytes = target.bytes();
        for (level, end) in target.ends().enumerate() {
            let mode = modes.on_the_way(*mode, end == bytes.len(), hierarchy.is_leaf(level));
            if before.starts_with(&bytes[..end]) {
                let step: &mut PlanStep = &mut steps[last[level]];
                step.mode = step.mode.join(mode);
            } else {
                last[level] = steps.len();
                // 8 IDs of 255 bytes behind their lengths are 2048; and 2³² claims do not fit into
                // memory.
                let (claim, end, level) = (claim as u32, end as u16, level as u8);
                steps.push(PlanStep { slot: 0, claim, end, level, mode });
            }
        }
        before = bytes;
    }
    if claims.len() > 1 {
        // Stable: within a level the order of the paths stays.
        steps.sort_by_key(|step| step.level);
    }
    steps
}

/// Orders by (level, slot); nodes that fall into one slot become one step in the strongest mode.
fn merge_by_slot(steps: &mut SmallVec<[PlanStep; 3]>) {
    steps.sort_by_key(|step| (step.level, step.slot));
    steps.dedup_by(|later, first| {
        let same = (later.level, later.slot) == (first.level, first.slot);
        if same {
            first.mode = first.mode.join(later.mode);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn plan(paths: &[&str], slots: Slots, modes: ModeSet) -> Plan {
        let claims =
            paths.iter().map(|path| Claim { target: path.parse().unwrap(), mode: Mode::Exclusive });
        Plan::new(&Hierarchy::default(), claims, slots, modes).unwrap()
    }

    fn shown(plan: &Plan) -> Vec<String> {
        plan.steps().map(|step| format!("{} {}", step.target, step.mode)).collect()
    }

    #[test]
    fn ancestors_shared_target_exclusive() {
        let plan = plan(&["u1/a1/r1"], Slots::Paths, ModeSet::SharedExclusive);
        assert_eq!(shown(&plan), ["u1 shared", "u1/a1 shared", "u1/a1/r1 exclusive"]);
    }

    #[test]
    fn intentions_where_the_backend_has_them() {
        let claims = [("u1", Mode::Shared), ("u1/a1/r1", Mode::Exclusive), ("u2/a1", Mode::Update)]
            .map(|(path, mode)| Claim { target: path.parse().unwrap(), mode });
        let plan =
            Plan::new(&Hierarchy::default(), claims, Slots::Paths, ModeSet::Intentions).unwrap();
        assert_eq!(
            shown(&plan),
            [
                "u1 shared-intent-exclusive",
                "u2 intent-exclusive",
                "u1/a1 intent-exclusive",
                "u2/a1 update",
                "u1/a1/r1 exclusive"
            ]
        );
    }

    /// The counterexample to ordering by ID: `r313` and `r36750` share a bucket, so {r35, r36750}
    /// and {r313, r35}, each taken in ID order, take the same two rows in opposite order.
    #[test]
    fn slot_order_agrees_where_id_order_would_deadlock() {
        let slots = Slots::Buckets(Buckets::default());
        let bucket_of = |id: &str| {
            u64::from(Target::resource("u1", "a1", id).unwrap().bucket(Buckets::default()))
        };
        let by_id = |ids: [&str; 2]| ids.map(bucket_of);
        let (first, second) = (by_id(["r35", "r36750"]), by_id(["r313", "r35"]));
        assert_eq!(first, [second[1], second[0]], "ID order takes the two rows crosswise");

        let by_slot = |ids: [&str; 2]| -> Vec<u64> {
            let paths = ids.map(|id| format!("u1/a1/{id}"));
            let plan = plan(&[&paths[0], &paths[1]], slots, ModeSet::SharedExclusive);
            plan.steps().filter(|step| step.level == 2).map(|step| step.slot).collect()
        };
        assert_eq!(by_slot(["r35", "r36750"]), by_slot(["r313", "r35"]));
    }

    #[test]
    fn a_shared_bucket_is_one_step_in_the_strongest_mode() {
        let claims = [("u1/a1/r313", Mode::Shared), ("u1/a1/r36750", Mode::Exclusive)]
            .map(|(path, mode)| Claim { target: path.parse().unwrap(), mode });
        let slots = Slots::Buckets(Buckets::default());
        let plan =
            Plan::new(&Hierarchy::default(), claims, slots, ModeSet::SharedExclusive).unwrap();
        assert_eq!(plan.steps().len(), 3);
        assert_eq!(plan.steps().last().unwrap().mode, SlotMode::Exclusive);
    }

    #[test]
    fn nothing_asked_is_an_error() {
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
        /// Against a model that knows nothing of sorting: a map from slot to the joined mode.
        #[test]
        fn every_plan_is_ordered_complete_and_strongest(claims in claims(), few in 1u32..40) {
            let tree = Hierarchy::default();
            let kinds = [Slots::Paths, Slots::Buckets(Buckets::new(few).unwrap()), Slots::Keys, Slots::Bytes];
            for slots in kinds {
                for modes in [ModeSet::Intentions, ModeSet::SharedExclusive, ModeSet::SharedUpdateExclusive] {
                    let plan = Plan::new(&tree, claims.clone(), slots, modes).unwrap();
                    let identity = |node: &Target| match slots {
                        Slots::Paths => (node.level(), 0, Some(node.clone())),
                        _ => (node.level(), slots.number(node), None),
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
        fn the_order_of_asking_does_not_matter(claims in claims().prop_shuffle(), seed in any::<u64>()) {
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
