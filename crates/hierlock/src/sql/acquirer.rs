//! From a plan to a hold: takes all steps in one transaction on one session, and retries after a deadlock or an outage.
//! `statement.rs` writes the lock statement, and `wait.rs` watches it while it waits.

use super::acquire_error::Result;
use super::outage::Outage;
use super::session_label::LabelLimit;
use super::wait::{WatchEnd, WatchReport};
use super::{
    AcquireError, HoldSession, HoldSessions, LabelRows, LabelText, LockPool, LockSession, Scheme,
    SharedKeys, SlotBlockers, SqlHold, Strategy, ValueForm, update_keys,
};
use crate::backend::WaitLimit;
use crate::error::{Blocker, Error, LockConflict, LockError};
use crate::plan::{Plan, Step, add_claims, targets_of};
use crate::registry::RegistryEntry;
use crate::snapshot::Statistics;
use hierlock_engine::{ErrorClass, LockWaitPolicy, Permit, Session};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The longest pause before a retry after a deadlock.
const MAX_DEADLOCK_PAUSE: Duration = Duration::from_millis(20);

/// The number of retries after rows that are missing in the lock statement and exist in the check after it.
const MAX_REAPPEARED_ROWS: usize = 100;

/// A process id that no session has. With it, [`LockPool::slot_blockers`] also lists the shared session, whose guards
/// block each other.
pub(super) const SHARED_SESSION: i64 = -1;

/// Takes the locks of one plan.
pub(super) struct Acquirer {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    pub(super) entry: Arc<RegistryEntry>,
    pub(super) plan: Plan,
    pub(super) wait_limit: WaitLimit,
    pub(super) cancellation: CancellationToken,
}

/// The result of a lock statement that does not wait.
pub(super) enum TryLockResult {
    Locked,
    MissingRows,
    /// A step is not free. Contains its index if the server reports it.
    Blocked(Option<usize>),
}

