//! Waits until every unfinished step has ended or is seen to wait.

use super::wait_graph::waits_in_cycles;
use crate::environment::{CYCLE_LIMIT, CaseEnvironment, LabError, Reply};
use crate::observation::{Answer, Failure, FailureKind, LockKind, SessionName, SessionWait};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The library checks at least this often whether the wait of a lock step goes on. A wait without a known blocker
/// counts only after this time: it may be about to end.
const UNKNOWN_BLOCKER_DELAY: Duration = Duration::from_millis(1200);
/// A cycle counts as lasting only after this many probes, however long they took.
const MIN_CYCLE_PROBES: u32 = 5;
/// A step waits for a deadlock check of the server within this time, even if the case expects no deadlock.
const NEAR_DEADLOCK_CHECK: Duration = Duration::from_millis(100);

pub(super) type PendingSteps = BTreeMap<SessionName, PendingStep>;

pub(super) struct PendingStep {
    pub(super) step: usize,
    pub(super) reply: Reply,
}

pub(super) struct EndedStep {
    pub(super) session: SessionName,
    pub(super) step: usize,
    pub(super) result: Result<Answer, Failure>,
    pub(super) at: Instant,
}

/// The state of the sessions once each is idle or waits.
#[derive(Default)]
pub(super) struct SettleOutcome {
    /// The steps that have ended, in the order in which that was seen.
    pub(super) ended: Vec<EndedStep>,
    /// The current waits. They include all unfinished steps, unless a step is stuck.
    pub(super) waits: Vec<SessionWait>,
    /// The sessions that neither ended their step nor wait.
    pub(super) stuck: Vec<SessionName>,
    /// The waits when a cycle was last seen; empty if there was none.
    pub(super) cycle: Vec<SessionWait>,
    /// The waits in cycles that the server does not resolve; part of `waits`.
    pub(super) unresolved: Vec<SessionWait>,
}

/// The conditions for the end of settling.
pub(super) struct Goal<'a> {
    pub(super) limit: Duration,
    /// A session whose wait has a timeout: settling waits for its end.
    pub(super) awaited: Option<&'a SessionName>,
    /// The step expects a deadlock: a cycle may last as long as the limit.
    pub(super) deadlock: bool,
    /// Some step of the case expects a deadlock.
    pub(super) deadlock_later: bool,
    /// The waits in cycles that are already known not to be resolved by the server.
    pub(super) unresolved: &'a [SessionWait],
}

/// The waits that the last probes have agreed on.
struct StableWaits {
    since: Instant,
    probes: u32,
    waits: Vec<SessionWait>,
}

