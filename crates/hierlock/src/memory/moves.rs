//! The nodes of a plan, as the tables know them, and what an owner has of them. Pure.

use super::pending::Pending;
use super::table::SHARDS;
use crate::mode::SlotMode;
use crate::plan::{Claim, Plan};
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

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

    /// The node, or one below it.
    pub(super) fn target<'a>(&self, claims: &'a [Claim]) -> &'a Target {
        &claims[self.claim as usize].target
    }

    /// The node's path, within the claims it came with.
    pub(super) fn path<'a>(&self, claims: &'a [Claim]) -> &'a [u8] {
        &self.target(claims).bytes()[..self.end.into()]
    }

    pub(super) fn node(&self, claims: &[Claim]) -> Target {
        self.target(claims).cut(self.end.into())
    }
}

/// Nodes in the order of a plan, with their claims.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    pub(super) claims: SmallVec<[Claim; 1]>,
    pub(super) list: SmallVec<[Move; 3]>,
}

impl Moves {
    /// All nodes of a path live in the shard of its root, so that one lock covers them.
    pub(super) fn new(plan: Plan, hasher: &impl BuildHasher) -> Self {
        let hash = |path: &[u8]| {
            let mut state = hasher.build_hasher();
            state.write(path);
            state.finish()
        };
        let mut root: (&[u8], u64) = (&[], 0);
        let claims = plan.claims();
        let mut list: SmallVec<[Move; 3]> = SmallVec::with_capacity(plan.raw_steps().len());
        for step in plan.raw_steps() {
            let bytes = claims[step.claim as usize].target.bytes();
            let path = &bytes[..step.end.into()];
            let mut of_path = hash(path);
            if step.level == 0 {
                root = (path, of_path & SHARD_BITS);
            } else {
                let own_root = &bytes[..=usize::from(bytes[0])];
                if own_root != root.0 {
                    root = (own_root, hash(own_root) & SHARD_BITS);
                }
                of_path = of_path & !SHARD_BITS | root.1;
            }
            let (claim, end, mode) = (step.claim, step.end, step.mode);
            list.push(Move { hash: of_path, claim, end, mode, held: None });
        }
        Self { list, claims: plan.into_claims() }
    }

    pub(super) fn shards(&self) -> u64 {
        self.list.iter().fold(0, |set, step| set | 1 << step.shard())
    }

    /// What of `self` is still to be taken by someone who holds `base`.
    pub(super) fn beyond(mut self, base: &Moves) -> Self {
        let held: HashMap<(u64, &[u8]), SlotMode> = base
            .list
            .iter()
            .map(|step| ((step.hash, step.path(&base.claims)), step.mode))
            .collect();
        let claims = &self.claims;
        self.list.retain(|step| match held.get(&(step.hash, step.path(claims))) {
            None => true,
            Some(&before) => {
                step.held = Some(before);
                step.mode = step.mode.join(before);
                step.mode != before
            }
        });
        self
    }

    /// All of it, where `self` is what was taken beyond `base`.
    pub(super) fn merged_with(&self, base: &Moves) -> Moves {
        let mut merged = base.clone();
        let offset = merged.claims.len() as u32;
        merged.claims.extend(self.claims.iter().cloned());
        for step in &self.list {
            let path = step.path(&self.claims);
            let same =
                |other: &&mut Move| other.hash == step.hash && other.path(&base.claims) == path;
            match step.held.and_then(|_| merged.list.iter_mut().take(base.list.len()).find(same)) {
                Some(converted) => converted.mode = step.mode,
                None => merged.list.push(Move { claim: step.claim + offset, held: None, ..*step }),
            }
        }
        merged
    }
}

/// What an owner has. Most have one target that they did not wait for, and that is kept small.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// So far, nothing.
    Nothing,
    /// The nodes follow from the claim.
    One(Claim),
    Many(Arc<Moves>),
    /// All that was waited for.
    Waited(Arc<Pending>),
}

impl Held {
    pub(super) fn new(mut moves: Moves) -> Self {
        match moves.claims.len() {
            1 => Held::One(moves.claims.swap_remove(0)),
            _ => Held::Many(Arc::new(moves)),
        }
    }

    /// Looks at the nodes. `again` plans a single claim anew.
    pub(super) fn with<T>(
        &self,
        again: impl FnOnce(Claim) -> Moves,
        look: impl FnOnce(&Moves) -> T,
    ) -> T {
        match self {
            Held::Nothing => look(&Moves::default()),
            Held::One(claim) => look(&again(claim.clone())),
            Held::Many(moves) => look(moves),
            Held::Waited(pending) => look(&pending.moves),
        }
    }

    /// What was asked for; a target may be there twice.
    pub(super) fn claims(&self) -> &[Claim] {
        match self {
            Held::Nothing => &[],
            Held::One(claim) => std::slice::from_ref(claim),
            Held::Many(moves) => &moves.claims,
            Held::Waited(pending) => &pending.moves.claims,
        }
    }
}
