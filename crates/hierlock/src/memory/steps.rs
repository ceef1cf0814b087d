//! The steps of a plan for the tables: each with the hash of its node. Pure code.

use super::MODES;
use super::manager::{Manager, ShardSet};
use super::table::SHARDS;
use crate::plan::{Claims, PlanStep, PlanSteps};
use crate::{Result, SlotMode};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

/// The position of the shard in a node's hash: the hash tables use the low bits and the top seven.
const SHARD_SHIFT: u32 = 51;
const SHARD_BITS: u64 = (SHARDS as u64 - 1) << SHARD_SHIFT;

impl PlanStep {
    pub(super) fn shard(&self) -> usize {
        ((self.slot & SHARD_BITS) >> SHARD_SHIFT) as usize
    }
}

impl Manager {
    /// Plans an acquire, with the hashes of nodes as slots. All nodes of a path are in the shard of its root, so one mutex
    /// covers them. Fails as [`Plan::new`](crate::Plan::new) does.
    pub(super) fn steps(&self, claims: Claims) -> Result<PlanSteps> {
        let mut root = 0;
        let mut steps = PlanSteps::new(&self.hierarchy, claims, MODES, |path| {
            let mut hasher = self.hasher.build_hasher();
            hasher.write(path);
            let hash = hasher.finish();
            if path.len() == 1 + usize::from(path[0]) {
                root = hash & SHARD_BITS;
            }
            hash & !SHARD_BITS | root
        })?;
        steps.sort_by_level(|_| ());
        Ok(steps)
    }
}

impl PlanSteps {
    pub(super) fn shards(&self) -> ShardSet {
        self.list.iter().fold(0, |set, step| set | 1 << step.shard())
    }

    /// Returns the steps that an owner that holds `base` still has to take.
    pub(super) fn without_held(self, base: &PlanSteps) -> Self {
        let held: HashMap<&[u8], SlotMode> =
            base.list.iter().map(|step| (base.path(step), step.mode)).collect();
        let mut list = self.list.clone();
        list.retain(|step| {
            step.held = held.get(self.path(step)).copied();
            step.mode = step.held.map_or(step.mode, |held| held.join(step.mode));
            step.held != Some(step.mode)
        });
        Self { list, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::manager;
    use crate::{Claim, Mode, Target};

    fn steps(claims: &[(&str, Mode)], manager: &Manager) -> PlanSteps {
        let claim =
            |(path, mode): &(&str, Mode)| Claim { target: path.parse().unwrap(), mode: *mode };
        manager.steps(claims.iter().map(claim).collect()).unwrap()
    }

    fn texts(steps: &PlanSteps) -> Vec<String> {
        let text = |step: &PlanStep| {
            let before = step.held.map_or(String::new(), |held| format!(" from {held}"));
            format!("{} {}{before}", steps.node(step), step.mode)
        };
        steps.list.iter().map(text).collect()
    }

    #[test]
    fn a_path_is_in_one_shard() {
        let claims = [("u1/a1/r1", Mode::Shared), ("u1/a2/r1", Mode::Shared)];
        let steps = steps(&claims, &manager());
        assert_eq!(steps.shards().count_ones(), 1);
        assert_eq!(steps.list.len(), 5);
    }

    /// Otherwise two owners of the same node would not conflict.
    #[test]
    fn a_node_has_the_same_hash_in_every_plan() {
        let manager = manager();
        let hashes = |claims: &[(&str, Mode)]| -> HashMap<Target, u64> {
            let steps = steps(claims, &manager);
            steps.list.iter().map(|step| (steps.node(step), step.slot)).collect()
        };
        let claims = ["u1", "u1/a1", "u1/a1/r1", "u2/x", "ユーザー/x", "u1/a2"]
            .map(|path| (path, Mode::Shared));
        let together = hashes(&claims);
        for claim in claims {
            for (node, hash) in hashes(&[claim]) {
                assert_eq!(together[&node], hash, "{node}");
            }
        }
    }

    #[test]
    fn an_extension_converts_held_nodes_and_takes_new_ones() {
        let manager = manager();
        let held = [("u1", Mode::Shared), ("u2/a1", Mode::Exclusive)];
        let added = [("u1/a1", Mode::Exclusive), ("u2/a1", Mode::Shared)];
        let extension = steps(&added, &manager).without_held(&steps(&held, &manager));
        let expected = ["u1 shared-intent-exclusive from shared", "u1/a1 exclusive"];
        assert_eq!(texts(&extension), expected);
        let both = steps(&[held, added].concat(), &manager);
        let expected = [
            "u1 shared-intent-exclusive",
            "u2 intent-exclusive",
            "u1/a1 exclusive",
            "u2/a1 exclusive",
        ];
        assert_eq!(texts(&both), expected);
        assert_eq!(both.claims.len(), 3);
    }
}
