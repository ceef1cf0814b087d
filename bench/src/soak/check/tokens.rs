//! Checks that fencing tokens ascend.

use super::visit::Hold;
use super::{Violation, conflict};
use crate::soak::history::VisitId;
use hierlock::{Claim, Mode, Target};
use std::collections::BTreeMap;

/// Compares each token with the tokens of earlier holds of conflicting nodes. `holds` are in order of their start.
pub(super) fn check(holds: &[Hold], compared: &mut u64) -> Vec<Violation> {
    let mut violations = Vec::new();
    // For each node and mode: the greatest tokens so far, with their owners.
    let mut greatest: BTreeMap<(Target, Mode), (Claim, Vec<LastToken>)> = BTreeMap::new();
    for hold in holds {
        let Some((least, most)) = hold.tokens else { continue };
        *compared += 1;
        for (claim, before) in greatest.values() {
            if !conflict(claim, &hold.claim) {
                continue;
            }
            for LastToken { owner, visit, token } in before.iter().copied() {
                if owner != hold.owner && token >= least {
                    let (first, second, not_greater) = (visit, hold.visit, least);
                    violations.push(Violation::Token { first, token, second, not_greater });
                }
            }
        }
        let node = (hold.claim.target.clone(), hold.claim.mode);
        let (_, before) = greatest.entry(node).or_insert((hold.claim.clone(), Vec::new()));
        before.push(LastToken { owner: hold.owner, visit: hold.visit, token: most });
        // Keeps the greatest token, and the greatest of another owner, because an owner is not compared with itself.
        before.sort_by_key(|one| std::cmp::Reverse(one.token));
        before.dedup_by_key(|one| one.owner);
        before.truncate(2);
    }
    violations
}

/// The greatest token of an owner at a node.
#[derive(Clone, Copy)]
struct LastToken {
    owner: VisitId,
    visit: VisitId,
    token: u64,
}
