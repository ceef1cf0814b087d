//! Circles of waiting, found in what a probe saw. Pure.

use crate::observation::{Name, Wait};
use crate::record::Link;

/// The circle that `from` is part of: each waits for the next, the last for the first.
pub(super) fn circle_of(from: &Name, waits: &[Wait]) -> Option<Vec<Link>> {
    let mut path = Vec::new();
    follow(from, from, waits, &mut path)
        .then(|| path.iter().map(|(wait, holder): &(&Wait, &Name)| link(wait, holder)).collect())
}

/// The circle that `victim` closed when it asked for something that another has who waits for it.
/// What it asked for was never seen.
pub(super) fn circle_closed_by(victim: &Name, waits: &[Wait]) -> Option<Vec<Link>> {
    let waiters = waits.iter().filter(|wait| wait.waiter != *victim);
    waiters.into_iter().find_map(|first| {
        let mut path = Vec::new();
        follow(&first.waiter, victim, waits, &mut path).then(|| {
            let closing = Link::new(victim.clone(), first.waiter.clone(), None);
            let rest = path.iter().map(|(wait, holder): &(&Wait, &Name)| link(wait, holder));
            std::iter::once(closing).chain(rest).collect()
        })
    })
}

/// The waits that are part of a circle.
pub(super) fn in_circles(waits: &[Wait]) -> Vec<Wait> {
    waits.iter().filter(|wait| circle_of(&wait.waiter, waits).is_some()).cloned().collect()
}

/// Looks for a way from `from` to `to` along the waits.
fn follow<'a>(
    from: &Name,
    to: &Name,
    waits: &'a [Wait],
    path: &mut Vec<(&'a Wait, &'a Name)>,
) -> bool {
    for wait in waits.iter().filter(|wait| wait.waiter == *from) {
        for holder in &wait.blockers {
            let seen = path.iter().any(|(_, known)| *known == holder);
            if seen {
                continue;
            }
            path.push((wait, holder));
            if holder == to || follow(holder, to, waits, path) {
                return true;
            }
            path.pop();
        }
    }
    false
}

fn link(wait: &Wait, holder: &Name) -> Link {
    Link::new(wait.waiter.clone(), holder.clone(), wait.thing.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(pairs: &[(&str, &[&str])]) -> Vec<Wait> {
        let name = |text: &str| Name::new(text).unwrap();
        let wait = |(waiter, blockers): &(&str, &[&str])| Wait {
            waiter: name(waiter),
            blockers: blockers.iter().map(|blocker| name(blocker)).collect(),
            strangers: false,
            thing: None,
        };
        pairs.iter().map(wait).collect()
    }

    fn shown(circle: Option<Vec<Link>>) -> String {
        let links = circle.unwrap_or_default();
        links.iter().map(|link| format!("{}>{} ", link.waiter, link.holder)).collect()
    }

    #[test]
    fn circles() {
        let name = |text: &str| Name::new(text).unwrap();
        let two = waits(&[("A", &["B"]), ("B", &["A"])]);
        assert_eq!(shown(circle_of(&name("A"), &two)), "A>B B>A ");
        let three = waits(&[("A", &["D", "B"]), ("B", &["C"]), ("C", &["A"]), ("D", &["E"])]);
        assert_eq!(shown(circle_of(&name("B"), &three)), "B>C C>A A>B ");
        assert_eq!(in_circles(&three), three[..3]);
        let none = waits(&[("A", &["B", "C"]), ("B", &["C"])]);
        assert_eq!(in_circles(&none), []);
        // A waits for somebody who is in a circle, but is in none itself.
        let beside = waits(&[("A", &["B"]), ("B", &["C"]), ("C", &["B"])]);
        assert_eq!(shown(circle_of(&name("A"), &beside)), "");
    }

    #[test]
    fn what_the_victim_asked_for_closes_it() {
        let name = |text: &str| Name::new(text).unwrap();
        let seen = waits(&[("A", &["B"]), ("C", &["A"])]);
        assert_eq!(shown(circle_closed_by(&name("B"), &seen)), "B>A A>B ");
        assert_eq!(shown(circle_closed_by(&name("C"), &seen)), "");
    }
}
