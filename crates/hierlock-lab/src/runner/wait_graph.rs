//! Cycles in the wait-for graph that a probe saw. Pure.

use crate::observation::{SessionName, Wait};
use crate::record::WaitEdge;

/// Returns the cycle that `from` is part of: each waits for the next, the last for the first.
pub(crate) fn cycle_of(from: &SessionName, waits: &[Wait]) -> Option<Vec<WaitEdge>> {
    path(from, from, waits)
}

/// Returns the cycle that `victim` closed when it requested a lock of a session that waits for it. What it
/// requested was never seen.
pub(crate) fn cycle_closed_by(victim: &SessionName, waits: &[Wait]) -> Option<Vec<WaitEdge>> {
    waits.iter().filter(|wait| wait.waiter != *victim).find_map(|first| {
        let rest = path(&first.waiter, victim, waits)?;
        let closing = WaitEdge::new(victim.clone(), first.waiter.clone(), None);
        Some(std::iter::once(closing).chain(rest).collect())
    })
}

pub(crate) fn waits_in_cycles(waits: &[Wait]) -> Vec<Wait> {
    waits.iter().filter(|wait| cycle_of(&wait.waiter, waits).is_some()).cloned().collect()
}

fn path(from: &SessionName, to: &SessionName, waits: &[Wait]) -> Option<Vec<WaitEdge>> {
    let mut path = Vec::new();
    extend_path(&mut path, from, to, waits).then_some(path)
}

fn extend_path(
    path: &mut Vec<WaitEdge>,
    from: &SessionName,
    to: &SessionName,
    waits: &[Wait],
) -> bool {
    for wait in waits.iter().filter(|wait| wait.waiter == *from) {
        for holder in &wait.blockers {
            if path.iter().any(|edge| edge.holder == *holder) {
                continue;
            }
            path.push(WaitEdge::new(from.clone(), holder.clone(), wait.target.clone()));
            if holder == to || extend_path(path, holder, to, waits) {
                return true;
            }
            path.pop();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(pairs: &[(&str, &[&str])]) -> Vec<Wait> {
        let name = |text: &str| SessionName::new(text).unwrap();
        let wait = |(waiter, blockers): &(&str, &[&str])| Wait {
            waiter: name(waiter),
            blockers: blockers.iter().map(|blocker| name(blocker)).collect(),
            has_outside_blocker: false,
            target: None,
        };
        pairs.iter().map(wait).collect()
    }

    fn shown(circle: Option<Vec<WaitEdge>>) -> String {
        let links = circle.unwrap_or_default();
        links.iter().map(|link| format!("{}>{} ", link.waiter, link.holder)).collect()
    }

    #[test]
    fn circles() {
        let name = |text: &str| SessionName::new(text).unwrap();
        let two = waits(&[("A", &["B"]), ("B", &["A"])]);
        assert_eq!(shown(cycle_of(&name("A"), &two)), "A>B B>A ");
        let three = waits(&[("A", &["D", "B"]), ("B", &["C"]), ("C", &["A"]), ("D", &["E"])]);
        assert_eq!(shown(cycle_of(&name("B"), &three)), "B>C C>A A>B ");
        assert_eq!(waits_in_cycles(&three), three[..3]);
        let none = waits(&[("A", &["B", "C"]), ("B", &["C"])]);
        assert_eq!(waits_in_cycles(&none), []);
        // A waits for somebody who is in a circle, but is in none itself.
        let beside = waits(&[("A", &["B"]), ("B", &["C"]), ("C", &["B"])]);
        assert_eq!(shown(cycle_of(&name("A"), &beside)), "");
    }

    #[test]
    fn what_the_victim_asked_for_closes_it() {
        let name = |text: &str| SessionName::new(text).unwrap();
        let seen = waits(&[("A", &["B"]), ("C", &["A"])]);
        assert_eq!(shown(cycle_closed_by(&name("B"), &seen)), "B>A A>B ");
        assert_eq!(shown(cycle_closed_by(&name("C"), &seen)), "");
    }
}
