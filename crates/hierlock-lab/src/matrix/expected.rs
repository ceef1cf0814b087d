//! The expected outcome of a pair, from the documented rules. Does not use the library, so that the two can disagree.

use super::report::{ModePair, PairOutcome};
use super::tree::TreeNode;
use crate::engine::{BackendKind, Engine};
use hierlock::Mode::{self, Exclusive, Shared, Update};
use hierlock::sql::Strategy;

/// The lock modes that a backend distinguishes. A missing mode is rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Abilities {
    /// Shared, update and exclusive locks on every node.
    Everywhere,
    /// The same on resources; users and accounts are always locked exclusively.
    OnLeaves,
    /// Shared locks on resources; everything else is locked exclusively.
    ReadersOnLeaves,
}

impl Abilities {
    fn of(backend: BackendKind) -> Self {
        match (backend.engine, backend.strategy) {
            (Engine::Memory, _) => Self::Everywhere,
            (Engine::Postgres, Some(Strategy::Advisory) | None) => Self::ReadersOnLeaves,
            (Engine::Postgres, Some(_)) => Self::OnLeaves,
            (Engine::File | Engine::Mysql | Engine::Mariadb, _) => Self::ReadersOnLeaves,
        }
    }

    fn rounded(self, node: &TreeNode, mode: Mode) -> Mode {
        match (self, mode) {
            (Self::Everywhere, mode) => mode,
            _ if !node.is_leaf() => Exclusive,
            (Self::ReadersOnLeaves, Update) => Exclusive,
            (_, mode) => mode,
        }
    }
}

/// Returns the expected outcome on a backend when `held` is held and `requested` is requested.
///
/// 1. Two nodes of which neither is an ancestor of the other never conflict.
/// 2. Otherwise the upper node decides. On the same node, shared locks are compatible with each other and with one
///    update lock; nothing is compatible with an exclusive lock.
/// 3. An update or exclusive lock below a node changes data that a reader of the node reads. So only shared locks
///    are compatible with a shared or update lock above them.
pub(super) fn expected(
    backend: BackendKind,
    held: &TreeNode,
    requested: &TreeNode,
    modes: ModePair,
) -> PairOutcome {
    let Some(at) = held.upper(requested) else { return PairOutcome::Granted };
    let abilities = Abilities::of(backend);
    let held_mode = abilities.rounded(held, modes.held);
    let requested_mode = abilities.rounded(requested, modes.requested);
    let compatible = if held == requested {
        let both = (held_mode, requested_mode);
        matches!(both, (Shared, Shared) | (Shared, Update) | (Update, Shared))
    } else if at == held {
        held_mode != Exclusive && modes.requested == Shared
    } else {
        requested_mode != Exclusive && modes.held == Shared
    };
    if compatible { PairOutcome::Granted } else { PairOutcome::Blocked { at: at.to_string() } }
}

#[cfg(test)]
mod tests {
    use super::super::tree::TreeSize;
    use super::*;

    fn backend(engine: Engine, strategy: Option<Strategy>) -> BackendKind {
        BackendKind { engine, strategy }
    }

    fn is_blocked(expected: &PairOutcome) -> bool {
        matches!(expected, PairOutcome::Blocked { .. })
    }

    fn count_blocked(
        backend: BackendKind,
        tree: TreeSize,
        (held, requested): (Mode, Mode),
    ) -> usize {
        let (nodes, modes) = (tree.nodes(), ModePair { held, requested });
        let pairs = nodes.iter().flat_map(|held| nodes.iter().map(move |wanted| (held, wanted)));
        let seen = pairs.map(|(held, wanted)| expected(backend, held, wanted, modes));
        seen.filter(is_blocked).count()
    }

    /// Counted by hand: in 2×2×2 a user has 7 nodes and 10 pairs of an ancestor and a descendant, which is 7 + 2 × 10
    /// for each of two users; in 3×3×3 it is 13 + 2 × 21, three times.
    #[test]
    fn the_number_of_blocked_pairs_is_as_counted_by_hand() {
        for backend in BackendKind::all(Engine::ALL) {
            for (tree, blocked) in [("2x2x2", 54), ("3x3x3", 165)] {
                let seen = count_blocked(backend, tree.parse().unwrap(), (Exclusive, Exclusive));
                assert_eq!(seen, blocked, "{backend}, {tree}");
            }
        }
    }

    #[test]
    fn shared_locks_are_compatible_where_a_backend_has_the_mode() {
        let rows = Some(Strategy::Striped);
        let tree = TreeSize::default();
        // Shared locks: no pair blocks in memory; elsewhere only pairs of equal resources do not block.
        assert_eq!(count_blocked(backend(Engine::Memory, None), tree, (Shared, Shared)), 0);
        assert_eq!(count_blocked(backend(Engine::Mysql, rows), tree, (Shared, Shared)), 54 - 8);
        // Update locks: compatible with shared locks of a resource only where update is a separate mode.
        assert_eq!(count_blocked(backend(Engine::Postgres, rows), tree, (Shared, Update)), 54 - 8);
        let advisory = Some(Strategy::Advisory);
        assert_eq!(count_blocked(backend(Engine::Postgres, advisory), tree, (Shared, Update)), 54);
        assert_eq!(count_blocked(backend(Engine::Mysql, rows), tree, (Shared, Update)), 54);
        assert_eq!(count_blocked(backend(Engine::Memory, None), tree, (Update, Update)), 54);
        // Only a shared lock above a requested update lock blocks.
        assert_eq!(count_blocked(backend(Engine::Memory, None), tree, (Shared, Update)), 20);
    }

    #[test]
    fn rounding_never_blocks_fewer_pairs() {
        let nodes = TreeSize::default().nodes();
        for held in &nodes {
            for wanted in &nodes {
                for modes in ModePair::all() {
                    let is_blocked_at =
                        |backend| is_blocked(&expected(backend, held, wanted, modes));
                    let exact = is_blocked_at(backend(Engine::Memory, None));
                    for backend in BackendKind::all(Engine::ALL) {
                        let seen = is_blocked_at(backend);
                        assert!(seen || !exact, "{backend}, {modes}, {held} {wanted}");
                    }
                }
            }
        }
    }
}
