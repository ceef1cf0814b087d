//! A visit, assembled from its events.

use super::{Fault, History, Rules, conflict};
use crate::soak::history::{Event, Reason, VisitId};
use hierlock::Claim;
use std::collections::BTreeMap;

/// A visit with the events that were recorded.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: VisitId,
    asked: Option<u64>,
    wanted: Vec<Claim>,
    pub(super) not_granted: Option<Reason>,
    pub(super) begin: Option<u64>,
    /// When the wait ended, for any reason.
    answered: Option<u64>,
    /// The claims that it held, with the start of each hold.
    claims: Vec<(Claim, u64)>,
    /// The time of each token request that succeeded, and its token.
    tokens: Vec<(u64, u64)>,
    valid: Option<u64>,
    end: Option<u64>,
    released: bool,
    /// When its loss was reported.
    pub(super) lost: Option<u64>,
    /// The times of check and COMMIT of each confirmed write.
    pub(super) writes: Vec<(u64, u64)>,
    checked: Option<u64>,
    committing: Option<u64>,
}

/// A claim that was held for some time.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) visit: VisitId,
    /// The owner, which does not exclude itself: the visit, or the owner of leases.
    pub(super) owner: VisitId,
    pub(super) claim: Claim,
    pub(super) since: u64,
    pub(super) until: u64,
    /// The smallest and the greatest token that was read meanwhile.
    pub(super) tokens: Option<(u64, u64)>,
}

/// Assembles the visits of a history.
pub(super) fn collect(history: &History) -> BTreeMap<VisitId, Visit> {
    let mut visits = BTreeMap::new();
    for line in &history.lines {
        let visit = visits.entry(line.visit).or_insert_with(|| Visit::new(line.visit));
        visit.read(line.at, &line.event);
    }
    for visit in visits.values_mut() {
        // The exit code of a `hierlock run` confirms the release.
        if let Some(process) = history.processes.get(&visit.id.worker)
            && process.confirmed
            && visit.end.is_some()
            && visit.lost.is_none()
        {
            visit.released = true;
        }
    }
    visits
}

impl Visit {
    fn new(id: VisitId) -> Self {
        Self {
            id,
            asked: None,
            wanted: Vec::new(),
            not_granted: None,
            begin: None,
            answered: None,
            claims: Vec::new(),
            tokens: Vec::new(),
            valid: None,
            end: None,
            released: false,
            lost: None,
            writes: Vec::new(),
            checked: None,
            committing: None,
        }
    }

    fn read(&mut self, at: u64, event: &Event) {
        match event {
            Event::Ask(claims) => {
                self.asked = self.asked.or(Some(at));
                self.wanted.clone_from(claims);
            }
            Event::NotGranted(reason) => {
                self.not_granted = Some(*reason);
                self.answered = self.answered.or(Some(at));
            }
            Event::Begin(claims) => {
                self.begin = Some(at);
                self.answered = Some(at);
                self.claims.extend(claims.iter().map(|claim| (claim.clone(), at)));
            }
            Event::Extend(claims) => {
                self.claims.extend(claims.iter().map(|claim| (claim.clone(), at)));
            }
            Event::Token { asked, token } => self.tokens.push((*asked, *token)),
            Event::Valid { until } => self.valid = self.valid.max(Some(*until)),
            Event::Check => self.checked = Some(at),
            Event::Commit => self.committing = Some(at),
            Event::Committed => {
                self.writes.extend(self.checked.take().zip(self.committing.take()));
            }
            Event::End => self.end = Some(at),
            Event::Released => self.released = true,
            Event::Lost => self.lost = self.lost.or(Some(at)),
            Event::Run | Event::Fail => {}
        }
    }

    /// Returns the token of its lease and the number of writes that it committed with that token.
    pub(super) fn committed_writes(&self) -> Option<(u64, u64)> {
        let (_, token) = self.tokens.first()?;
        Some((*token, self.writes.len() as u64))
    }

    fn slot(&self, history: &History) -> usize {
        history.processes.get(&self.id.worker).map_or(usize::MAX, |process| process.slot)
    }

    fn killed(&self, history: &History) -> Option<u64> {
        history.processes.get(&self.id.worker)?.killed
    }

