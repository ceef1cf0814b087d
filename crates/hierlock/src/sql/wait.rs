//! Watches a waiting statement: asks on the control session which slot it waits for, and cancels it there.

use super::{Acquirer, LockPool, LockStatement, SlotBlockers, Strategy, update_keys};
use crate::backend::WaitLimit;
use crate::registry::WaitGuard;
use crate::{Blocker, Step};
use hierlock_engine::{ErrorClass, SessionId, SessionRef, timed_out};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The intervals at which the server is asked about a statement that has not returned. The first one doubles up to the
/// second.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The duration from which a wait counts as contention.
const CONTENTION_AFTER: Duration = Duration::from_millis(100);
/// The interval at which a cancel is sent until the statement ends.
const CANCEL_INTERVAL: Duration = Duration::from_millis(20);

/// The result of watching a statement that may wait.
pub(super) struct WatchReport<'a> {
    pub(super) end: WatchEnd,
    /// The index of the step at which the statement last waited.
    pub(super) blocked_at: Option<usize>,
    /// Ends the listing of the wait when it is dropped.
    pub(super) listing: Option<WaitGuard<'a>>,
}

/// The reason why a statement is no longer watched.
pub(super) enum WatchEnd {
    /// The statement ran to its end.
    Ran(sqlx::Result<usize>),
    /// The caller has dropped its future.
    Abandoned,
    /// The deadline has passed, after this wait for these blockers.
    TimedOut(Duration, SlotBlockers),
}

/// The activity of a session on the server. The default is an unknown activity: the server could not be asked.
#[derive(Default)]
struct SessionActivity {
    is_known: bool,
    /// The name of the slot that the session waits for, if it waits.
    waits_for: Option<String>,
    /// The session does not exist, or is idle.
    runs_nothing: bool,
}

