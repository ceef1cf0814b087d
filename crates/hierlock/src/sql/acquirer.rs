//! From a plan to a hold: a session, all steps in one transaction, and again after a deadlock or an outage. The statement
//! itself is in `statement.rs`, what happens while it waits in `wait.rs`.

use super::acquire_error::Result;
use super::outage::Outage;
use super::wait::{WatchEnd, WatchReport};
use super::{
    AcquireError, HoldSession, HoldSessions, LockPool, LockSession, LockStatement, Scheme,
    SharedKeys, SqlHold, Strategy, ValueForm, updaters,
};
use crate::backend::WaitLimit;
use crate::error::{Blocker, Error, LockConflict, LockError};
use crate::handover::CancellationToken;
use crate::plan::{Plan, Step, targets_of};
use crate::registry::RegistryEntry;
use crate::snapshot::Statistics;
use hierlock_engine::{ErrorClass, LockWaitPolicy, Permit, Session};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// The longest pause before a deadlocked acquire is tried again.
const MAX_DEADLOCK_PAUSE: Duration = Duration::from_millis(20);

/// How often a row may be missing and then be there, before something else must be wrong.
const MAX_REAPPEARED_ROWS: usize = 100;

/// No session has this number: locks of the session that guards share are in the way of each other.
pub(super) const SHARED_SESSION: i64 = -1;

/// Takes the locks of one plan: on which server, how, for whom, and for how long it waits.
pub(super) struct Acquirer {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    pub(super) entry: Arc<RegistryEntry>,
    pub(super) plan: Plan,
    pub(super) wait_limit: WaitLimit,
    pub(super) cancellation: CancellationToken,
}

/// What became of a statement that does not wait.
pub(super) enum TryLockResult {
    Locked,
    MissingRows,
    /// A step is not free; which one, if that is known.
    Blocked(Option<usize>),
}

impl Acquirer {
    /// Takes everything, or nothing. The sessions of the hold stay on this runtime.
    pub(super) async fn acquire(self, runtime: Handle) -> Result<SqlHold> {
        let mut statistics = Statistics::default();
        let mut outage = Outage::default();
        let (base, permit) = loop {
            let begun = Instant::now();
            match self.try_acquire(&mut statistics).await {
                Err(why) if outage.should_retry(&self, &why, begun) => {
                    if statistics.reconnects == 0 {
                        let error = why.into_error(&self.pool, &self.scheme);
                        tracing::warn!(%error, "an acquire waits for its server to come back");
                    }
                    statistics.reconnects += 1;
                    outage.pause(&self).await?;
                }
                taken => break taken?,
            }
        };
        let Self { pool, scheme, entry, plan, .. } = self;
        entry.note(plan);
        let sessions = HoldSessions { base, more: Vec::new(), work_failed: false, entry, permit };
        Ok(SqlHold::new(pool, scheme, runtime, sessions, statistics))
    }

    /// Takes everything, or nothing, while the server is there.
    async fn try_acquire(
        &self,
        statistics: &mut Statistics,
    ) -> Result<(HoldSession, Option<Permit>)> {
        let steps: Vec<Step> = self.plan.steps().collect();
        if let Some(keys) = self.lock_shared(&steps).await? {
            return Ok((HoldSession::Shared(keys), None));
        }
        let permit = self.permit().await?;
        let base = self.lock_all(&[], &steps, statistics).await?;
        Ok((HoldSession::Own(base), Some(permit)))
    }

    /// Returns the right to a connection. All of them in use is a wait like any other.
    async fn permit(&self) -> Result<Permit> {
        let wanted = || targets_of(self.plan.claims());
        let in_use = |waited| Error::from(LockError::NoConnection { wanted: wanted(), waited });
        let server = &self.pool.server;
        if !self.wait_limit.waits() {
            return Ok(server.try_permit().ok_or_else(|| in_use(None))?);
        }
        tokio::select! {
            biased;
            permit = self.wait_limit.limit(server.permit()) => {
                let permit = permit.map_err(|waited| in_use(Some(waited)))?;
                // A lock pool is never shut down.
                Ok(permit.ok_or_else(|| in_use(None))?)
            }
            () = self.cancellation.cancelled() => Err(AcquireError::Abandoned),
        }
    }

    /// Takes all steps on the session that guards share, if they do and nothing is in the way.
    async fn lock_shared(&self, steps: &[Step]) -> Result<Option<SharedKeys>> {
        let Some(shared) = &self.pool.shared else { return Ok(None) };
        match shared.try_lock(&self.pool, steps).await? {
            Ok(keys) => Ok(Some(keys)),
            Err(blocked_at) if !self.wait_limit.waits() => {
                Err(self.would_block(&steps[blocked_at], SHARED_SESSION).await)
            }
            Err(_) => Ok(None),
        }
    }

