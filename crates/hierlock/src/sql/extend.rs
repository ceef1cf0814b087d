//! More under the same guard: the only place where a deadlock can be.
//!
//! PostgreSQL gives locks back at a savepoint, so there it is done in the hold's own transaction, and
//! the server finds deadlocks. InnoDB keeps row locks until the whole transaction ends, and its deadlock
//! victim loses everything. So there
//!
//! 1. new slots are taken on **another connection**, which can be rolled back alone;
//! 2. it **waits only in order**, for slots beyond all that the guard has: between two connections of
//!    one guard the server would see no deadlock. What is out of order is taken if it is free;
//! 3. a stronger mode for a slot that is held can only be had where it is held: last, and only if it is
//!    free, so that the server never chooses a victim.

use super::acquire_error::AcquireError;
use super::acquirer::{Acquirer, SHARED_SESSION};
use super::hold::{HoldSession, HoldSessions};
use super::rollback_point::RollbackPoint;
use super::shared::SharedKeys;
use super::{Dialect, Strategy};
use crate::error::{Blocker, Error, LockConflict};
use crate::plan::Step;
use crate::snapshot::Statistics;
use hierlock_engine::Session;
use std::pin::pin;
use tokio::time::{sleep, timeout};

/// The steps that an extension needs beyond what is held.
struct NewSteps {
    /// Not held at all, and before something that is.
    out_of_order: Vec<Step>,
    /// Not held at all, and after all that is.
    in_order: Vec<Step>,
    /// Held too weakly.
    stronger: Vec<Step>,
}

impl NewSteps {
    fn of(acquirer: &Acquirer) -> Self {
        let Acquirer { plan, entry, .. } = acquirer;
        let (mut out_of_order, mut in_order, mut stronger) = (vec![], vec![], vec![]);
        entry.with(|record| {
            for step in plan.steps() {
                match record.held(plan, &step) {
                    Some(held) if held.join(step.mode) == held => {}
                    Some(_) => stronger.push(step),
                    None if record.is_after_all(plan, &step) => in_order.push(step),
                    None => out_of_order.push(step),
                }
            }
        });
        Self { out_of_order, in_order, stronger }
    }
}

impl Acquirer {
    /// Holds more. If the caller has gone when it has it, it is given back.
    pub(super) async fn extend(&self, held: &mut HoldSessions) -> Result<(), AcquireError> {
        let NewSteps { out_of_order, in_order, stronger } = NewSteps::of(self);
        // All of them, as a plan takes them.
        let mut steps = [&*out_of_order, &*in_order, &*stronger].concat();
        steps.sort_by_key(|step| self.plan.id(step));
        if !steps.is_empty() {
            match &mut held.base {
                HoldSession::Shared(keys) => self.extend_shared(keys, &steps).await?,
                HoldSession::Own(base) if self.scheme.dialect == Dialect::Postgres => {
                    self.extend_at_savepoint(base, &steps).await?;
                }
                HoldSession::Own(base) => {
                    let session = match (&*out_of_order, &*in_order) {
                        ([], []) => None,
                        _ => Some(self.lock_beside(base, &out_of_order, &in_order).await?),
                    };
                    let extended = match self.strengthen(base, &stronger).await {
                        Ok(()) if self.cancellation.is_cancelled() => Err(AcquireError::Abandoned),
                        strengthened => strengthened,
                    };
                    if let Err(why) = extended {
                        if let Some(session) = session {
                            // Its end is not that of the hold.
                            let _ = self.pool.roll_back(session).await;
                        }
                        return Err(why);
                    }
                    held.more.extend(session);
                }
            }
        }
        // No await since the caller was seen to be there: it will be told.
        self.entry.note(&self.plan);
        Ok(())
    }

    /// On a connection that others use as well nothing waits; and on another one the server would not see
    /// that both are the same guard's. So it is taken at once or not at all.
    async fn extend_shared(
        &self,
        keys: &mut SharedKeys,
        steps: &[Step],
    ) -> Result<(), AcquireError> {
        if let Some(place) = keys.try_add(steps).await.map_err(AcquireError::ConnectionLost)? {
            let why = self.would_block(&steps[place], SHARED_SESSION).await;
            return Err(self.out_of_order_if_waiting(why));
        }
        if self.cancellation.is_cancelled() {
            keys.give_back_last(steps.len()).await.map_err(AcquireError::ConnectionLost)?;
            return Err(AcquireError::Abandoned);
        }
        Ok(())
    }

    async fn extend_at_savepoint(
        &self,
        base: &mut Session,
        steps: &[Step],
    ) -> Result<(), AcquireError> {
        let (session, point) = (&mut base.as_ref(), RollbackPoint::SAVEPOINT);
        loop {
            match self.lock(session, steps, point).await {
                Ok(()) if self.cancellation.is_cancelled() => {
                    return Err(point.undo_after(AcquireError::Abandoned, session).await);
                }
                Err(AcquireError::MissingRows(missing)) if missing.is_empty() => {}
                Err(AcquireError::MissingRows(missing))
                    if self.scheme.strategy == Strategy::OnDemand =>
                {
                    // In a transaction of their own, so on another session.
                    self.make_rows(&missing).await?;
                }
                other => return other,
            }
        }
    }

    /// Takes what is new on another session, and returns that. Meanwhile it keeps the hold's own alive: if that is lost,
    /// there is nothing left to extend, and the other one is ended on the server, with its statement.
    async fn lock_beside(
        &self,
        base: &mut Session,
        out_of_order: &[Step],
        in_order: &[Step],
    ) -> Result<Session, AcquireError> {
        let mut statistics = Statistics::default();
        let error = {
            let mut locked = pin!(self.lock_all(out_of_order, in_order, &mut statistics));
            loop {
                tokio::select! {
                    biased;
                    locked = &mut locked => {
                        return locked.map_err(|why| self.of_another_session(why));
                    }
                    () = sleep(self.pool.settings.keep_alive) => {}
                }
                if let Err(error) = base.ping().await {
                    break error;
                }
            }
        };
        let ended = self.pool.server.abandoned.wait_until_ended();
        let _ = timeout(self.pool.answer_limit(), ended).await;
        Err(AcquireError::ConnectionLost(error))
    }

    /// Makes stronger what the hold itself has, one after the other, as long as it is free. What was
    /// made stronger stays so, and is noted: InnoDB cannot go back.
    async fn strengthen(&self, base: &mut Session, steps: &[Step]) -> Result<(), AcquireError> {
        for step in steps {
            let (one, session) = (std::slice::from_ref(step), &mut base.as_ref());
            match self.try_lock(session, one, RollbackPoint::NONE).await {
                Ok(()) => self.entry.with(|record| record.take(&self.plan, step)),
                // With a change of the table, which waits for the hold: the hold is no more.
                Err(AcquireError::Deadlock(_)) => {
                    return Err(AcquireError::HoldLost(
                        "the server has ended its transaction as the victim of a deadlock",
                    ));
                }
                Err(why) => return Err(self.out_of_order_if_waiting(why)),
            }
        }
        Ok(())
    }

    /// What is in the way would have been waited for, if that were safe.
    pub(super) fn out_of_order_if_waiting(&self, why: AcquireError) -> AcquireError {
        let blocked_on = match &why {
            AcquireError::Failed(error) if self.wait_limit.waits() && error.is_would_block() => {
                error.blocked_on().cloned()
            }
            _ => None,
        };
        let Some(blocked_on) = blocked_on else { return why };
        let wanted = self.wanted();
        Error::out_of_order(LockConflict { blocked_on, wanted, blocker: Blocker::Holder }).into()
    }
}
