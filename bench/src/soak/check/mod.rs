//! Checks a history. This is pure code: events and faults go in, counts and violations come out.
//!
//! 1. **No overlap.** Two visits at conflicting nodes do not overlap. Nodes conflict if they are the same, or if one is
//!    an ancestor of the other; shared is compatible with shared and with update.
//! 2. **A visit begins** when its acquire has returned. **It ends**
//!    - at its `end` if the release was confirmed, which proves that the lock was held all the time;
//!    - otherwise at the first of these: its `end`; the kill of its process; the first fault of its connections or its
//!      server since its request; the moment at which its process continued after a stop (from then on the server may
//!      have freed the lock, or the client may have given it up);
//!    - if the guard reported a loss or the work was cut short, no later than the last response of the server on its
//!      session (or its beginning): the session may have ended at any time after that.
//! 3. **A lease** is held from the return of its acquire to its `end` or to the report of its loss, but not after the
//!    database says that it expires. Kills, cuts and restarts change nothing. A checked write holds the lease from the
//!    check to the COMMIT, however late, if that was confirmed.
//! 4. **Tokens ascend**: of two conflicting holds, all tokens of the later one are greater.
//! 5. **A loss is reported**: no release is confirmed for a hold whose connection was cut.
//! 6. **The locks of a killed holder are freed**: if a conflicting request waits, it is granted within
//!    [`RELEASE_TIMEOUT`], not counting the time in which the server restarts.

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

/// The time limit for granting a lock of a killed process to a waiter.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The slot in which it runs. A fault of the slot affects the process.
    pub slot: usize,
    /// When it was killed. Recorded before the signal was sent.
    pub killed: Option<u64>,
    /// Whether it was a `hierlock run` with exit code 0, which confirms the release.
    pub confirmed: bool,
    /// Whether it has ended, for any reason.
    pub ended: bool,
}

/// A fault of connections, a server or a process that may cost a lock. Kills are recorded in [`Process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The slot whose processes it affects; all processes if `None`.
    pub slot: Option<usize>,
    /// When it began. Recorded before.
    pub since: u64,
    /// When it ended. Recorded after.
    pub until: u64,
    /// Whether it closes all connections that were open when it began.
    pub closes_connections: bool,
}

impl Fault {
    fn affects(&self, slot: usize) -> bool {
        self.slot.is_none_or(|hit| hit == slot)
    }
}

/// A history to check.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The events that the processes recorded.
    pub lines: Vec<HistoryLine>,
    /// All processes, by their numbers.
    pub processes: BTreeMap<u32, Process>,
    /// The faults, without kills.
    pub faults: Vec<Fault>,
}

/// The rules that decide when a visit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// A lock lasts as long as its session.
    Locks,
    /// A lease lasts until it expires in the database, even if its process is gone.
    Leases,
}

/// A violation of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two visits held conflicting nodes at the same time.
    Overlap {
        /// The visit that began first.
        first: VisitId,
        /// The claim that the first visit held.
        held: Claim,
        /// The other visit.
        second: VisitId,
        /// The claim that was granted to the second visit meanwhile.
        granted: Claim,
        /// The length of the overlap.
        nanos: u64,
    },
    /// A later holder has a token that is not greater.
    Token {
        /// The earlier visit.
        first: VisitId,
        /// The greatest token of the earlier visit.
        token: u64,
        /// The later visit.
        second: VisitId,
        /// The smallest token of the later visit.
        not_greater: u64,
    },
    /// A release was confirmed after the connection was cut.
    UnreportedLoss(VisitId),
    /// The lock of a killed process was not freed, although a request waited for it.
    NotFreed {
        /// The visit of the killed process.
        holder: VisitId,
        /// The visit that waited.
        waiter: VisitId,
    },
    /// Any other violation, as text.
    Other(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = |claim: &Claim| format!("{} {}", claim.target, claim.mode);
        match self {
            Violation::Overlap { first, held, second, granted, nanos } => write!(
                f,
                "overlap: visit {second} was granted {} while {first} held {}, for {:?}",
                claim(granted),
                claim(held),
                Duration::from_nanos(*nanos)
            ),
            Violation::Token { first, token, second, not_greater } => {
                write!(f, "token: {second} has {not_greater} after {first} had {token}")
            }
            Violation::UnreportedLoss(visit) => write!(
                f,
                "loss not reported: the release of visit {visit} was confirmed after its connection was cut"
            ),
            Violation::NotFreed { holder, waiter } => write!(
                f,
                "not freed: the process of visit {holder} was killed, and {waiter} still waits \
                 {RELEASE_TIMEOUT:?} later"
            ),
            Violation::Other(text) => f.write_str(text),
        }
    }
}

