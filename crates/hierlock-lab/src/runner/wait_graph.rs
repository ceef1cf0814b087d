//! Cycles in the wait-for graph that the probes have seen. Pure.

use crate::observation::{LockTarget, SessionName, SessionWait};
use crate::record::{Cycle, WaitEdge};
use tokio::time::Instant;

/// Returns the cycle that `from` is part of: each session waits for the next, the last one for the first.
pub(crate) fn cycle_of(from: &SessionName, waits: &[SessionWait]) -> Option<Cycle> {
    path(from, from, waits)
}

/// Returns the cycle that `victim` closed with a request that no probe has seen.
pub(crate) fn cycle_closed_by(victim: &SessionName, waits: &[SessionWait]) -> Option<Cycle> {
    waits.iter().filter(|wait| wait.waiter != *victim).find_map(|first| {
        let rest = path(&first.waiter, victim, waits)?;
        let closing = WaitEdge::new(victim.clone(), first.waiter.clone(), None);
        Some(std::iter::once(closing).chain(rest).collect())
    })
}

pub(crate) fn waits_in_cycles(waits: &[SessionWait]) -> Vec<SessionWait> {
    waits.iter().filter(|wait| cycle_of(&wait.waiter, waits).is_some()).cloned().collect()
}

fn path(from: &SessionName, to: &SessionName, waits: &[SessionWait]) -> Option<Cycle> {
    let mut path = Vec::new();
    extend(&mut path, from, to, waits).then_some(path)
}

fn extend(
    path: &mut Vec<WaitEdge>,
    from: &SessionName,
    to: &SessionName,
    waits: &[SessionWait],
) -> bool {
    for wait in waits.iter().filter(|wait| wait.waiter == *from) {
        for holder in &wait.blockers {
            if path.iter().any(|edge| edge.holder == *holder) {
                continue;
            }
            path.push(WaitEdge::new(from.clone(), holder.clone(), wait.target.clone()));
            if holder == to || extend(path, holder, to, waits) {
                return true;
            }
            path.pop();
        }
    }
    false
}

/// The last wait of each session that a probe has seen: used for cycles that the server does not report.
#[derive(Debug, Default)]
pub(crate) struct LastWaits {
    waits: Vec<SessionWait>,
    /// The time at which the server's detector will have checked the last of them.
    pub(crate) checked_at: Option<Instant>,
}

impl LastWaits {
    /// Forgets the wait of a session that begins a new statement.
    pub(crate) fn forget(&mut self, session: &SessionName) {
        self.waits.retain(|wait| wait.waiter != *session);
    }

    pub(crate) fn remember(&mut self, waits: &[SessionWait]) {
        self.waits.retain(|old| waits.iter().all(|wait| wait.waiter != old.waiter));
        self.waits.extend_from_slice(waits);
    }

    /// Returns the lock that `waiter` was last seen to wait for, if `holder` blocked it.
    pub(crate) fn wants(&self, waiter: &SessionName, holder: &SessionName) -> Option<&LockTarget> {
        let mut waits = self.waits.iter().filter(|wait| wait.blockers.contains(holder));
        waits.find(|wait| wait.waiter == *waiter)?.target.as_ref()
    }

    /// Returns the cycle of which `victim` was a part, if the observations leave no doubt.
    pub(crate) fn cycle(&self, victim: &SessionName) -> Option<Cycle> {
        if self.waits.iter().any(|wait| wait.waiter == *victim) {
            return cycle_of(victim, &self.waits);
        }
        // No probe has seen the wait. Its blocker is certain if one session waits for it, and none for that one.
        let waits_for = |holder: &SessionName, wait: &SessionWait| wait.blockers.contains(holder);
        let mut waiters = self.waits.iter().filter(|wait| waits_for(victim, wait));
        let only_waiter = waiters.next().filter(|_| waiters.next().is_none())?;
        let is_certain = !self.waits.iter().any(|wait| waits_for(&only_waiter.waiter, wait));
        cycle_closed_by(victim, std::slice::from_ref(only_waiter)).filter(|_| is_certain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::name;

    fn wait(waiter: &str, blockers: &[&str]) -> SessionWait {
        let blockers = blockers.iter().map(|text| name(text)).collect();
        SessionWait { waiter: name(waiter), blockers, has_outside_blocker: false, target: None }
    }

    fn text(cycle: Option<Cycle>) -> String {
        let edges = cycle.unwrap_or_default();
        edges.iter().map(|edge| format!("{}>{} ", edge.waiter, edge.holder)).collect()
    }

    #[test]
    fn cycles_are_found() {
        let two = [wait("A", &["B"]), wait("B", &["A"])];
        assert_eq!(text(cycle_of(&name("A"), &two)), "A>B B>A ");
        let d = wait("D", &["E"]);
        let three = [wait("A", &["D", "B"]), wait("B", &["C"]), wait("C", &["A"]), d];
        assert_eq!(text(cycle_of(&name("B"), &three)), "B>C C>A A>B ");
        assert_eq!(waits_in_cycles(&three), three[..3]);
        assert_eq!(waits_in_cycles(&[wait("A", &["B", "C"]), wait("B", &["C"])]), []);
        // A waits for a session in a cycle, but is not part of a cycle itself.
        let outside = [wait("A", &["B"]), wait("B", &["C"]), wait("C", &["B"])];
        assert_eq!(text(cycle_of(&name("A"), &outside)), "");
    }

    #[test]
    fn a_cycle_is_closed_by_the_request_of_the_victim() {
        let seen = [wait("A", &["B"]), wait("C", &["A"])];
        assert_eq!(text(cycle_closed_by(&name("B"), &seen)), "B>A A>B ");
        assert_eq!(text(cycle_closed_by(&name("C"), &seen)), "");
    }

    #[test]
    fn a_cycle_is_found_in_the_last_waits() {
        let cycle = |waits: &[SessionWait], victim: &str| {
            let mut last_waits = LastWaits::default();
            last_waits.remember(waits);
            text(last_waits.cycle(&name(victim)))
        };
        let (a, b) = (wait("A", &["B"]), wait("B", &["C"]));
        // The session that closed the cycle failed before a probe saw its wait.
        assert_eq!(cycle(std::slice::from_ref(&a), "B"), "B>A A>B ");
        assert_eq!(cycle(&[a.clone(), b.clone()], "C"), "", "the cycle may include A or not");
        let c = wait("C", &["D", "A"]);
        assert_eq!(cycle(&[a, b, c], "C"), "C>A A>B B>C ");
        assert_eq!(cycle(&[], "A"), "");
    }
}
