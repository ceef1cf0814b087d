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

use super::acquirer::{AcquireError, LockRequest, SHARED_SESSION, UndoScope};
use super::hold::{HoldError, HoldInner, HoldSession, HoldSessions};
use super::shared::SharedKeys;
use super::{Dialect, Strategy};
use crate::database::error_message;
use crate::error::LockError;
use crate::handover::Interest;
use crate::plan::Step;
use crate::registry::Entry;
use hierlock_engine::{Session, SessionId};
use std::sync::Arc;

/// What an extension needs beyond what is held.
struct Needs {
    /// Not held at all, and before something that is.
    out_of_order: Vec<Step>,
    /// Not held at all, and after all that is.
    in_order: Vec<Step>,
    /// HoldSessions too weakly.
    stronger: Vec<Step>,
}

/// Who wants more, what, and whether still.
struct Extension<'a> {
    entry: &'a Arc<Entry>,
    request: &'a LockRequest,
    interest: &'a mut Interest,
}

impl Needs {
    fn new(request: &LockRequest, entry: &Entry) -> Self {
        let (mut out_of_order, mut in_order, mut stronger) = (vec![], vec![], vec![]);
        entry.with(|record| {
            for step in request.plan.steps() {
                match record.held(&request.plan, &step) {
                    Some(held) if held.join(step.mode) == held => {}
                    Some(_) => stronger.push(step),
                    None if record.is_after_all(&request.plan, &step) => in_order.push(step),
                    None => out_of_order.push(step),
                }
            }
        });
        Needs { out_of_order, in_order, stronger }
    }

    /// All of it, as a plan takes it.
    fn in_order_of(self, request: &LockRequest) -> Vec<Step> {
        let mut steps = [self.out_of_order, self.in_order, self.stronger].concat();
        steps.sort_by_key(|step| request.plan.id(step));
        steps
    }

    fn is_nothing(&self) -> bool {
        self.out_of_order.is_empty() && self.in_order.is_empty() && self.stronger.is_empty()
    }
}

impl HoldInner {
    /// Holds more. If nobody is interested any more when it has it, it gives it back.
    pub(super) async fn extend(
        &self,
        request: LockRequest,
        mut interest: Interest,
    ) -> Result<(), HoldError> {
        let mut held = self.held.lock().await;
        let Some(connections) = &mut *held else { return Err(HoldError::Lost) };
        match self.extend_held(connections, &request, &mut interest).await {
            Ok(()) => Ok(()),
            Err(AcquireError::ConnectionLost(error)) => {
                Err(self.lose(&mut held, &error_message(&error)))
            }
            Err(AcquireError::HoldLost(why)) => Err(self.lose(&mut held, why)),
            Err(why) => Err(HoldError::Failed(why.into_error(&self.pool, &self.scheme))),
        }
    }

    async fn extend_held(
        &self,
        held: &mut HoldSessions,
        request: &LockRequest,
        interest: &mut Interest,
    ) -> Result<(), AcquireError> {
        let needs = Needs::new(request, &held.entry);
        if needs.is_nothing() {
            held.entry.note(&request.plan);
            return Ok(());
        }
        let entry = held.entry.clone();
        let extension = &mut Extension { entry: &entry, request, interest };
        let more = match &mut held.base {
            HoldSession::Own(base) if self.scheme.dialect == Dialect::Postgres => {
                self.extend_at_savepoint(base, needs, extension).await?;
                None
            }
            HoldSession::Own(base) => self.extend_beside(base, needs, extension).await?,
            HoldSession::Shared(keys) => return self.extend_shared(keys, needs, extension).await,
        };
        if interest.is_lost() {
            match more {
                Some(more) => self.give_back(more).await,
                None => {
                    if let HoldSession::Own(base) = &mut held.base
                        && self.scheme.dialect == Dialect::Postgres
                    {
                        base.run(UndoScope::EXTEND.undo)
                            .await
                            .map_err(AcquireError::ConnectionLost)?;
                    }
                }
            }
            return Err(AcquireError::Abandoned);
        }
        // No await from here on: whoever asked will be told.
        held.entry.note(&request.plan);
        held.more.extend(more);
        Ok(())
    }