    /// Takes steps in a new transaction: first those that must not be waited for, then the rest. Deadlocks are tried
    /// again: whoever only acquires is in order, so the other one was extending, or does something else in the same
    /// session.
    pub(super) async fn lock_all(
        &self,
        out_of_order: &[Step],
        in_order: &[Step],
        statistics: &mut Statistics,
    ) -> Result<Session> {
        let mut idle = self.pool.server.take_idle();
        let mut reappeared = 0;
        loop {
            let was_idle = idle.is_some();
            let mut session = self.pool.idle_or_new(&mut idle).await?;
            let mut locked = Ok(());
            {
                let mut session = LockSession::in_new_transaction(&mut session);
                if !out_of_order.is_empty() {
                    locked = self.try_lock(&mut session, out_of_order).await;
                    locked = locked.map_err(|why| self.out_of_order_if_waiting(why));
                }
                if locked.is_ok() && !in_order.is_empty() {
                    locked = self.lock(&mut session, in_order).await;
                }
            }
            if let Err(AcquireError::MissingRows(missing)) = &locked
                && self.scheme.strategy == Strategy::OnDemand
                && !missing.is_empty()
            {
                let inserted = self.insert(&mut session, missing).await;
                locked = inserted.and(Err(AcquireError::MissingRows(Vec::new())));
            }
            match locked {
                Ok(()) => return Ok(session),
                Err(AcquireError::Deadlock(_)) => {
                    statistics.deadlocks += 1;
                    sleep(MAX_DEADLOCK_PAUSE.mul_f64(fastrand::f64())).await;
                }
                Err(AcquireError::LockWaitTimeout) => statistics.timeouts += 1,
                // Missing then, and there now: somebody, or we, have made it.
                Err(AcquireError::MissingRows(missing))
                    if missing.is_empty() && reappeared < MAX_REAPPEARED_ROWS =>
                {
                    reappeared += 1;
                }
                Err(AcquireError::ConnectionLost(error)) => {
                    // It may have been granted, and only the answer is missing: it is ended there.
                    drop(session);
                    // If it was lost while it was idle, the next is new.
                    if !was_idle || self.pool.server.is_silent() || self.wait_limit.is_over() {
                        return Err(AcquireError::ConnectionLost(error));
                    }
                    // Whoever does not wait must not find its own old session in the way.
                    if !self.wait_limit.waits() {
                        self.pool.wait_until_abandoned_end().await;
                    }
                    continue;
                }
                Err(other) => {
                    self.pool.server.give_back(session);
                    return Err(other);
                }
            }
            idle = Some(session);
        }
    }

    /// Takes steps, in order, and waits for them as long as the request allows.
    pub(super) async fn lock(&self, session: &mut LockSession<'_>, steps: &[Step]) -> Result<()> {
        if !self.wait_limit.waits() {
            return self.try_lock(session, steps).await;
        }
        let statement =
            session.statement(|form| self.scheme.take(steps, LockWaitPolicy::Wait, form));
        let rows_expected = statement.rows;
        // Listed as waiting until all is given back.
        let WatchReport { end, blocked_at, blocker, listing: _listing } =
            self.watch(&mut session.inner, statement, steps, self.wait_limit).await;
        let why = match end {
            WatchEnd::Ran(Ok(rows)) if rows == rows_expected => return Ok(()),
            WatchEnd::Ran(Ok(_)) => return self.fail_for_missing(session, steps).await,
            WatchEnd::Ran(Err(error)) => self.failure(error, &steps[blocked_at.unwrap_or(0)]),
            WatchEnd::Abandoned => AcquireError::Abandoned,
            WatchEnd::TimedOut(waited) => {
                let (place, blocker) = match blocked_at {
                    Some(place) => (place, blocker),
                    None => match self.find_blocked(session, steps).await? {
                        Some(place) => (place, Blocker::HolderOrWaiter),
                        None => (steps.len() - 1, Blocker::Nobody),
                    },
                };
                Error::timeout(self.conflict(&steps[place], blocker), waited).into()
            }
        };
        Err(session.undo_after(why).await)
    }

