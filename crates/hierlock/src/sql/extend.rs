//! More locks for a guard: the only operation that can deadlock.
//!
//! PostgreSQL releases locks at ROLLBACK TO SAVEPOINT, so an extension runs in the hold's own transaction, and the server
//! detects deadlocks. InnoDB keeps row locks until the whole transaction ends, and a deadlock victim loses all its locks.
//! So on InnoDB
//!
//! 1. new slots are locked on **another connection**, which can be rolled back alone;
//! 2. an extension **waits only in order**, for slots after all slots of the guard, since the server detects no deadlock
//!    between two connections of one guard. A slot out of order is locked only if it is free;
//! 3. a stronger mode of a held slot is possible only on the connection that holds it. It comes last, and only if the slot
//!    is free, so that the server never chooses a victim.

use super::acquire_error::Result;
use super::acquirer::SHARED_SESSION;
use super::{
    AcquireError, Acquirer, Dialect, HoldSession, HoldSessions, LockSession, SharedKeys, Strategy,
};
use crate::{Error, Statistics, Step};
use hierlock_engine::Session;
use std::pin::pin;
use tokio::time::sleep;

impl Acquirer {
    /// Adds the locks of the plan to a hold. If the caller has dropped its future, releases the new locks. After a deadlock
    /// on InnoDB, the transaction of the hold is gone.
    pub(super) async fn extend(&self, held: &mut HoldSessions) -> Result<()> {
        // The steps that the hold lacks: all in the order of the plan, and by kind.
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
            match &mut held.main {
                HoldSession::Shared(keys) => self.extend_shared(keys, &steps).await?,
                HoldSession::Own(main) if self.scheme.dialect == Dialect::Postgres => {
                    self.extend_at_savepoint(main, &steps).await?;
                }
                HoldSession::Own(main) => {
                    let session = match (&*out_of_order, &*in_order) {
                        ([], []) => None,
                        _ => Some(self.lock_beside(main, &out_of_order, &in_order).await?),
                    };
                    let extended = match self.strengthen(main, &stronger).await {
                        Ok(()) if self.cancellation.is_cancelled() => Err(AcquireError::Abandoned),
                        result => result,
                    };
                    if let Err(why) = extended {
                        if let Some(session) = session {
                            // The hold is not lost if this session fails.
                            let _ = self.pool.roll_back(session).await;
                        }
                        return Err(why);
                    }
                    held.extensions.extend(session);
                }
            }
        }
        // No await between the last check for cancellation and this.
        self.entry.record_plan(self.plan.clone());
        Ok(())
    }

    /// Takes the steps without waiting. A wait on the shared session would block all its guards, and on another session the
    /// server would not know that both belong to one guard.
    async fn extend_shared(&self, keys: &mut SharedKeys, steps: &[Step]) -> Result<()> {
        if let Some(index) = keys.try_add(steps).await.map_err(AcquireError::ConnectionLost)? {
            let why = self.would_block(&steps[index], SHARED_SESSION).await;
            return Err(self.out_of_order_if_waiting(why));
        }
        if self.cancellation.is_cancelled() {
            keys.give_back_last(steps.len()).await.map_err(AcquireError::ConnectionLost)?;
            return Err(AcquireError::Abandoned);
        }
        Ok(())
    }

    async fn extend_at_savepoint(&self, main: &mut Session, steps: &[Step]) -> Result<()> {
        let mut session = LockSession::in_transaction(main.as_ref());
        loop {
            match self.lock(&mut session, steps).await {
                Ok(()) if self.cancellation.is_cancelled() => {
                    return Err(session.undo_after(AcquireError::Abandoned).await);
                }
                Err(AcquireError::MissingRows(missing)) if missing.is_empty() => {}
                Err(AcquireError::MissingRows(missing))
                    if self.scheme.strategy == Strategy::OnDemand =>
                {
                    // The rows need a transaction of their own, so another session.
                    self.insert_missing(&missing).await?;
                }
                other => return other,
            }
        }
    }

    /// Takes new slots on another session, and returns that session. Keeps the hold's own session alive meanwhile: if that
    /// is lost, the other session is ended on the server, with its statement.
    async fn lock_beside(
        &self,
        main: &mut Session,
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
                if let Err(error) = main.ping().await {
                    break error;
                }
            }
        };
        self.pool.wait_until_abandoned_end().await;
        Err(AcquireError::ConnectionLost(error))
    }

    /// Takes held slots in a stronger mode, one after the other, if they are free. After a failure the slots before keep
    /// their stronger mode, and are recorded with it: InnoDB cannot release a row lock alone.
    async fn strengthen(&self, main: &mut Session, steps: &[Step]) -> Result<()> {
        for step in steps {
            let mut session = LockSession::in_transaction(main.as_ref());
            match self.try_lock(&mut session, std::slice::from_ref(step)).await {
                Ok(()) => self.entry.with(|record| record.take(&self.plan, step)),
                Err(why) => return Err(self.out_of_order_if_waiting(why)),
            }
        }
        Ok(())
    }

    /// Turns a refusal into an out-of-order error if the request may wait: it did not wait only because of the order.
    pub(super) fn out_of_order_if_waiting(&self, why: AcquireError) -> AcquireError {
        if let AcquireError::Failed(error) = &why
            && self.wait_limit.waits()
            && error.is_would_block()
            && let Some(conflict) = error.conflict()
        {
            return Error::out_of_order(conflict.clone()).into();
        }
        why
    }
}
