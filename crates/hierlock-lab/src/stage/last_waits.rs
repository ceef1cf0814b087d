//! The waits that were seen last, and the circle that follows from them.

use crate::observation::{LockedObject, Name, Wait};
use crate::record::Link;
use std::collections::BTreeMap;

/// The last wait that was seen of each session's statement: what is left of a circle when the server does not
/// report it, or reports another one's by now.
#[derive(Debug, Default)]
pub(super) struct LastWaits {
    waits: BTreeMap<Name, Wait>,
}

impl LastWaits {
    /// A session begins something new.
    pub(super) fn begin(&mut self, session: &Name) {
        self.waits.remove(session);
    }

    pub(super) fn remember(&mut self, waits: &[Wait]) {
        for wait in waits {
            self.waits.insert(wait.waiter.clone(), wait.clone());
        }
    }

    /// What the statement of a session was last seen to wait for, if `holder` was in its way.
    pub(super) fn wants(&self, waiter: &Name, holder: &Name) -> Option<&LockedObject> {
        let wait = self.waits.get(waiter).filter(|wait| wait.blockers.contains(holder))?;
        wait.thing.as_ref()
    }

    /// The circle in which `victim` was, if what was seen leaves no doubt.
    pub(super) fn circle(&self, victim: &Name) -> Option<Vec<Link>> {
        let link = |waiter: &Name, holder: &Name| {
            let wants = self.waits.get(waiter).and_then(|wait| wait.thing.clone());
            Link::new(waiter.clone(), holder.clone(), wants)
        };
        let waits_for = |waiter: &Name, holder: &Name| {
            self.waits.get(waiter).is_some_and(|wait| wait.blockers.contains(holder))
        };
        if self.waits.contains_key(victim) {
            // Its own wait was seen: the first way round that leads back to it.
            let mut paths = vec![vec![victim.clone()]];
            while let Some(path) = paths.pop() {
                let last = path.last()?;
                for next in self.waits.get(last).map_or(&[][..], |wait| &wait.blockers) {
                    if next == victim {
                        let around = path.iter().cycle().skip(1).take(path.len());
                        return Some(path.iter().zip(around).map(|(a, b)| link(a, b)).collect());
                    }
                    if !path.contains(next) {
                        paths.push([&path[..], std::slice::from_ref(next)].concat());
                    }
                }
            }
            return None;
        }
        // It was not: whoever waited for the victim is who the victim wanted something of, if it is one.
        let mut behind = self.waits.keys().filter(|waiter| waits_for(waiter, victim));
        match (behind.next(), behind.next()) {
            (Some(only), None) if !self.waits.keys().any(|waiter| waits_for(waiter, only)) => {
                Some(vec![link(victim, only), link(only, victim)])
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(waiter: &str, blockers: &[&str]) -> Wait {
        let name = |text: &&str| Name::new(text).unwrap();
        let blockers = blockers.iter().map(name).collect();
        Wait { waiter: name(&waiter), blockers, strangers: false, thing: None }
    }

    #[test]
    fn a_circle_is_made_of_what_was_seen() {
        let circle = |waits: &[Wait], victim: &str| {
            let mut last_waits = LastWaits::default();
            last_waits.remember(waits);
            let circle = last_waits.circle(&Name::new(victim).unwrap())?;
            let text = circle.iter().map(|link| format!("{}{}", link.waiter, link.holder));
            Some(text.collect::<Vec<_>>().join(" "))
        };
        let (a, b) = (wait("A", &["B"]), wait("B", &["C"]));
        // The one who closed it was ended before it was seen to wait.
        assert_eq!(circle(std::slice::from_ref(&a), "B").as_deref(), Some("BA AB"));
        assert_eq!(circle(&[a.clone(), b.clone()], "C"), None, "with A, or only with B?");
        let c = wait("C", &["D", "A"]);
        assert_eq!(circle(&[a, b, c], "C").as_deref(), Some("CA AB BC"));
        assert_eq!(circle(&[], "A"), None);
    }
}
