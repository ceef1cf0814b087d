//! Until every unfinished step is over or seen to wait.

use super::circle::in_circles;
use crate::observation::{Answer, Failure, FailureKind, LockKind, Name, Wait};
use crate::stage::{CIRCLE_LIMIT, Reply, Stage, StageError};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A statement that needs no waiting is mostly over by then; asking earlier would only slow it down.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// Two probes that are to agree are this far apart. A deadlock that InnoDB is about to find may show as
/// a wait for some milliseconds.
const APART: Duration = Duration::from_millis(4);
/// The library looks at least so often whether the wait of a lock step goes on. One that nobody is in the
/// way of is believed only then: it may be about to end.
const SURE_AFTER: Duration = Duration::from_millis(1200);
/// A circle is believed to stay only when so many probes have seen it, however long they took.
const CIRCLE_PROBES: u32 = 5;
/// A step waits for the server's own looks for deadlocks if these come so soon, whether or not the case
/// expects a deadlock.
const SOON: Duration = Duration::from_millis(100);
/// A statement that works and does not wait is asked about less and less often.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(50);

/// Sessions with something unfinished.
pub(super) type Unfinished = BTreeMap<Name, Pending>;

/// Something unfinished.
pub(super) struct Pending {
    /// The index of its step.
    pub(super) step: usize,
    pub(super) reply: Reply,
}

/// Something that has ended.
pub(super) struct Over {
    pub(super) session: Name,
    pub(super) step: usize,
    pub(super) result: Result<Answer, Failure>,
    pub(super) at: Instant,
}

/// How a settling ended.
pub(super) struct Settled {
    /// What is over now, in the order in which it was seen.
    pub(super) over: Vec<Over>,
    /// Who waits for whom now; all that is unfinished is in it, unless something is stuck.
    pub(super) waits: Vec<Wait>,
    /// Who neither ended nor waits; empty if all is well.
    pub(super) stuck: Vec<Name>,
    /// The last circle that was seen, if there was one.
    pub(super) circle: Vec<Wait>,
    /// The waits in circles that the server does not end; part of `waits`.
    pub(super) unended: Vec<Wait>,
}

/// What a settling goes by.
pub(super) struct Wanted<'a> {
    /// How long a session may neither end nor be seen to wait.
    pub(super) limit: Duration,
    /// Who is to end by itself, as one does whose wait has a limit: that it waits is not enough.
    pub(super) awaited: Option<&'a Name>,
    /// A deadlock is expected of the step: a circle is given as long as the limit allows.
    pub(super) deadlock: bool,
    /// A deadlock is expected somewhere in the case.
    pub(super) deadlock_later: bool,
    /// The waits in circles of which it is known that the server does not end them.
    pub(super) unended: &'a [Wait],
}

/// What probes have agreed on so far.
struct StableWaits {
    since: Instant,
    probes: u32,
    waits: Vec<Wait>,
}

