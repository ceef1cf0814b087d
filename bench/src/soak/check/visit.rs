//! One visit, put together from its events.

use super::{Disturbance, History, Rules, conflict};
use crate::soak::history::{Event, Reason, VisitId};
use hierlock::Claim;
use std::collections::BTreeMap;

/// A visit, as far as it got.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: VisitId,
    asked: Option<u64>,
    wanted: Vec<Claim>,
    pub(super) not_granted: Option<Reason>,
    pub(super) begin: Option<u64>,
    /// When the wait ended, however it did.
    answered: Option<u64>,
    /// What it held, since when.
    claims: Vec<(Claim, u64)>,
    /// When a question was sent that was answered, and the answer.
    tokens: Vec<(u64, u64)>,
    valid: Option<u64>,
    end: Option<u64>,
    released: bool,
    /// When it was told that it is lost.
    pub(super) lost: Option<u64>,
    /// From the check to the COMMIT, of those that were confirmed.
    pub(super) writes: Vec<(u64, u64)>,
    checked: Option<u64>,
    committing: Option<u64>,
}

/// Something that somebody held for some time.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) visit: VisitId,
    /// Whom it does not exclude: the same visit, or the same owner of leases.
    pub(super) owner: VisitId,
    pub(super) claim: Claim,
    pub(super) since: u64,
    pub(super) until: u64,
    /// The smallest and the greatest token that was asked for meanwhile.
    pub(super) tokens: Option<(u64, u64)>,
}

/// Puts the visits of a history together.
pub(super) fn collect(history: &History) -> BTreeMap<VisitId, Visit> {
    let mut visits = BTreeMap::new();
    for line in &history.lines {
        let visit = visits.entry(line.visit).or_insert_with(|| Visit::new(line.visit));
        visit.read(line.at, &line.event);
    }
    for visit in visits.values_mut() {
        // A `hierlock run` says by its exit code that it has released the lock.
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

    /// Its token and how many writes it committed under it.
    pub(super) fn committed(&self) -> Option<(u64, u64)> {
        let (_, token) = self.tokens.first()?;
        Some((*token, self.writes.len() as u64))
    }

    fn slot(&self, history: &History) -> usize {
        history.processes.get(&self.id.worker).map_or(usize::MAX, |process| process.slot)
    }

    fn killed(&self, history: &History) -> Option<u64> {
        history.processes.get(&self.id.worker)?.killed
    }

    /// What was done to it from its request on: between the grant and its beginning is some time, in which the
    /// lock may have been lost.
    fn disturbances<'a>(&self, history: &'a History) -> impl Iterator<Item = &'a Disturbance> {
        let (slot, asked) = (self.slot(history), self.asked.or(self.begin).unwrap_or(u64::MAX));
        history.disturbances.iter().filter(move |d| d.hits(slot) && d.until >= asked)
    }

    pub(super) fn is_disturbed(&self, history: &History) -> bool {
        self.disturbances(history).next().is_some()
    }

    /// Was its process killed while it held?
    pub(super) fn is_killed_inside(&self, history: &History) -> bool {
        let (Some(begin), Some(killed)) = (self.begin, self.killed(history)) else { return false };
        begin < killed && self.end.is_none_or(|end| killed < end) && !self.released
    }

    pub(super) fn is_loss_untold(&self, history: &History) -> bool {
        let (Some(begin), Some(end), true) = (self.begin, self.end, self.released) else {
            return false;
        };
        self.disturbances(history).any(|d| d.severs && begin < d.since && d.until < end)
    }

    /// Does it wait at that moment?
    pub(super) fn waits_at(&self, history: &History, moment: u64) -> bool {
        self.asked.is_some_and(|asked| asked < moment)
            && self.answered.is_none_or(|answered| answered > moment)
            && self.killed(history).is_none_or(|killed| killed > moment)
            // One without an answer may have ended with its process.
            && (self.answered.is_some() || !self.has_ended(history))
    }

    fn has_ended(&self, history: &History) -> bool {
        history.processes.get(&self.id.worker).is_none_or(|process| process.ended)
    }

    pub(super) fn conflicts(&self, other: &Visit) -> bool {
        let wanted = &other.wanted;
        self.claims.iter().any(|(held, _)| wanted.iter().any(|wanted| conflict(held, wanted)))
    }

    /// Until when it held a lock for sure: the rules of the module above.
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
        let disturbed = self.disturbances(history).map(|d| d.since.max(begin));
        disturbed.fold(until, u64::min)
    }

    /// Until when it held a lease for sure. One that is lost is given back by who kept it.
    fn lease_until(&self) -> u64 {
        let ends = [self.valid.unwrap_or(0)].into_iter().chain(self.end).chain(self.lost);
        ends.fold(u64::MAX, u64::min)
    }

    /// What it held for sure.
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
