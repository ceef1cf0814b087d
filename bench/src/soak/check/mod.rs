//! Is a history right? Pure: events and what was done to the processes go in, counts and violations come out.
//!
//! 1. **No overlap.** Two visits are at conflicting nodes (the same, or one above the other; shared goes with
//!    shared and with update) only one after the other.
//! 2. **A visit begins** when its acquire has returned. **It ends**
//!    - at its `end`, if the release was confirmed: whoever confirms it has held the lock all the time;
//!    - else at the first of these: its `end`; the kill of its process; the first moment since its request at which
//!      something was done to its connections or its server, or at which its process went on after a stop (from
//!      then on the server may have freed the lock, or the client may have given it up);
//!    - and, if the guard said that it is lost or the work was cut short, at the last question that the server
//!      answered on its session (or its beginning): the session may have ended at any time after.
//! 3. **A lease** is held from the return of its acquire to its `end` or to the moment at which it was told to be
//!    lost, but not beyond the time until which the database said it is valid; kills, cuts and restarts change nothing. A checked write holds it from the check
//!    to the COMMIT, however late, if that was confirmed.
//! 4. **Tokens ascend**: of two conflicting holds, the later one's are all greater.
//! 5. **A loss is told**: no release is confirmed of a hold whose connection was cut.
//! 6. **A killed holder is gone**: if somebody waits, somebody at a conflicting node is granted within
//!    [`FREE_WITHIN`], not counting the time in which the server is restarted.

mod jobs;
#[cfg(test)]
mod tests;
mod tokens;
mod visit;
mod writes;

pub use jobs::{JobCounts, Jobs, check_jobs};
pub use writes::{Write, check_writes};

use super::history::{HistoryLine, Reason, VisitId};
use hierlock::{Claim, Mode};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use visit::{Hold, Visit};

/// How long it may take until a node that a killed process held is granted to somebody who waits.
pub const FREE_WITHIN: Duration = Duration::from_secs(30);

/// A process that was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Where its connections go through: what is done to the slot is done to it.
    pub slot: usize,
    /// When it was killed; recorded before the signal was sent.
    pub killed: Option<u64>,
    /// Was it a `hierlock run` that ended with exit code 0? That is a confirmed release.
    pub confirmed: bool,
    /// Has it ended, however?
    pub ended: bool,
}

/// Something that was done to connections, a server or a process, after which a lock may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbance {
    /// To the processes of this slot; to all if there is none.
    pub slot: Option<usize>,
    /// Recorded before it began.
    pub since: u64,
    /// Recorded after it ended.
    pub until: u64,
    /// Are all connections gone in the end that were open when it began?
    pub severs: bool,
}

impl Disturbance {
    fn hits(&self, slot: usize) -> bool {
        self.slot.is_none_or(|hit| hit == slot)
    }
}

/// What is checked.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What the processes recorded.
    pub lines: Vec<HistoryLine>,
    /// All processes, by their numbers.
    pub processes: BTreeMap<u32, Process>,
    /// What was done to them, other than kills.
    pub disturbances: Vec<Disturbance>,
}

/// By which rules a visit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// A lock is as long as its session.
    Locks,
    /// A lease is as long as the database says, whoever is gone.
    Leases,
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two visits at conflicting nodes at the same time.
    Overlap {
        /// The one that came first.
        first: VisitId,
        /// What it held.
        held: Claim,
        /// The other one.
        second: VisitId,
        /// What that was given meanwhile.
        given: Claim,
        /// For how long both held it.
        nanos: u64,
    },
    /// A later holder has a token that is not greater.
    Token {
        /// The one that came first.
        first: VisitId,
        /// Its greatest token.
        token: u64,
        /// The later one.
        second: VisitId,
        /// Its smallest token.
        not_greater: u64,
    },
    /// A release was confirmed although the connection had been cut.
    NotTold(VisitId),
    /// Nobody got what a killed process held, although somebody waited for it.
    NotFreed {
        /// The visit of the killed process.
        holder: VisitId,
        /// Who waited.
        waiter: VisitId,
    },
    /// Anything else, in words.
    Other(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = |claim: &Claim| format!("{} {}", claim.target, claim.mode);
        match self {
            Violation::Overlap { first, held, second, given, nanos } => write!(
                f,
                "overlap: visit {second} was given {} while {first} held {}, for {:?}",
                claim(given),
                claim(held),
                Duration::from_nanos(*nanos)
            ),
            Violation::Token { first, token, second, not_greater } => {
                write!(f, "token: {second} has {not_greater} after {first} had {token}")
            }
            Violation::NotTold(visit) => write!(
                f,
                "loss not told: the release of visit {visit} was confirmed after its connection was cut"
            ),
            Violation::NotFreed { holder, waiter } => write!(
                f,
                "not freed: the process of visit {holder} was killed, and {waiter} still waits \
                 {FREE_WITHIN:?} later"
            ),
            Violation::Other(words) => f.write_str(words),
        }
    }
}