/// Takes what is over out of `unfinished`, until the rest is seen to wait.
pub(super) async fn settle<S: Stage>(
    stage: &S,
    unfinished: &mut Unfinished,
    wanted: Wanted<'_>,
) -> Result<Settled, StageError> {
    let Wanted { limit, awaited, .. } = wanted;
    let mut settled = Settled {
        over: Vec::new(),
        waits: Vec::new(),
        stuck: Vec::new(),
        circle: Vec::new(),
        unended: Vec::new(),
    };
    let begun = Instant::now();
    let mut before: Option<StableWaits> = None;
    let mut pause = LOOK_AFTER;
    loop {
        let moved = until_something_is_over(unfinished, pause, &mut settled.over).await;
        if unfinished.is_empty() {
            settled.waits.clear();
            return Ok(settled);
        }
        if moved {
            // Who has ended may have let others go: what was seen before says nothing any more.
            before = None;
            pause = LOOK_AFTER;
            continue;
        }
        let mut waits = stage.waits().await?;
        waits.retain(|wait| unfinished.contains_key(&wait.waiter));
        waits.sort_by(|a, b| a.waiter.cmp(&b.waiter));
        let all_wait = unfinished.keys().all(|name| waits.iter().any(|wait| wait.waiter == *name));
        let circles = in_circles(&waits);
        let is_known = |wait: &Wait| wanted.unended.iter().any(|known| is_same(known, wait));
        let closed = !circles.iter().all(is_known);
        if closed {
            settled.circle = waits.clone();
        }
        let is_awaited =
            awaited.is_some_and(|name| unfinished.contains_key(name)) || closed && wanted.deadlock;
        let may_end = is_awaited && begun.elapsed() < limit;
        let same = before.as_ref().filter(|before| all_wait && same_waits(&before.waits, &waits));
        let agree = same.is_some_and(|before| {
            let doubtful = waits.iter().any(is_doubtful);
            let is_sure = !doubtful || before.since.elapsed() > SURE_AFTER;
            let stays =
                before.probes >= CIRCLE_PROBES && before.since.elapsed() > stage.circle_limit();
            is_sure && (!closed || stays)
        });
        // Who looks for a deadlock while others close a circle ends it: who was first would be the victim.
        let due = stage.next_deadlock_check();
        let is_checked =
            due.is_zero() || due > SOON && !wanted.deadlock_later || begun.elapsed() > limit;
        if agree && is_checked && !may_end {
            // What ended while the server was asked was not waiting.
            if until_something_is_over(unfinished, Duration::ZERO, &mut settled.over).await {
                before = None;
                continue;
            }
            settled.waits = waits;
            settled.unended = circles;
            return Ok(settled);
        }
        // A circle that is still the same is given the time that it usually takes to be sure.
        let is_watched = closed && same.is_some() && begun.elapsed() < limit + CIRCLE_LIMIT;
        if begun.elapsed() > limit && !is_watched {
            let waits_for_nobody = |name: &&Name| waits.iter().all(|wait| wait.waiter != **name);
            settled.stuck = unfinished.keys().filter(waits_for_nobody).cloned().collect();
            if settled.stuck.is_empty() {
                // Waits that never agree, or a circle that may end yet.
                settled.stuck = unfinished.keys().cloned().collect();
            }
            settled.waits = waits;
            return Ok(settled);
        }
        pause = match all_wait && !closed && !may_end {
            true if agree => due.max(APART),
            true => APART,
            false => (2 * pause).min(LOOK_AT_LEAST_EVERY),
        };
        before = match same {
            Some(StableWaits { since, probes, .. }) => {
                Some(StableWaits { since: *since, probes: probes + 1, waits })
            }
            None => all_wait.then(|| StableWaits { since: Instant::now(), probes: 1, waits }),
        };
    }
}

/// Waits until something is over, for so long; then takes all that is over by now.
async fn until_something_is_over(
    unfinished: &mut Unfinished,
    pause: Duration,
    over: &mut Vec<Over>,
) -> bool {
    let any = poll_fn(|context| {
        let ended = unfinished.iter_mut().filter_map(|(name, pending)| {
            match Pin::new(&mut pending.reply).poll(context) {
                Poll::Ready(result) => Some((name.clone(), result.unwrap_or_else(|_| Err(gone())))),
                Poll::Pending => None,
            }
        });
        let ended: Vec<_> = ended.collect();
        if ended.is_empty() { Poll::Pending } else { Poll::Ready(ended) }
    });
    let Ok(ended) = timeout(pause, any).await else { return false };
    let at = Instant::now();
    for (session, result) in ended {
        if let Some(Pending { step, .. }) = unfinished.remove(&session) {
            over.push(Over { session, step, result, at });
        }
    }
    true
}

/// The same sessions wait for the same ones.
fn same_waits(a: &[Wait], b: &[Wait]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
}

/// The same session waits for the same ones; for what may be told differently from probe to probe.
pub(super) fn is_same(a: &Wait, b: &Wait) -> bool {
    a.waiter == b.waiter && a.blockers == b.blockers && a.strangers == b.strangers
}

/// A node that is waited for, and nobody known to be in the way.
fn is_doubtful(wait: &Wait) -> bool {
    let is_node = wait.thing.as_ref().is_some_and(|thing| thing.kind == LockKind::Node);
    is_node && wait.blockers.is_empty()
}

fn gone() -> Failure {
    let message = "the session has ended".to_owned();
    Failure { kind: FailureKind::Other, code: String::new(), message, detail: None }
}