impl Acquirer {
    /// Runs a statement that may wait. Cancels it on the server at the deadline, or if the caller drops its future. Fails if
    /// the server stops answering the control session, or reports for the answer limit that this session runs nothing.
    pub(super) async fn watch(
        &self,
        session: &mut SessionRef<'_>,
        statement: LockStatement,
        steps: &[Step],
        limit: WaitLimit,
    ) -> WatchReport<'_> {
        let (id, is_ours) = (session.id, session.is_ours);
        let activity_after = |pause| self.activity_after(pause, id.pid, is_ours);
        let (mut blocked_at, mut listed_at, mut listing) = (None, None, None);
        let mut statement = pin!(statement.run(session));
        let mut deadline = pin!(limit.expired());
        let mut interval = FIRST_CHECK_INTERVAL;
        let mut check = pin!(activity_after(interval));
        let answer_limit = self.pool.answer_limit();
        let (mut idle_since, begun, mut is_counted) = (None, Instant::now(), false);
        let mut end = loop {
            let activity = tokio::select! {
                biased;
                ran = &mut statement => break WatchEnd::Ran(ran),
                () = self.cancellation.cancelled() => break WatchEnd::Abandoned,
                waited = &mut deadline => {
                    break WatchEnd::TimedOut(waited, Blocker::HolderOrWaiter.into());
                }
                activity = &mut check => activity,
            };
            interval = (2 * interval).min(MAX_CHECK_INTERVAL);
            check.set(activity_after(interval));
            if !activity.is_known && self.pool.server.is_silent() {
                break WatchEnd::Ran(Err(timed_out(answer_limit)));
            }
            idle_since = activity.runs_nothing.then(|| idle_since.unwrap_or_else(Instant::now));
            if idle_since.is_some_and(|since| since.elapsed() >= answer_limit) {
                // Locks that the session may have taken must not remain.
                self.pool.terminate(id).await;
                break WatchEnd::Ran(Err(timed_out(answer_limit)));
            }
            let (waits_at, taken) = match activity.waits_for {
                Some(name) => {
                    let index = self.step_by_slot_name(&name, steps);
                    // The keys of update locks come before all rows, so no row is locked yet.
                    let is_key = name.starts_with(update_keys::NAME_PREFIX);
                    (index, index.filter(|_| !is_key).unwrap_or(0))
                }
                None if activity.is_known => (None, 0),
                // The account may not ask. The statement has not returned, so it waits for some step.
                None => (Some(blocked_at.unwrap_or(0)), 0),
            };
            if waits_at != listed_at {
                // Dropped before the new one is made, since the drop ends the listing.
                drop(listing.take());
                let list =
                    |index: usize| self.entry.waits(&self.plan, &steps[..taken], &steps[index]);
                (listed_at, listing) = (waits_at, waits_at.map(list));
            }
            if let Some(index) = waits_at
                && !is_counted
                && self.scheme.strategy == Strategy::Striped
                && begun.elapsed() >= CONTENTION_AFTER
            {
                is_counted = true;
                self.count_wait(&steps[index], id.pid);
            }
            if activity.is_known {
                blocked_at = waits_at.or(blocked_at);
            }
        };
        if let WatchEnd::TimedOut(_, blockers) = &mut end
            && let Some(name) = activity_after(Duration::ZERO).await.waits_for
        {
            blocked_at = self.step_by_slot_name(&name, steps).or(blocked_at);
            if let Some(index) = blocked_at {
                *blockers = self.pool.slot_blockers(&self.scheme, &steps[index], id.pid).await;
            }
        }
        // If the locks are granted at the last moment, the caller of `watch` releases them.
        if !matches!(end, WatchEnd::Ran(_))
            && let Err(error) = self.pool.cancel(id, statement).await
            && ErrorClass::of(&error).is_connection_lost()
        {
            end = WatchEnd::Ran(Err(error));
        }
        WatchReport { end, blocked_at, listing }
    }

    /// Waits for `pause`, then asks the server for the activity of a session. A separate task runs the query, because the
    /// control session could not be used again if this future were dropped in the middle of one.
    fn activity_after(
        &self,
        pause: Duration,
        pid: i64,
        is_ours: bool,
    ) -> impl Future<Output = SessionActivity> + use<> {
        let (pool, scheme) = (self.pool.clone(), self.scheme.clone());
        let answer_limit = pool.answer_limit();
        async move {
            sleep(pause).await;
            let query = tokio::spawn(async move {
                let waits_for = pool.waits_for(&scheme, pid).await;
                let mut runs_nothing = false;
                if !matches!(waits_for, Ok(Some(_))) {
                    let is_idle = pool.server.is_idle(pid).await;
                    // A failed query is no reason to give the session up.
                    runs_nothing = is_idle.is_ok_and(|is_idle| is_idle.unwrap_or(is_ours));
                }
                let is_known = waits_for.is_ok();
                SessionActivity { is_known, waits_for: waits_for.unwrap_or_default(), runs_nothing }
            });
            // The default if the query takes too long or the runtime shuts down.
            timeout(answer_limit, query).await.ok().and_then(Result::ok).unwrap_or_default()
        }
    }

    /// Returns the index of the step whose slot has this name on the server. The name is empty for a slot that is held
    /// already and wanted in a stronger mode.
    fn step_by_slot_name(&self, name: &str, steps: &[Step]) -> Option<usize> {
        if name.is_empty() {
            return self.entry.with(|record| {
                steps.iter().position(|step| record.held(&self.plan, step).is_some())
            });
        }
        steps.iter().position(|step| {
            let slot = self.scheme.slot_name(step);
            // MariaDB cuts long keys.
            let is_cut = self.scheme.strategy.is_by_id() && slot.starts_with(name);
            slot == name || is_cut || update_keys::name(&self.scheme, step).as_deref() == Some(name)
        })
    }
}

impl LockPool {
    /// Cancels a statement on the server, and waits for its end. A cancel that arrives before the statement starts is lost,
    /// so it is sent until the statement ends.
    pub(super) async fn cancel<T>(
        &self,
        id: SessionId,
        mut statement: Pin<&mut impl Future<Output = sqlx::Result<T>>>,
    ) -> sqlx::Result<T> {
        let until_end = async {
            loop {
                if let Err(error) = self.server.cancel(id.pid).await {
                    tracing::warn!(%error, "a statement could not be cancelled yet");
                }
                if let Ok(ran) = timeout(CANCEL_INTERVAL, statement.as_mut()).await {
                    return ran;
                }
            }
        };
        let answer_limit = self.answer_limit();
        if let Ok(ran) = timeout(answer_limit, until_end).await {
            return ran;
        }
        // A server does not notice a closed connection while it waits for a lock.
        self.terminate(id).await;
        Err(timed_out(answer_limit))
    }

    /// Ends a session on the server, with its locks. Logs an error if that fails.
    pub(super) async fn terminate(&self, id: SessionId) {
        let terminate = self.server.terminate(id);
        if !matches!(timeout(self.answer_limit(), terminate).await, Ok(Ok(()))) {
            tracing::error!(pid = id.pid, "a session could not be ended");
        }
    }
}