/// Moves ended steps out of `unfinished`, until the rest is seen to wait.
pub(super) async fn settle(
    environment: &CaseEnvironment,
    unfinished: &mut PendingSteps,
    goal: Goal<'_>,
) -> Result<SettleOutcome, LabError> {
    let Goal { limit, awaited, .. } = goal;
    let mut settled = SettleOutcome::default();
    let started = Instant::now();
    let mut before: Option<StableWaits> = None;
    let probes = environment.probe_intervals();
    let mut pause = probes.first;
    loop {
        let any_ended = wait_for_ends(unfinished, pause, &mut settled.ended).await;
        if unfinished.is_empty() {
            return Ok(settled);
        }
        if any_ended {
            // A step that has ended may have released locks, so earlier probes do not count.
            before = None;
            pause = probes.first;
            continue;
        }
        let mut waits = environment.waits().await?;
        waits.retain(|wait| unfinished.contains_key(&wait.waiter));
        waits.sort_by(|a, b| a.waiter.cmp(&b.waiter));
        let is_waiting = |name: &SessionName| waits.iter().any(|wait| wait.waiter == *name);
        let all_wait = unfinished.keys().all(is_waiting);
        let cycles = waits_in_cycles(&waits);
        let is_known =
            |wait: &SessionWait| goal.unresolved.iter().any(|known| same_wait(known, wait));
        let has_new_cycle = !cycles.iter().all(is_known);
        if has_new_cycle {
            settled.cycle = waits.clone();
        }
        let must_end = awaited.is_some_and(|name| unfinished.contains_key(name))
            || has_new_cycle && goal.deadlock;
        let may_end = must_end && started.elapsed() < limit;
        let is_same = |before: &&StableWaits| {
            before.waits.len() == waits.len()
                && before.waits.iter().zip(&waits).all(|(a, b)| same_wait(a, b))
        };
        let unchanged = before.as_ref().filter(|before| all_wait && is_same(before));
        let is_for_node = |wait: &SessionWait| {
            wait.target.as_ref().is_some_and(|target| target.kind == LockKind::Node)
        };
        let lacks_blocker = |wait: &SessionWait| is_for_node(wait) && wait.blockers.is_empty();
        let agree = unchanged.is_some_and(|before| {
            let unchanged_for = before.since.elapsed();
            let is_certain =
                unchanged_for > UNKNOWN_BLOCKER_DELAY || !waits.iter().any(lacks_blocker);
            let stays =
                before.probes >= MIN_CYCLE_PROBES && unchanged_for > environment.cycle_limit();
            is_certain && (!has_new_cycle || stays)
        });
        // A session that checks for deadlocks while others close a cycle would become the victim.
        let due = environment.next_deadlock_check();
        let is_checked = due.is_zero()
            || due > NEAR_DEADLOCK_CHECK && !goal.deadlock_later
            || started.elapsed() > limit;
        if agree && is_checked && !may_end {
            // A step that ended during the probe was not waiting.
            if wait_for_ends(unfinished, Duration::ZERO, &mut settled.ended).await {
                before = None;
                continue;
            }
            return Ok(SettleOutcome { waits, unresolved: cycles, ..settled });
        }
        // An unchanged cycle gets the time after which it counts as lasting.
        let is_watched =
            has_new_cycle && unchanged.is_some() && started.elapsed() < limit + CYCLE_LIMIT;
        if started.elapsed() > limit && !is_watched {
            // If all wait, then the waits never agree, or there is a cycle that may still be resolved.
            let is_stuck = |name: &&SessionName| all_wait || !is_waiting(name);
            let stuck = unfinished.keys().filter(is_stuck).cloned().collect();
            return Ok(SettleOutcome { waits, stuck, ..settled });
        }
        pause = if !all_wait || has_new_cycle || may_end {
            (2 * pause).min(probes.max)
        } else if agree {
            due.max(probes.agreeing)
        } else {
            probes.agreeing
        };
        let (since, seen) = unchanged.map_or_else(
            || (Instant::now(), 1),
            |unchanged| (unchanged.since, unchanged.probes + 1),
        );
        before = all_wait.then_some(StableWaits { since, probes: seen, waits });
    }
}

/// Waits until a step ends, for at most `pause`; then moves all ended steps to `ended`. Returns whether there are any.
async fn wait_for_ends(
    unfinished: &mut PendingSteps,
    pause: Duration,
    ended: &mut Vec<EndedStep>,
) -> bool {
    let session_ended = || Failure::new(FailureKind::Other, "the session has ended");
    let any = poll_fn(|context| {
        let mut results = Vec::new();
        for (name, pending) in unfinished.iter_mut() {
            if let Poll::Ready(result) = Pin::new(&mut pending.reply).poll(context) {
                results.push((name.clone(), result.unwrap_or_else(|_| Err(session_ended()))));
            }
        }
        if results.is_empty() { Poll::Pending } else { Poll::Ready(results) }
    });
    let Ok(results) = timeout(pause, any).await else { return false };
    let at = Instant::now();
    for (session, result) in results {
        if let Some(PendingStep { step, .. }) = unfinished.remove(&session) {
            ended.push(EndedStep { session, step, result, at });
        }
    }
    true
}

/// Returns whether the same session waits for the same sessions; probes may report different targets.
pub(super) fn same_wait(a: &SessionWait, b: &SessionWait) -> bool {
    a.waiter == b.waiter
        && a.blockers == b.blockers
        && a.has_outside_blocker == b.has_outside_blocker
}
