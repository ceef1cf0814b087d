//! Whose connection is whose: from the server's numbers to the names of a case.

use crate::observation::{Lock, Name, Thing, Wait};
use crate::record::Link;
use std::collections::{BTreeMap, BTreeSet};

/// The connections of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct Who {
    names: BTreeMap<i64, Name>,
    /// The database or schema of the case: its tables are named without it.
    pub(super) home: String,
    /// The transactions that sessions have prepared, as they are called in SQL, with their connections.
    pub(super) prepared: Vec<(String, i64)>,
}

impl Who {
    pub(super) fn new(home: &str) -> Self {
        Self { names: BTreeMap::new(), home: home.to_owned(), prepared: Vec::new() }
    }

    pub(super) fn add(&mut self, id: i64, name: Name) {
        self.names.insert(id, name);
    }

    #[cfg(test)]
    pub(super) fn remove(&mut self, id: i64) {
        self.names.remove(&id);
    }

    pub(super) fn name(&self, id: i64) -> Option<&Name> {
        self.names.get(&id)
    }

    /// The sessions.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.values()
    }

    /// The numbers, as a list in SQL.
    pub(super) fn list(&self) -> String {
        let ids: Vec<String> = self.names.keys().map(i64::to_string).collect();
        match ids.is_empty() {
            // No connection has this number.
            true => "-1".to_owned(),
            false => ids.join(", "),
        }
    }

    /// A table, without the name of the case's own database.
    pub(super) fn table(&self, home: &str, table: &str) -> String {
        match home == self.home || home.is_empty() {
            true => table.to_owned(),
            false => format!("{home}.{table}"),
        }
    }

    pub(super) fn lock(&self, id: i64, thing: Thing, granted: bool) -> Option<Lock> {
        Some(Lock { session: self.name(id)?.clone(), thing, granted })
    }
}

/// Waits as they are found: a server tells them blocker by blocker.
#[derive(Debug, Default)]
pub(super) struct Waits {
    found: BTreeMap<i64, (BTreeSet<i64>, Option<Thing>)>,
}

impl Waits {
    /// Somebody waits, for whom is not known (yet).
    pub(super) fn add(&mut self, waiter: i64, thing: Option<Thing>) {
        let (_, known) = self.found.entry(waiter).or_default();
        if known.is_none() {
            *known = thing;
        }
    }

    pub(super) fn blocked_by(&mut self, waiter: i64, blocker: i64) {
        // A session may hold up itself (a lock of its own that it wants stronger), but not wait for it.
        if blocker != waiter {
            self.found.entry(waiter).or_default().0.insert(blocker);
        }
    }

    pub(super) fn has(&self, waiter: i64) -> bool {
        self.found.contains_key(&waiter)
    }

    /// Those of the case.
    pub(super) fn of(self, who: &Who) -> Vec<Wait> {
        let waits = self.found.into_iter().filter_map(|(waiter, (by, thing))| {
            let waiter = who.name(waiter)?.clone();
            let names: BTreeSet<Name> = by.iter().filter_map(|id| who.name(*id)).cloned().collect();
            let strangers = by.iter().any(|id| who.name(*id).is_none());
            Some(Wait { waiter, blockers: names.into_iter().collect(), strangers, thing })
        });
        let mut waits: Vec<Wait> = waits.collect();
        waits.sort_by(|a, b| a.waiter.cmp(&b.waiter));
        waits
    }
}

/// The last wait that was seen of each session's statement: what is left of a circle when the engine
/// tells no story of it, or tells another one's by now.
#[derive(Debug, Default)]
pub(super) struct Seen {
    waits: BTreeMap<Name, Wait>,
}

impl Seen {
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
    pub(super) fn wants(&self, waiter: &Name, holder: &Name) -> Option<&Thing> {
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
            let mut seen = Seen::default();
            seen.remember(waits);
            let circle = seen.circle(&Name::new(victim).unwrap())?;
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

    #[test]
    fn strangers_are_told_from_sessions() {
        let name = |text| Name::new(text).unwrap();
        let mut who = Who::new("lab");
        for (id, text) in [(7, "B"), (8, "A"), (9, "C")] {
            who.add(id, name(text));
        }
        let mut waits = Waits::default();
        waits.add(7, None);
        for blocker in [9, 8, 100, 7] {
            waits.blocked_by(7, blocker);
        }
        waits.blocked_by(100, 7);
        waits.blocked_by(8, 9);
        let waits = waits.of(&who);
        assert_eq!(waits.len(), 2, "who is not of the case waits unseen");
        assert_eq!((&waits[0].waiter, waits[0].strangers), (&name("A"), false));
        assert_eq!(
            (&waits[1].blockers[..], waits[1].strangers),
            (&[name("A"), name("C")][..], true)
        );
        assert_eq!(
            (who.table("lab", "t"), who.table("other", "t")),
            ("t".into(), "other.t".into())
        );
    }
}