    /// Returns the faults since its request. They count from the request on, because the lock may be lost between the
    /// grant and the beginning of the visit.
    fn faults<'a>(&self, history: &'a History) -> impl Iterator<Item = &'a Fault> {
        let (slot, asked) = (self.slot(history), self.asked.or(self.begin).unwrap_or(u64::MAX));
        history.faults.iter().filter(move |fault| fault.affects(slot) && fault.until >= asked)
    }

    pub(super) fn has_fault(&self, history: &History) -> bool {
        self.faults(history).next().is_some()
    }

    /// Returns whether its process was killed while it held the lock.
    pub(super) fn was_killed_while_holding(&self, history: &History) -> bool {
        let (Some(begin), Some(killed)) = (self.begin, self.killed(history)) else { return false };
        begin < killed && self.end.is_none_or(|end| killed < end) && !self.released
    }

    pub(super) fn has_unreported_loss(&self, history: &History) -> bool {
        let (Some(begin), Some(end), true) = (self.begin, self.end, self.released) else {
            return false;
        };
        self.faults(history)
            .any(|fault| fault.closes_connections && begin < fault.since && fault.until < end)
    }

    /// Returns whether its request waits at this time.
    pub(super) fn waits_at(&self, history: &History, time: u64) -> bool {
        self.asked.is_some_and(|asked| asked < time)
            && self.answered.is_none_or(|answered| answered > time)
            && self.killed(history).is_none_or(|killed| killed > time)
            // A request without a result may have ended with its process.
            && (self.answered.is_some() || !self.has_ended(history))
    }

    fn has_ended(&self, history: &History) -> bool {
        history.processes.get(&self.id.worker).is_none_or(|process| process.ended)
    }

    pub(super) fn conflicts(&self, other: &Visit) -> bool {
        let wanted = &other.wanted;
        self.claims.iter().any(|(held, _)| wanted.iter().any(|wanted| conflict(held, wanted)))
    }

    /// Returns until when it certainly held a lock, by the rules of the parent module.
    fn lock_until(&self, history: &History, begin: u64) -> u64 {
        if let (true, Some(end)) = (self.released, self.end) {
            return end;
        }
        let confirmed = self.tokens.iter().map(|(asked, _)| *asked).fold(begin, u64::max);
        let killed = self.killed(history);
        let until = match (self.lost.is_some(), self.end, killed) {
            (true, ..) | (false, None, None) => confirmed,
            (false, Some(end), killed) => end.min(killed.unwrap_or(end)),
            (false, None, Some(killed)) => killed,
        };
        let fault_times = self.faults(history).map(|fault| fault.since.max(begin));
        fault_times.fold(until, u64::min)
    }

    /// Returns until when it certainly held a lease. The owner gives up a lease when its loss is reported.
    fn lease_until(&self) -> u64 {
        let ends = [self.valid.unwrap_or(0)].into_iter().chain(self.end).chain(self.lost);
        ends.fold(u64::MAX, u64::min)
    }

    /// Returns the claims that it certainly held, with their times.
    pub(super) fn holds(&self, history: &History, rules: Rules) -> Vec<Hold> {
        let Some(begin) = self.begin else { return Vec::new() };
        let (owner, until) = match rules {
            Rules::Locks => (self.id, self.lock_until(history, begin)),
            Rules::Leases => (VisitId { number: 0, ..self.id }, self.lease_until()),
        };
        let of_claim = |(claim, since): &(Claim, u64)| {
            let asked = self.tokens.iter().filter(|(asked, _)| asked >= since);
            let tokens = asked.fold(None, |range: Option<(u64, u64)>, (_, token)| {
                let (least, greatest) = range.unwrap_or((*token, *token));
                Some((least.min(*token), greatest.max(*token)))
            });
            let hold = |since, until| {
                let (visit, claim) = (self.id, claim.clone());
                Hold { visit, owner, claim, since, until, tokens }
            };
            let mut holds = vec![hold(*since, until)];
            holds.extend(self.writes.iter().map(|(checked, commit)| hold(*checked, *commit)));
            holds
        };
        self.claims.iter().flat_map(of_claim).collect()
    }
}
