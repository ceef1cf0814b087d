//! The nodes of a plan, as the tables know them. Pure.

use super::manager::MODES;
use super::table::SHARDS;
use crate::hierarchy::Hierarchy;
use crate::mode::SlotMode;
use crate::plan::{Claim, Plan};
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// Where a node's hash carries its shard: the tables use the low bits and the top seven.
const SHARD_SHIFT: u32 = 51;
const SHARD_BITS: u64 = (SHARDS as u64 - 1) << SHARD_SHIFT;

/// One node to take, on behalf of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    /// Of the node's path; carries the shard of its root.
    pub(super) hash: u64,
    /// Which claim's target the node is an ancestor of.
    claim: u32,
    /// Where the node ends within that target.
    pub(super) end: u16,
    pub(super) mode: SlotMode,
    /// For a conversion: what is held already.
    pub(super) held: Option<SlotMode>,
}

impl Move {
    pub(super) fn shard(&self) -> usize {
        ((self.hash & SHARD_BITS) >> SHARD_SHIFT) as usize
    }
}

/// Nodes in the order of a plan, with their claims.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    pub(super) claims: SmallVec<[Claim; 1]>,
    pub(super) list: SmallVec<[Move; 3]>,
}

fn hash(hasher: &impl BuildHasher, path: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(path);
    state.finish()
}

impl Moves {
    /// The nodes of a single claim, which are in order as they are. What [`new`](Self::new) makes of
    /// its plan, without the plan.
    pub(super) fn of_one(
        claims: SmallVec<[Claim; 1]>,
        hierarchy: &Hierarchy,
        hasher: &impl BuildHasher,
    ) -> Self {
        let Claim { target, mode } = &claims[0];
        let bytes = target.bytes();
        let mut list: SmallVec<[Move; 3]> = SmallVec::new();
        let mut root = None;
        for (level, end) in target.ends().enumerate() {
            let is_target = end == bytes.len();
            let mode = MODES.on_the_way(*mode, is_target, hierarchy.is_leaf(level));
            let of_path = hash(hasher, &bytes[..end]);
            let root = *root.get_or_insert(of_path & SHARD_BITS);
            let hash = of_path & !SHARD_BITS | root;
            list.push(Move { hash, claim: 0, end: end as u16, mode, held: None });
        }
        Self { list, claims }
    }

    /// All nodes of a path live in the shard of its root, so that one lock covers them.
    pub(super) fn new(plan: Plan, hasher: &impl BuildHasher) -> Self {
        let mut root: (&[u8], u64) = (&[], 0);
        let claims = plan.claims();
        let mut list: SmallVec<[Move; 3]> = SmallVec::with_capacity(plan.raw_steps().len());
        for step in plan.raw_steps() {
            let bytes = claims[step.claim as usize].target.bytes();
            let path = &bytes[..step.end.into()];
            let mut of_path = hash(hasher, path);
            if step.level == 0 {
                root = (path, of_path & SHARD_BITS);
            } else {
                if !bytes.starts_with(root.0) {
                    let own = &bytes[..=usize::from(bytes[0])];
                    root = (own, hash(hasher, own) & SHARD_BITS);
                }
                of_path = of_path & !SHARD_BITS | root.1;
            }
            let (claim, end, mode) = (step.claim, step.end, step.mode);
            list.push(Move { hash: of_path, claim, end, mode, held: None });
        }
        Self { list, claims: plan.into_claims() }
    }

    /// The node of a step, or one below it.
    pub(super) fn target(&self, step: &Move) -> &Target {
        &self.claims[step.claim as usize].target
    }

    pub(super) fn node(&self, step: &Move) -> Target {
        self.target(step).cut(step.end.into())
    }

    fn path(&self, step: &Move) -> &[u8] {
        &self.target(step).bytes()[..step.end.into()]
    }

    pub(super) fn shards(&self) -> u64 {
        self.list.iter().fold(0, |set, step| set | 1 << step.shard())
    }