    async fn extend_at_savepoint(
        &self,
        base: &mut Session,
        needs: Needs,
        extension: &mut Extension<'_>,
    ) -> Result<(), AcquireError> {
        let Extension { entry, request, interest } = extension;
        let steps = needs.in_order_of(request);
        loop {
            let taken = self
                .acquirer(entry)
                .lock(&mut base.as_ref(), &steps, request, UndoScope::EXTEND, interest)
                .await;
            match taken {
                Err(AcquireError::MissingRows(missing))
                    if self.scheme.strategy == Strategy::OnDemand && !missing.is_empty() =>
                {
                    let extension = &mut Extension { entry, request, interest };
                    self.insert_apart(&missing, extension).await?;
                }
                Err(AcquireError::MissingRows(missing)) if missing.is_empty() => {}
                other => return other,
            }
        }
    }

    async fn extend_beside(
        &self,
        base: &mut Session,
        needs: Needs,
        extension: &mut Extension<'_>,
    ) -> Result<Option<Session>, AcquireError> {
        let Needs { out_of_order, in_order, stronger } = needs;
        let mut more = None;
        if !out_of_order.is_empty() || !in_order.is_empty() {
            let mut session = self.another_session().await?;
            let id = session.id;
            let taken = {
                let taking = self.lock_beside(&mut session, &out_of_order, &in_order, extension);
                self.while_it_is_held(base, id, taking).await?
            };
            match taken {
                Ok(()) => more = Some(session),
                // Another connection's end is not that of the hold.
                Err(AcquireError::ConnectionLost(error)) => {
                    return Err(AcquireError::Failed(self.failed(error)));
                }
                Err(why) => {
                    self.pool.server.give_back(session);
                    return Err(why);
                }
            }
        }
        if let Err(why) = self.strengthen(base, &stronger, extension).await {
            if let Some(session) = more {
                self.give_back(session).await;
            }
            return Err(why);
        }
        Ok(more)
    }

    /// Takes on another connection, and keeps the hold's own alive. If the hold is lost, there is nothing
    /// left to extend: then the other connection is ended on the server, with its statement.
    async fn while_it_is_held<T>(
        &self,
        base: &mut Session,
        other: SessionId,
        taking: impl Future<Output = T>,
    ) -> Result<T, AcquireError> {
        let mut taking = std::pin::pin!(taking);
        let settings = &self.pool.settings;
        loop {
            tokio::select! {
                biased;
                taken = &mut taking => return Ok(taken),
                () = tokio::time::sleep(settings.keep_alive) => {}
            }
            if let Err(error) = base.ping().await {
                let end = self.pool.server.terminate(self.scheme.dialect, other);
                let _ = tokio::time::timeout(settings.answer_limit, end).await;
                return Err(AcquireError::ConnectionLost(error));
            }
        }
    }

    /// Takes what is new: first what must not be waited for, then the rest.
    async fn lock_beside(
        &self,
        session: &mut Session,
        out_of_order: &[Step],
        in_order: &[Step],
        extension: &mut Extension<'_>,
    ) -> Result<(), AcquireError> {
        let Extension { entry, request, interest } = extension;
        let around = UndoScope::acquire(session);
        loop {
            let taken = async {
                if !out_of_order.is_empty() {
                    let tried = self
                        .acquirer(entry)
                        .try_lock(&mut session.as_ref(), out_of_order, request, around)
                        .await;
                    tried.map_err(|why| out_of_order_if_waiting(why, request))?;
                }
                match in_order {
                    [] => Ok(()),
                    _ => {
                        self.acquirer(entry)
                            .lock(&mut session.as_ref(), in_order, request, around, interest)
                            .await
                    }
                }
            };
            match taken.await {
                Err(AcquireError::LockWaitTimeout | AcquireError::Deadlock { .. }) => {}
                Err(AcquireError::MissingRows(missing)) if missing.is_empty() => {}
                Err(AcquireError::MissingRows(missing))
                    if self.scheme.strategy == Strategy::OnDemand =>
                {
                    // What was taken before was given back with it.
                    self.acquirer(entry).undo(&mut session.as_ref(), "ROLLBACK").await?;
                    match self.acquirer(entry).insert(session, &missing, request, interest).await {
                        Ok(()) | Err(AcquireError::LockWaitTimeout) => {}
                        Err(why) => return Err(why),
                    }
                }
                Err(AcquireError::MissingRows(missing)) => {
                    self.acquirer(entry).undo(&mut session.as_ref(), "ROLLBACK").await?;
                    return Err(AcquireError::MissingRows(missing));
                }
                other => return other,
            }
        }
    }

