//! The waits that were seen last, and the cycle that follows from them.

use crate::observation::{LockedObject, SessionName, Wait};
use crate::record::WaitEdge;
use crate::runner::wait_graph::{cycle_closed_by, cycle_of};
use tokio::time::Instant;

/// The last wait that was seen of each session's statement: what is known of a cycle when the server does not
/// report it, or reports another one's by now.
#[derive(Debug, Default)]
pub(super) struct LastWaits {
    waits: Vec<Wait>,
    /// When the server's detector will have checked the last of them.
    pub(super) checked_at: Option<Instant>,
}

impl LastWaits {
    /// Forgets the wait of a session that begins something new.
    pub(super) fn forget(&mut self, session: &SessionName) {
        self.waits.retain(|wait| wait.waiter != *session);
    }

    pub(super) fn remember(&mut self, waits: &[Wait]) {
        self.waits.retain(|old| waits.iter().all(|wait| wait.waiter != old.waiter));
        self.waits.extend_from_slice(waits);
    }

    /// Returns what the statement of a session was last seen to wait for, if `holder` was in its way.
    pub(super) fn wants(
        &self,
        waiter: &SessionName,
        holder: &SessionName,
    ) -> Option<&LockedObject> {
        let mut waits = self.waits.iter().filter(|wait| wait.blockers.contains(holder));
        waits.find(|wait| wait.waiter == *waiter)?.target.as_ref()
    }

    /// Returns the cycle in which `victim` was, if what was seen leaves no doubt.
    pub(super) fn cycle(&self, victim: &SessionName) -> Option<Vec<WaitEdge>> {
        if self.waits.iter().any(|wait| wait.waiter == *victim) {
            return cycle_of(victim, &self.waits);
        }
        // Its own wait was not seen. Only if there is one waiter, and nobody waits for that one, it is clear
        // whose lock the victim requested.
        let waits_for = |holder: &SessionName, wait: &Wait| wait.blockers.contains(holder);
        let mut waiters = self.waits.iter().filter(|wait| waits_for(victim, wait));
        let only = waiters.next().filter(|_| waiters.next().is_none())?;
        let is_clear = !self.waits.iter().any(|wait| waits_for(&only.waiter, wait));
        cycle_closed_by(victim, std::slice::from_ref(only)).filter(|_| is_clear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(waiter: &str, blockers: &[&str]) -> Wait {
        let name = |text: &&str| SessionName::new(text).unwrap();
        let blockers = blockers.iter().map(name).collect();
        Wait { waiter: name(&waiter), blockers, has_outside_blocker: false, target: None }
    }

    #[test]
    fn a_circle_is_made_of_what_was_seen() {
        let cycle = |waits: &[Wait], victim: &str| {
            let mut last_waits = LastWaits::default();
            last_waits.remember(waits);
            let cycle = last_waits.cycle(&SessionName::new(victim).unwrap())?;
            let text = cycle.iter().map(|link| format!("{}{}", link.waiter, link.holder));
            Some(text.collect::<Vec<_>>().join(" "))
        };
        let (a, b) = (wait("A", &["B"]), wait("B", &["C"]));
        // The one who closed it was ended before it was seen to wait.
        assert_eq!(cycle(std::slice::from_ref(&a), "B").as_deref(), Some("BA AB"));
        assert_eq!(cycle(&[a.clone(), b.clone()], "C"), None, "with A, or only with B?");
        let c = wait("C", &["D", "A"]);
        assert_eq!(cycle(&[a, b, c], "C").as_deref(), Some("CA AB BC"));
        assert_eq!(cycle(&[], "A"), None);
    }
}
