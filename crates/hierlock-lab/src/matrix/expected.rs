//! What must be seen of a pair, from the rules as told to people: not by the library, so that the two can disagree.

use super::report::PairOutcome;
use super::tree::Node;
use crate::place::{Engine, Place};
use hierlock::Mode::{self, Exclusive, Shared, Update};
use hierlock::sql::Strategy;

/// What locks can be told apart at a place. What is lacking is rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Abilities {
    /// Readers, updaters and writers, on any node.
    Everywhere,
    /// The same on resources; whatever has others below it is locked alone.
    OnLeaves,
    /// Readers on resources; all else is locked alone.
    ReadersOnLeaves,
}

impl Abilities {
    fn of(place: Place) -> Self {
        match (place.engine, place.strategy) {
            (Engine::Memory, _) => Self::Everywhere,
            (Engine::Postgres, Some(Strategy::Advisory) | None) => Self::ReadersOnLeaves,
            (Engine::Postgres, Some(_)) => Self::OnLeaves,
            (Engine::File | Engine::Mysql | Engine::Mariadb, _) => Self::ReadersOnLeaves,
        }
    }

    fn rounded(self, node: &Node, mode: Mode) -> Mode {
        match (self, mode) {
            (Self::Everywhere, mode) => mode,
            _ if !node.is_leaf() => Exclusive,
            (Self::ReadersOnLeaves, Update) => Exclusive,
            (_, mode) => mode,
        }
    }
}

/// What must be seen at a place when `held` is held and `requested` is asked for.
///
/// 1. Two nodes of which neither is above the other never wait for each other.
/// 2. Otherwise they meet at the upper one. There, or when it is the same node, readers go together,
///    and one updater with readers; nobody goes together with a writer.
/// 3. Whoever updates or writes below a node will change what its reader reads, so only readers may be
///    below a reader or an updater.
pub(super) fn expected(place: Place, held: (&Node, Mode), requested: (&Node, Mode)) -> PairOutcome {
    let Some(at) = held.0.upper(requested.0) else { return PairOutcome::Granted };
    let abilities = Abilities::of(place);
    let really = |(node, mode): (&Node, Mode)| abilities.rounded(node, mode);
    let together = if held.0 == requested.0 {
        matches!(
            (really(held), really(requested)),
            (Shared, Shared) | (Shared, Update) | (Update, Shared)
        )
    } else {
        let (upper, lower) = if at == held.0 { (held, requested) } else { (requested, held) };
        really(upper) != Exclusive && lower.1 == Shared
    };
    if together { PairOutcome::Granted } else { PairOutcome::Blocked { at: at.to_string() } }
}

#[cfg(test)]
mod tests {
    use super::super::tree::TreeSize;
    use super::*;

    const MODES: [Mode; 3] = [Shared, Update, Exclusive];

    fn place(engine: Engine, strategy: Option<Strategy>) -> Place {
        Place { engine, strategy }
    }

    fn is_blocked(expected: &PairOutcome) -> bool {
        matches!(expected, PairOutcome::Blocked { .. })
    }

    fn blocked(place: Place, tree: TreeSize, modes: (Mode, Mode)) -> usize {
        let nodes = tree.nodes();
        let pairs = nodes.iter().flat_map(|held| nodes.iter().map(move |wanted| (held, wanted)));
        let seen = pairs.map(|(held, wanted)| expected(place, (held, modes.0), (wanted, modes.1)));
        seen.filter(is_blocked).count()
    }

    /// Counted by hand: in 2×2×2 a user has 7 nodes and 10 pairs of one above the other, which is
    /// 7 + 2 × 10 for each of two users; in 3×3×3 it is 13 + 2 × 21, three times.
    #[test]
    fn as_many_pairs_block_as_counted_by_hand() {
        for engine in Engine::ALL {
            let place = place(engine, engine.strategies().first().copied());
            assert_eq!(blocked(place, TreeSize::default(), (Exclusive, Exclusive)), 54, "{place}");
            let large = TreeSize { users: 3, accounts: 3, resources: 3 };
            assert_eq!(blocked(place, large, (Exclusive, Exclusive)), 165, "{place}");
        }
    }

    #[test]
    fn readers_go_together_as_far_as_a_place_can_tell() {
        let rows = Some(Strategy::Striped);
        let tree = TreeSize::default();
        // Readers: nobody waits in memory; elsewhere all that is not a pair of equal resources.
        assert_eq!(blocked(place(Engine::Memory, None), tree, (Shared, Shared)), 0);
        assert_eq!(blocked(place(Engine::Mysql, rows), tree, (Shared, Shared)), 54 - 8);
        // Updaters: one beside readers of a resource only where that is a mode of its own.
        assert_eq!(blocked(place(Engine::Postgres, rows), tree, (Shared, Update)), 54 - 8);
        let advisory = Some(Strategy::Advisory);
        assert_eq!(blocked(place(Engine::Postgres, advisory), tree, (Shared, Update)), 54);
        assert_eq!(blocked(place(Engine::Mysql, rows), tree, (Shared, Update)), 54);
        assert_eq!(blocked(place(Engine::Memory, None), tree, (Update, Update)), 54);
        // A reader held above an updater is the only way round that waits.
        assert_eq!(blocked(place(Engine::Memory, None), tree, (Shared, Update)), 20);
    }

    #[test]
    fn rounding_only_ever_blocks_more() {
        let nodes = TreeSize::default().nodes();
        for held in &nodes {
            for wanted in &nodes {
                for (a, b) in MODES.iter().flat_map(|a| MODES.map(|b| (*a, b))) {
                    let at = |place| expected(place, (held, a), (wanted, b));
                    let exact = at(place(Engine::Memory, None));
                    for engine in Engine::ALL {
                        let seen = at(place(engine, engine.strategies().first().copied()));
                        assert!(
                            is_blocked(&seen) || !is_blocked(&exact),
                            "{a} {held} {b} {wanted}"
                        );
                    }
                }
            }
        }
    }
}
