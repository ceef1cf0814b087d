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

use super::acquire_error::Result;
use super::acquirer::SHARED_SESSION;
use super::{
    AcquireError, Acquirer, Dialect, HoldSession, HoldSessions, LockSession, SharedKeys, Strategy,
};
use crate::error::{Blocker, Error, LockConflict};
use crate::plan::{Step, targets_of};
use crate::snapshot::Statistics;
use hierlock_engine::Session;
use std::pin::pin;
use tokio::time::sleep;

impl Acquirer {
    /// Holds more. What is taken for a caller who has gone is given back.
    pub(super) async fn extend(&self, held: &mut HoldSessions) -> Result<()> {
        // What it needs beyond what is held: all of it, as a plan takes it, and by kind.
        let (mut steps, mut stronger) = (vec![], vec![]);
        let (mut out_of_order, mut in_order) = (vec![], vec![]);
        self.entry.with(|record| {
            for step in self.plan.steps() {
                let kind = match record.held(&self.plan, &step) {
                    Some(held) if held.join(step.mode) == held => continue,
                    Some(_) => &mut stronger,
                    None if record.is_after_all(&self.plan, &step) => &mut in_order,
                    None => &mut out_of_order,
                };
                kind.push(step.clone());
                steps.push(step);
            }
        });
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
                            // If that fails, the hold is not lost with it.
                            let _ = self.pool.roll_back(session).await;
                        }
                        return Err(why);
                    }
                    held.more.extend(session);
                }
            }
        }
        // There is no await between the check that the caller is there and this.
        self.entry.note(self.plan.clone());
        Ok(())
    }

    /// On a connection that others use as well nothing waits; and on another one the server would not see
    /// that both are the same guard's. So it is taken at once or not at all.
    async fn extend_shared(&self, keys: &mut SharedKeys, steps: &[Step]) -> Result<()> {
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

    async fn extend_at_savepoint(&self, base: &mut Session, steps: &[Step]) -> Result<()> {
        let mut session = LockSession::in_transaction(base.as_ref());
        loop {
            match self.lock(&mut session, steps).await {
                Ok(()) if self.cancellation.is_cancelled() => {
                    return Err(session.undo_after(AcquireError::Abandoned).await);
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
    ) -> Result<Session> {
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
        self.pool.wait_until_abandoned_end().await;
        Err(AcquireError::ConnectionLost(error))
    }

    /// Makes stronger what the hold itself has, one after the other, as long as it is free. What was
    /// made stronger stays so, and is noted: InnoDB cannot go back.
    async fn strengthen(&self, base: &mut Session, steps: &[Step]) -> Result<()> {
        for step in steps {
            let mut session = LockSession::in_transaction(base.as_ref());
            match self.try_lock(&mut session, std::slice::from_ref(step)).await {
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

    /// Turns a refusal into an error of the order, if the request waits: only the order has kept it from waiting.
    pub(super) fn out_of_order_if_waiting(&self, why: AcquireError) -> AcquireError {
        let blocked_on = match &why {
            AcquireError::Failed(error) if self.wait_limit.waits() && error.is_would_block() => {
                error.blocked_on().cloned()
            }
            _ => None,
        };
        let Some(blocked_on) = blocked_on else { return why };
        let (wanted, blocker) = (targets_of(self.plan.claims()), Blocker::Holder);
        Error::out_of_order(LockConflict { blocked_on, wanted, blocker }).into()
    }
}
