//! The tree whose nodes are locked. It is small, so that ancestors and descendants conflict often.

use super::random::Random;
use hierlock::{Claim, Mode, Target};

const USERS: u64 = 6;
const ACCOUNTS: u64 = 2;
const RESOURCES: u64 = 3;

/// Returns the roots. Locking all of them locks everything.
pub fn roots() -> Vec<Target> {
    (0..USERS).filter_map(|u| Target::user(&format!("u{u}")).ok()).collect()
}

/// Returns the leaves.
pub fn leaves() -> Vec<Target> {
    let mut leaves = Vec::new();
    for (u, a, r) in (0..USERS * ACCOUNTS * RESOURCES)
        .map(|n| (n / (ACCOUNTS * RESOURCES), n / RESOURCES % ACCOUNTS, n % RESOURCES))
    {
        leaves.extend(Target::resource(&format!("u{u}"), &format!("a{a}"), &format!("r{r}")));
    }
    leaves
}

/// Returns a random node, mostly a leaf.
pub fn random_node(random: &mut Random) -> Target {
    let leaves = leaves();
    let leaf = leaves[random.below(leaves.len() as u64) as usize].clone();
    match random.below(12) {
        0 => leaf.ancestor(0),
        1..=3 => leaf.ancestor(1),
        _ => leaf,
    }
}

/// Returns one to three random claims.
pub fn random_claims(random: &mut Random) -> Vec<Claim> {
    let count = if random.chance(70) { 1 } else { random.between(2, 3) };
    (0..count).map(|_| Claim { target: random_node(random), mode: random_mode(random) }).collect()
}

/// Returns a random mode, mostly exclusive.
pub fn random_mode(random: &mut Random) -> Mode {
    match random.below(10) {
        0..=2 => Mode::Shared,
        3 => Mode::Update,
        _ => Mode::Exclusive,
    }
}

/// Returns the node to lock. A process that is broken on purpose locks another node than the one that it records.
pub fn node_to_lock(target: &Target, broken: bool) -> Target {
    if !broken {
        return target.clone();
    }
    let ids = target.ids().enumerate().map(|(level, id)| match level {
        0 => format!("elsewhere-{id}"),
        _ => id.to_owned(),
    });
    Target::path(ids).unwrap_or_else(|_| target.clone())
}