/// What the check of a history found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Visits that began.
    pub visits: u64,
    /// Visits whose process was killed before they ended.
    pub killed_while_holding: u64,
    /// Visits whose guard reported that the lock is lost.
    pub lost: u64,
    /// Losses without a fault: the server was too slow to respond.
    pub lost_without_fault: u64,
    /// Tokens that were compared.
    pub tokens: u64,
    /// Writes under a lease that were committed.
    pub writes: u64,
    /// Committed writes by the token of their lease.
    pub writes_by_token: BTreeMap<u64, u64>,
    /// Requests that were not granted.
    pub not_granted: BTreeMap<Reason, u64>,
    /// The longest time from the kill of a holder to the grant of a conflicting request that waited.
    pub freed_after: Duration,
    /// The violations.
    pub violations: Vec<Violation>,
}

/// Returns whether two claims exclude each other.
pub fn conflict(a: &Claim, b: &Claim) -> bool {
    let is_related = a.target.contains(&b.target) || b.target.contains(&a.target);
    let are_compatible = matches!(
        (a.mode, b.mode),
        (Mode::Shared, Mode::Shared | Mode::Update) | (Mode::Update, Mode::Shared)
    );
    is_related && !are_compatible
}

/// Checks a history.
pub fn check(history: &History, rules: Rules) -> Findings {
    let visits = visit::collect(history);
    let mut findings = Findings::default();
    for visit in visits.values() {
        findings.visits += u64::from(visit.begin.is_some());
        findings.killed_while_holding += u64::from(visit.was_killed_while_holding(history));
        findings.lost += u64::from(visit.lost.is_some());
        findings.lost_without_fault += u64::from(visit.lost.is_some() && !visit.has_fault(history));
        findings.writes += visit.writes.len() as u64;
        findings.writes_by_token.extend(visit.committed_writes());
        if let Some(reason) = visit.not_granted {
            *findings.not_granted.entry(reason).or_default() += 1;
        }
        if rules == Rules::Locks && visit.has_unreported_loss(history) {
            findings.violations.push(Violation::UnreportedLoss(visit.id));
        }
    }
    let mut holds: Vec<Hold> =
        visits.values().flat_map(|visit| visit.holds(history, rules)).collect();
    holds.sort_by_key(|hold| hold.since);
    findings.violations.extend(overlaps(&holds));
    findings.violations.extend(tokens::check(&holds, &mut findings.tokens));
    if rules == Rules::Locks {
        check_release_after_kill(history, &visits, &mut findings);
    }
    findings
}

/// Finds every two holds of different owners that conflict and overlap.
fn overlaps(holds: &[Hold]) -> Vec<Violation> {
    let (mut violations, mut current) = (Vec::new(), Vec::<&Hold>::new());
    for hold in holds.iter().filter(|hold| hold.since < hold.until) {
        current.retain(|earlier| earlier.until > hold.since);
        for earlier in &current {
            if earlier.owner != hold.owner && conflict(&earlier.claim, &hold.claim) {
                violations.push(Violation::Overlap {
                    first: earlier.visit,
                    held: earlier.claim.clone(),
                    second: hold.visit,
                    granted: hold.claim.clone(),
                    nanos: earlier.until.min(hold.until) - hold.since,
                });
            }
        }
        current.push(hold);
    }
    violations
}

/// Checks that the locks of killed processes are granted to waiters in time.
fn check_release_after_kill(
    history: &History,
    visits: &BTreeMap<VisitId, Visit>,
    findings: &mut Findings,
) {
    let mut granted: Vec<&Visit> = visits.values().filter(|visit| visit.begin.is_some()).collect();
    granted.sort_by_key(|visit| visit.begin);
    let bound = RELEASE_TIMEOUT.as_nanos() as u64;
    for holder in visits.values().filter(|visit| visit.was_killed_while_holding(history)) {
        let Some(killed) = history.processes[&holder.id.worker].killed else { continue };
        let restarting = restart_time(history, killed, killed + bound);
        let bound = bound + restarting;
        let is_conflicting = |other: &&Visit| other.id != holder.id && holder.conflicts(other);
        let mut conflicting = visits.values().filter(is_conflicting);
        let waiter = conflicting.find(|visit| visit.waits_at(history, killed));
        let Some(waiter) = waiter else { continue };
        let from = granted.partition_point(|visit| visit.begin < Some(killed));
        let next = granted[from..].iter().copied().find(|visit| is_conflicting(visit));
        let after = next.and_then(|visit| visit.begin).map(|begin| begin - killed);
        match after {
            Some(after) if after <= bound => {
                let after = Duration::from_nanos(after.saturating_sub(restarting));
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

/// Returns how long the server was restarting between `from` and `to`. During a restart it grants no locks.
fn restart_time(history: &History, from: u64, to: u64) -> u64 {
    let restarts = history.faults.iter().filter(|fault| fault.slot.is_none());
    let meanwhile = restarts.filter(|fault| fault.until > from && fault.since < to);
    meanwhile.map(|fault| fault.until - fault.since.max(from)).sum()
}