/// What a history has in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Visits that began.
    pub visits: u64,
    /// Those that began, and whose process was killed before they ended.
    pub killed_inside: u64,
    /// Those whose guard said that the lock is lost.
    pub lost: u64,
    /// Those of them that nothing was done to: a server that was too slow to answer.
    pub lost_undisturbed: u64,
    /// Tokens that were compared.
    pub tokens: u64,
    /// Writes under a lease that were committed.
    pub writes: u64,
    /// The same, by the token of their lease.
    pub writes_by_token: BTreeMap<u64, u64>,
    /// Requests that were not granted.
    pub not_granted: BTreeMap<Reason, u64>,
    /// The longest time until a conflicting visit began after the kill of a holder that somebody waited for.
    pub freed_after: Duration,
    /// What must not be.
    pub violations: Vec<Violation>,
}

/// Do two claims exclude each other?
pub fn conflict(a: &Claim, b: &Claim) -> bool {
    let is_related = a.target.contains(&b.target) || b.target.contains(&a.target);
    let go_together = matches!(
        (a.mode, b.mode),
        (Mode::Shared, Mode::Shared | Mode::Update) | (Mode::Update, Mode::Shared)
    );
    is_related && !go_together
}

/// Checks a history.
pub fn check(history: &History, rules: Rules) -> Findings {
    let visits = visit::collect(history);
    let mut findings = Findings::default();
    for visit in visits.values() {
        findings.visits += u64::from(visit.begin.is_some());
        findings.killed_inside += u64::from(visit.is_killed_inside(history));
        findings.lost += u64::from(visit.lost.is_some());
        findings.lost_undisturbed +=
            u64::from(visit.lost.is_some() && !visit.is_disturbed(history));
        findings.writes += visit.writes.len() as u64;
        findings.writes_by_token.extend(visit.committed());
        if let Some(reason) = visit.not_granted {
            *findings.not_granted.entry(reason).or_default() += 1;
        }
        if rules == Rules::Locks && visit.is_loss_untold(history) {
            findings.violations.push(Violation::NotTold(visit.id));
        }
    }
    let mut holds: Vec<Hold> =
        visits.values().flat_map(|visit| visit.holds(history, rules)).collect();
    holds.sort_by_key(|hold| hold.since);
    findings.violations.extend(overlaps(&holds));
    findings.violations.extend(tokens::check(&holds, &mut findings.tokens));
    if rules == Rules::Locks {
        freed(history, &visits, &mut findings);
    }
    findings
}

/// Finds every two holds of different owners that conflict and overlap.
fn overlaps(holds: &[Hold]) -> Vec<Violation> {
    let (mut found, mut current) = (Vec::new(), Vec::<&Hold>::new());
    for hold in holds.iter().filter(|hold| hold.since < hold.until) {
        current.retain(|earlier| earlier.until > hold.since);
        for earlier in &current {
            if earlier.owner != hold.owner && conflict(&earlier.claim, &hold.claim) {
                found.push(Violation::Overlap {
                    first: earlier.visit,
                    held: earlier.claim.clone(),
                    second: hold.visit,
                    given: hold.claim.clone(),
                    nanos: earlier.until.min(hold.until) - hold.since,
                });
            }
        }
        current.push(hold);
    }
    found
}

/// Looks at what became free by a kill.
fn freed(history: &History, visits: &BTreeMap<VisitId, Visit>, findings: &mut Findings) {
    let mut begun: Vec<&Visit> = visits.values().filter(|visit| visit.begin.is_some()).collect();
    begun.sort_by_key(|visit| visit.begin);
    let bound = FREE_WITHIN.as_nanos() as u64;
    for holder in visits.values().filter(|visit| visit.is_killed_inside(history)) {
        let Some(killed) = history.processes[&holder.id.worker].killed else { continue };
        let away = away(history, killed, killed + bound);
        let bound = bound + away;
        let wanted = |other: &&Visit| other.id != holder.id && holder.conflicts(other);
        let waiter = visits.values().filter(wanted).find(|visit| visit.waits_at(history, killed));
        let Some(waiter) = waiter else { continue };
        let from = begun.partition_point(|visit| visit.begin < Some(killed));
        let next = begun[from..].iter().copied().find(|visit| wanted(visit));
        let after = next.and_then(|visit| visit.begin).map(|begin| begin - killed);
        match after {
            Some(after) if after <= bound => {
                let after = Duration::from_nanos(after.saturating_sub(away));
                findings.freed_after = findings.freed_after.max(after);
            }
            _ if waiter.waits_at(history, killed + bound) => {
                let (holder, waiter) = (holder.id, waiter.id);
                findings.violations.push(Violation::NotFreed { holder, waiter });
            }
            _ => {}
        }
    }
}

/// For how long the server was being restarted meanwhile: nobody can be granted anything then.
fn away(history: &History, from: u64, to: u64) -> u64 {
    let restarts = history.disturbances.iter().filter(|d| d.slot.is_none());
    let meanwhile = restarts.filter(|d| d.until > from && d.since < to);
    meanwhile.map(|d| d.until - d.since.max(from)).sum()
}