    /// Takes steps only if none is in the way.
    pub(super) async fn try_lock(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<()> {
        let blocked_at = match self.attempt(session, steps).await? {
            TryLockResult::Locked => return Ok(()),
            TryLockResult::MissingRows => return self.fail_for_missing(session, steps).await,
            TryLockResult::Blocked(None) => self.find_blocked(session, steps).await?,
            TryLockResult::Blocked(blocked_at) => blocked_at,
        };
        let why = match blocked_at {
            Some(place) => self.would_block(&steps[place], session.inner.id.pid).await,
            None => {
                let last = &steps[steps.len() - 1];
                Error::would_block(self.conflict(last, Blocker::Nobody)).into()
            }
        };
        Err(session.undo_after(why).await)
    }

    /// Takes steps if none is in the way. What it has taken although one is, the caller undoes.
    pub(super) async fn attempt(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<TryLockResult> {
        let attempted = if self.scheme.strategy == Strategy::Advisory {
            let LockStatement { sql, .. } =
                self.scheme.take(steps, LockWaitPolicy::Fail, ValueForm::Text);
            let sql = format!("{}{sql}", session.begin);
            // Each key says whether it was taken.
            session.inner.rows(&sql).await.map(|rows| {
                let refused = rows.iter().position(|row| row[0] == "f");
                refused.map_or(TryLockResult::Locked, |place| TryLockResult::Blocked(Some(place)))
            })
        } else {
            let statement =
                session.statement(|form| self.scheme.take(steps, LockWaitPolicy::Fail, form));
            let expected = statement.rows;
            let ran = statement.run_limited(&mut session.inner).await;
            ran.map(|rows| {
                if rows == expected { TryLockResult::Locked } else { TryLockResult::MissingRows }
            })
        };
        match attempted.map_err(|error| self.failure(error, &steps[0])) {
            Ok(attempt) => Ok(attempt),
            Err(AcquireError::LockWaitTimeout) => Ok(TryLockResult::Blocked(None)),
            // Without a point to go back to, the server has ended whatever else was held.
            Err(AcquireError::Deadlock(_)) if session.can_undo() => {
                Ok(TryLockResult::Blocked(None))
            }
            Err(why) => Err(session.undo_after(why).await),
        }
    }

    /// Returns the first step that is not free, if there still is one; found by trying one after the other.
    /// What it takes is undone by the caller.
    async fn find_blocked(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<Option<usize>> {
        if self.scheme.strategy == Strategy::Advisory {
            // The server has said already what is waited for, or which key is not free.
            return Ok(None);
        }
        // On PostgreSQL nothing runs after a failure; on InnoDB what was taken is still there.
        session.undo().await?;
        let (singles, places) = self.scheme.take_singly(steps);
        let begin = session.begin;
        let sql = format!("{begin}{singles}");
        let (done, failure) = session.inner.run_until_failure(&sql).await;
        if let Some(error) = failure
            && ErrorClass::of(&error).is_connection_lost()
        {
            return Err(AcquireError::ConnectionLost(error));
        }
        let before = usize::from(!begin.is_empty());
        Ok(places.get(done.saturating_sub(before)).copied())
    }

    /// Turns the loss of another session into a plain failure: the hold is not lost with it.
    pub(super) fn of_another_session(&self, why: AcquireError) -> AcquireError {
        match why {
            AcquireError::ConnectionLost(error) => self.pool.failed(error).into(),
            why => why,
        }
    }

    /// Returns what a failed statement means, which was at `step` or before it.
    pub(super) fn failure(&self, error: sqlx::Error, step: &Step) -> AcquireError {
        let class = ErrorClass::of(&error);
        if class.is_connection_lost() {
            AcquireError::ConnectionLost(error)
        } else if class.is_not_granted() || updaters::is_refusal(&error) {
            AcquireError::LockWaitTimeout
        } else if class.is_undefined() {
            AcquireError::TableChanged(error)
        } else if class == ErrorClass::Deadlock {
            AcquireError::Deadlock(self.conflict(step, Blocker::HolderOrWaiter))
        } else {
            self.pool.failed(error).into()
        }
    }

    /// Returns that a step is not free for the session `pid`, and waiting was not asked for.
    pub(super) async fn would_block(&self, step: &Step, pid: i64) -> AcquireError {
        let blocker = match self.wait_limit {
            WaitLimit::Try => Blocker::HolderOrWaiter,
            _ => self.pool.blocker(&self.scheme, step, pid).await,
        };
        Error::would_block(self.conflict(step, blocker)).into()
    }

    pub(super) fn conflict(&self, step: &Step, blocker: Blocker) -> LockConflict {
        let wanted = targets_of(self.plan.claims());
        LockConflict { blocked_on: step.target.clone(), wanted, blocker }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: impl FnOnce(Acquirer, Handle) -> F) -> usize {
        size_of::<F>()
    }

    /// Every acquire moves its future into a box, twice. When it contained that of connecting, it was 8 KiB.
    #[test]
    fn the_future_of_an_acquire_is_small() {
        let size = size_of_future(Acquirer::acquire);
        assert!(size < 5 * 1024, "{size} bytes");
    }
}