impl Acquirer {
    /// Takes all steps or none. The sessions of the hold stay on this runtime.
    pub(super) async fn acquire(self, runtime: Handle) -> Result<SqlHold> {
        let mut statistics = Statistics::default();
        let mut outage = Outage::default();
        let (main, permit) = loop {
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
                result => break result?,
            }
        };
        let Self { pool, scheme, entry, plan, .. } = self;
        entry.record_plan(plan);
        let since = pool.server.server_time().saturating_sub(entry.age().as_secs());
        let sessions = HoldSessions {
            main,
            extensions: Vec::new(),
            since,
            label_rows: LabelRows::default(),
            work_failed: false,
            entry,
            permit,
        };
        Ok(SqlHold::new(pool, scheme, runtime, sessions, statistics))
    }

    /// Takes all steps or none. Fails if the connection is lost.
    async fn try_acquire(
        &self,
        statistics: &mut Statistics,
    ) -> Result<(HoldSession, Option<Permit>)> {
        let steps: Vec<Step> = self.plan.steps().collect();
        if let Some(keys) = self.lock_shared(&steps).await? {
            return Ok((HoldSession::Shared(keys), None));
        }
        let permit = self.permit().await?;
        let main = self.lock_all(&[], &steps, statistics).await?;
        Ok((HoldSession::Own(main), Some(permit)))
    }

    /// Returns the permit for a connection. While all connections are in use, waits as for a lock.
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
                // `None` only after `Pool::shut_down`, which nobody calls for a lock pool.
                Ok(permit.ok_or_else(|| in_use(None))?)
            }
            () = self.cancellation.cancelled() => Err(AcquireError::Abandoned),
        }
    }

    /// Takes all steps on the shared session. Returns `None` if there is no shared session or a step is not free.
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

    /// Takes steps in a new transaction: first `out_of_order` without waiting, then `in_order`. Retries after a deadlock:
    /// plain acquires lock in order, so the other session was extending a hold or had other locks.
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
                // The rows were inserted in the meantime, by this acquire or by another client.
                Err(AcquireError::MissingRows(missing))
                    if missing.is_empty() && reappeared < MAX_REAPPEARED_ROWS =>
                {
                    reappeared += 1;
                }
                Err(AcquireError::ConnectionLost(error)) => {
                    // The server may have granted the locks and only the answer is missing: dropping ends the session there.
                    drop(session);
                    // A session lost while idle says nothing about the server, so a new one is tried.
                    if !was_idle || self.pool.server.is_silent() || self.wait_limit.is_over() {
                        return Err(AcquireError::ConnectionLost(error));
                    }
                    // A try must not be blocked by its own old session.
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

    /// Takes steps in order. Waits for them as long as the request allows.
    pub(super) async fn lock(&self, session: &mut LockSession<'_>, steps: &[Step]) -> Result<()> {
        if !self.wait_limit.waits() {
            return self.try_lock(session, steps).await;
        }
        let label = self.label();
        let statement = session
            .statement(|form| self.scheme.take(steps, Some(&label), LockWaitPolicy::Wait, form));
        let rows_expected = statement.rows;
        // `_listing` shows the acquire as waiting until its locks are released.
        let WatchReport { end, blocked_at, listing: _listing } =
            self.watch(&mut session.inner, statement, steps, self.wait_limit).await;
        let why = match end {
            WatchEnd::Ran(Ok(rows)) if rows == rows_expected => return Ok(()),
            WatchEnd::Ran(Ok(_)) => return self.fail_for_missing(session, steps).await,
            WatchEnd::Ran(Err(error)) => self.failure(error, &steps[blocked_at.unwrap_or(0)]),
            WatchEnd::Abandoned => AcquireError::Abandoned,
            WatchEnd::TimedOut(waited, blockers) => {
                let (index, blockers) = match blocked_at {
                    Some(index) => (index, blockers),
                    None => match self.find_blocked(session, steps).await? {
                        Some(index) => (index, Blocker::HolderOrWaiter.into()),
                        None => (steps.len() - 1, Blocker::Nobody.into()),
                    },
                };
                Error::timeout(self.conflict(&steps[index], blockers), waited).into()
            }
        };
        Err(session.undo_after(why).await)
    }

    /// Takes steps if all are free. Fails with the blocked step otherwise.
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
            Some(index) => self.would_block(&steps[index], session.inner.id.pid).await,
            None => {
                let last = &steps[steps.len() - 1];
                Error::would_block(self.conflict(last, Blocker::Nobody)).into()
            }
        };
        Err(session.undo_after(why).await)
    }

    /// Takes steps if all are free. If one is not, the caller undoes the locks on the others.
    pub(super) async fn attempt(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<TryLockResult> {
        let label = self.label();
        let take = |form| self.scheme.take(steps, Some(&label), LockWaitPolicy::Fail, form);
        let attempted = if self.scheme.strategy == Strategy::Advisory {
            let sql = format!("{}{}", session.begin, take(ValueForm::Text).sql);
            // One row for each key: whether it was taken.
            session.inner.rows(&sql).await.map(|rows| {
                let refused = rows.iter().position(|row| row[0] == "f");
                refused.map_or(TryLockResult::Locked, |index| TryLockResult::Blocked(Some(index)))
            })
        } else {
            let statement = session.statement(take);
            let expected = statement.rows;
            let ran = statement.run_limited(&mut session.inner).await;
            ran.map(|rows| {
                if rows == expected { TryLockResult::Locked } else { TryLockResult::MissingRows }
            })
        };
        match attempted.map_err(|error| self.failure(error, &steps[0])) {
            Ok(attempt) => Ok(attempt),
            Err(AcquireError::LockWaitTimeout) => Ok(TryLockResult::Blocked(None)),
            // Without a savepoint, the deadlock has ended the whole transaction.
            Err(AcquireError::Deadlock(_)) if session.can_undo() => {
                Ok(TryLockResult::Blocked(None))
            }
            Err(why) => Err(session.undo_after(why).await),
        }
    }

    /// Returns the first step that is not free, or `None` if all are free now. Tries one step after the other; the caller
    /// undoes the locks that this takes.
    async fn find_blocked(
        &self,
        session: &mut LockSession<'_>,
        steps: &[Step],
    ) -> Result<Option<usize>> {
        if self.scheme.strategy == Strategy::Advisory {
            // The server has already reported the key.
            return Ok(None);
        }
        // After a failure PostgreSQL runs no statement, and InnoDB still has the locks taken before it.
        session.undo().await?;
        let (singles, indices) = self.scheme.take_singly(steps);
        let begin = session.begin;
        let sql = format!("{begin}{singles}");
        let (done, failure) = session.inner.run_until_failure(&sql).await;
        if let Some(error) = failure
            && ErrorClass::of(&error).is_connection_lost()
        {
            return Err(AcquireError::ConnectionLost(error));
        }
        let before = usize::from(!begin.is_empty());
        Ok(indices.get(done.saturating_sub(before)).copied())
    }

    /// Turns the loss of a session other than the hold's into a plain failure, since the hold is not lost with it.
    pub(super) fn of_another_session(&self, why: AcquireError) -> AcquireError {
        match why {
            AcquireError::ConnectionLost(error) => self.pool.failed(error).into(),
            why => why,
        }
    }

    /// Returns the label of the session, with the nodes that an extended hold already has.
    fn label(&self) -> LabelText {
        let (held, wanted) = (self.entry.claims(), self.plan.claims());
        let mut strongest = held.clone();
        add_claims(&mut strongest, wanted);
        let wanted = wanted.iter().map(|claim| &claim.target);
        let wanted = wanted.filter(|target| !held.contains_key(*target));
        let targets = held.keys().chain(wanted).map(|target| (target, strongest[target]));
        let (client, now) = (&self.pool.settings.client, self.pool.server.server_time());
        LabelText::new(LabelLimit::of(self.scheme.dialect), client, now, targets)
    }

    /// Classifies the error of a statement that failed at `step` or before it.
    pub(super) fn failure(&self, error: sqlx::Error, step: &Step) -> AcquireError {
        let class = ErrorClass::of(&error);
        if class.is_connection_lost() {
            AcquireError::ConnectionLost(error)
        } else if class.is_not_granted() || update_keys::is_refusal(&error) {
            AcquireError::LockWaitTimeout
        } else if class.is_undefined() {
            AcquireError::TableChanged(error)
        } else if class == ErrorClass::Deadlock {
            AcquireError::Deadlock(self.conflict(step, Blocker::HolderOrWaiter))
        } else {
            self.pool.failed(error).into()
        }
    }

    /// Returns the error of a request that does not wait, for a step that is not free for the session `pid`.
    pub(super) async fn would_block(&self, step: &Step, pid: i64) -> AcquireError {
        let blockers = match self.wait_limit {
            WaitLimit::Try => Blocker::HolderOrWaiter.into(),
            _ => self.pool.slot_blockers(&self.scheme, step, pid).await,
        };
        Error::would_block(self.conflict(step, blockers)).into()
    }

    pub(super) fn conflict(&self, step: &Step, blockers: impl Into<SlotBlockers>) -> LockConflict {
        let SlotBlockers { blocker, sessions } = blockers.into();
        let conflict = LockConflict::new(step.target.clone(), self.plan.claims(), blocker);
        LockConflict { sessions, ..conflict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<F>(_: impl FnOnce(Acquirer, Handle) -> F) -> usize {
        size_of::<F>()
    }

    /// Every acquire moves its future into a box twice. With the future of connecting inside, it was 8 KiB.
    #[test]
    fn the_future_of_an_acquire_is_small() {
        let size = size_of_future(Acquirer::acquire);
        assert!(size < 5 * 1024, "{size} bytes");
    }
}