    /// Makes stronger what the hold itself has, one after the other, as long as it is free. What was
    /// made stronger stays so, and is noted: InnoDB cannot go back.
    async fn strengthen(
        &self,
        base: &mut Session,
        steps: &[Step],
        extension: &Extension<'_>,
    ) -> Result<(), AcquireError> {
        let Extension { entry, request, .. } = extension;
        for step in steps {
            let (one, session) = (std::slice::from_ref(step), &mut base.as_ref());
            let tried =
                self.acquirer(entry).try_lock(session, one, request, UndoScope::NOTHING).await;
            tried.map_err(|why| match why {
                // With a change of the table, which waits for the hold: the hold is no more.
                AcquireError::Deadlock { .. } => AcquireError::HoldLost(
                    "the server has ended its transaction as the victim of a deadlock",
                ),
                why => out_of_order_if_waiting(why, request),
            })?;
            entry.with(|record| record.take(&request.plan, step));
        }
        Ok(())
    }

    /// On a connection that others use as well nothing waits; and on another one the server would not see
    /// that both are the same guard's. So it is taken at once or not at all.
    async fn extend_shared(
        &self,
        keys: &mut SharedKeys,
        needs: Needs,
        extension: &Extension<'_>,
    ) -> Result<(), AcquireError> {
        let Extension { entry, request, interest } = extension;
        let steps = needs.in_order_of(request);
        match keys.try_add(&steps).await.map_err(AcquireError::ConnectionLost)? {
            None if interest.is_lost() => {
                keys.give_back_last(steps.len()).await.map_err(AcquireError::ConnectionLost)?;
                Err(AcquireError::Abandoned)
            }
            None => {
                entry.note(&request.plan);
                Ok(())
            }
            Some(place) => {
                let why =
                    self.acquirer(entry).would_block(&steps[place], request, SHARED_SESSION).await;
                Err(out_of_order_if_waiting(why, request))
            }
        }
    }

    /// Frees what another connection of the hold has. Its end is not that of the hold.
    async fn give_back(&self, mut session: Session) {
        if session.roll_back().await.is_ok() {
            self.pool.server.give_back(session);
        }
    }

    async fn another_session(&self) -> Result<Session, AcquireError> {
        if let Some(mut session) = self.pool.server.take_idle()
            && session.ping().await.is_ok()
        {
            return Ok(session);
        }
        self.pool.connect().await.map_err(AcquireError::Failed)
    }

    /// Rows are made in a transaction of their own, so on a connection of its own.
    async fn insert_apart(
        &self,
        missing: &[Step],
        extension: &mut Extension<'_>,
    ) -> Result<(), AcquireError> {
        let Extension { entry, request, interest } = extension;
        let mut session = self.another_session().await?;
        match self.acquirer(entry).insert(&mut session, missing, request, interest).await {
            Ok(()) | Err(AcquireError::LockWaitTimeout) => {
                self.pool.server.give_back(session);
                Ok(())
            }
            Err(AcquireError::ConnectionLost(error)) => {
                Err(AcquireError::Failed(self.failed(error)))
            }
            Err(why) => {
                self.pool.server.give_back(session);
                Err(why)
            }
        }
    }
}

/// What is in the way would have been waited for, if that were safe.
fn out_of_order_if_waiting(why: AcquireError, request: &LockRequest) -> AcquireError {
    match (why, request.wait_limit) {
        (AcquireError::Failed(error), wait_limit) if wait_limit.waits() => {
            AcquireError::Failed(match error.would_block_on() {
                Some(blocked_on) => {
                    LockError::OutOfOrder { blocked_on, wanted: request.wanted() }.into()
                }
                None => error,
            })
        }
        (why, _) => why,
    }
}