    /// What of `self` is still to be taken by someone who holds `base`.
    pub(super) fn beyond(self, base: &Moves) -> Self {
        let held: HashMap<&[u8], SlotMode> =
            base.list.iter().map(|step| (base.path(step), step.mode)).collect();
        let mut list = self.list.clone();
        list.retain(|step| match held.get(self.path(step)) {
            None => true,
            Some(&before) => {
                step.held = Some(before);
                step.mode = step.mode.join(before);
                step.mode != before
            }
        });
        Self { list, ..self }
    }

    /// All of it, where `self` is what was taken beyond `base`.
    pub(super) fn merged_with(&self, base: &Moves) -> Moves {
        let converted: HashMap<&[u8], SlotMode> = self
            .list
            .iter()
            .filter(|step| step.held.is_some())
            .map(|step| (self.path(step), step.mode))
            .collect();
        let mut merged = base.clone();
        for step in &mut merged.list {
            step.mode = converted.get(base.path(step)).copied().unwrap_or(step.mode);
        }
        let offset = base.claims.len() as u32;
        let new = self.list.iter().filter(|step| step.held.is_none());
        merged.list.extend(new.map(|step| Move { claim: step.claim + offset, ..*step }));
        merged.claims.extend(self.claims.iter().cloned());
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Slots};
    use hashbrown::DefaultHashBuilder;

    fn moves(paths: &[(&str, Mode)]) -> Moves {
        let claims =
            paths.iter().map(|(path, mode)| Claim { target: path.parse().unwrap(), mode: *mode });
        let plan = Plan::new(&Hierarchy::default(), claims, Slots::Paths, MODES);
        // The same seed for all of a test would be needed only to compare hashes.
        Moves::new(plan.unwrap(), &DefaultHashBuilder::default())
    }

    fn shown(moves: &Moves) -> Vec<String> {
        let step = |step: &Move| {
            let before = step.held.map_or(String::new(), |held| format!(" from {held}"));
            format!("{} {}{before}", moves.node(step), step.mode)
        };
        moves.list.iter().map(step).collect()
    }

    #[test]
    fn a_single_claim_needs_no_plan() {
        let (tree, hasher) = (Hierarchy::default(), DefaultHashBuilder::default());
        for path in ["u1", "u1/a1", "u1/a1/r1", "ユーザー/x"] {
            for mode in [Mode::Shared, Mode::Update, Mode::Exclusive] {
                let claim = Claim { target: path.parse().unwrap(), mode };
                let plan = Plan::new(&tree, [claim.clone()], Slots::Paths, MODES).unwrap();
                let planned = Moves::new(plan, &hasher);
                let direct = Moves::of_one([claim].into_iter().collect(), &tree, &hasher);
                assert_eq!(format!("{planned:?}"), format!("{direct:?}"));
            }
        }
    }

    #[test]
    fn a_path_lives_in_one_shard() {
        let moves = moves(&[("u1/a1/r1", Mode::Shared), ("u1/a2/r1", Mode::Shared)]);
        assert_eq!(moves.shards().count_ones(), 1);
        assert_eq!(moves.list.len(), 5);
    }

    #[test]
    fn an_extension_converts_what_is_held_and_takes_what_is_not() {
        let base = moves(&[("u1", Mode::Shared), ("u2/a1", Mode::Exclusive)]);
        let more = moves(&[("u1/a1", Mode::Exclusive), ("u2/a1", Mode::Shared)]).beyond(&base);
        let expected = ["u1 shared-intent-exclusive from shared", "u1/a1 exclusive"];
        assert_eq!(shown(&more), expected);
        let merged = more.merged_with(&base);
        let expected = [
            "u1 shared-intent-exclusive",
            "u2 intent-exclusive",
            "u2/a1 exclusive",
            "u1/a1 exclusive",
        ];
        assert_eq!(shown(&merged), expected);
        assert_eq!(merged.claims.len(), 4);
    }
}
