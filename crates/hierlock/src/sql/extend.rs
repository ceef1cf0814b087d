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

use super::kept::{Base, Held, Kept, Trouble};
use super::shared::SharedKeys;
use super::take::{Around, NotTaken, SHARED_SESSION, Take};
use super::{Dialect, Strategy};
use crate::database::error_message;
use crate::error::LockError;
use crate::handover::Interest;
use crate::plan::Step;
use crate::registry::Entry;
use hierlock_engine::{Session, SessionId};

/// What an extension needs beyond what is held.
struct Needs {
    /// Not held at all, and before something that is.
    out_of_order: Vec<Step>,
    /// Not held at all, and after all that is.
    in_order: Vec<Step>,
    /// Held too weakly.
    stronger: Vec<Step>,
}

/// Who wants more, what, and whether still.
struct Wish<'a> {
    entry: &'a Entry,
    take: &'a Take,
    interest: &'a mut Interest,
}

impl Needs {
    fn new(take: &Take, entry: &Entry) -> Self {
        let (mut out_of_order, mut in_order, mut stronger) = (vec![], vec![], vec![]);
        entry.with(|record| {
            for step in take.plan.steps() {
                match record.held(&take.plan, &step) {
                    Some(held) if held.join(step.mode) == held => {}
                    Some(_) => stronger.push(step),
                    None if record.is_after_all(&take.plan, &step) => in_order.push(step),
                    None => out_of_order.push(step),
                }
            }
        });
        Needs { out_of_order, in_order, stronger }
    }

    /// All of it, as a plan takes it.
    fn in_order_of(self, take: &Take) -> Vec<Step> {
        let mut steps = [self.out_of_order, self.in_order, self.stronger].concat();
        steps.sort_by_key(|step| take.plan.id(step));
        steps
    }

    fn is_nothing(&self) -> bool {
        self.out_of_order.is_empty() && self.in_order.is_empty() && self.stronger.is_empty()
    }
}

impl Kept {
    /// Holds more. If nobody is interested any more when it has it, it gives it back.
    pub(super) async fn extend(&self, take: Take, mut interest: Interest) -> Result<(), Trouble> {
        let mut held = self.held.lock().await;
        let Some(connections) = &mut *held else { return Err(Trouble::Lost) };
        match self.extend_held(connections, &take, &mut interest).await {
            Ok(()) => Ok(()),
            Err(NotTaken::Gone(error)) => Err(self.lose(&mut held, &error_message(&error))),
            Err(why) => {
                let error = self.taker(&connections.entry).error(why, &take);
                Err(Trouble::Error(error))
            }
        }
    }

    async fn extend_held(
        &self,
        held: &mut Held,
        take: &Take,
        interest: &mut Interest,
    ) -> Result<(), NotTaken> {
        let needs = Needs::new(take, &held.entry);
        if needs.is_nothing() {
            held.entry.note(&take.plan);
            return Ok(());
        }
        let entry = held.entry.clone();
        let wish = &mut Wish { entry: &entry, take, interest };
        let more = match &mut held.base {
            Base::Own(base) if self.scheme.dialect == Dialect::Postgres => {
                self.extend_at_savepoint(base, needs, wish).await?;
                None
            }
            Base::Own(base) => self.extend_beside(base, needs, wish).await?,
            Base::Shared(keys) => return self.extend_shared(keys, needs, wish).await,
        };
        if interest.is_lost() {
            match more {
                Some(more) => self.give_back(more).await,
                None => {
                    if let Base::Own(base) = &mut held.base
                        && self.scheme.dialect == Dialect::Postgres
                    {
                        base.run(Around::EXTEND.undo).await.map_err(NotTaken::Gone)?;
                    }
                }
            }
            return Err(NotTaken::GivenUp);
        }
        // No await from here on: whoever asked will be told.
        held.entry.note(&take.plan);
        held.more.extend(more);
        Ok(())
    }

    async fn extend_at_savepoint(
        &self,
        base: &mut Session,
        needs: Needs,
        wish: &mut Wish<'_>,
    ) -> Result<(), NotTaken> {
        let Wish { entry, take, interest } = wish;
        let steps = needs.in_order_of(take);
        loop {
            let taken = self
                .taker(entry)
                .take(&mut base.as_ref(), &steps, take, Around::EXTEND, interest)
                .await;
            match taken {
                Err(NotTaken::Missing(missing))
                    if self.scheme.strategy == Strategy::OnDemand && !missing.is_empty() =>
                {
                    let wish = &mut Wish { entry, take, interest };
                    self.insert_apart(&missing, wish).await?;
                }
                Err(NotTaken::Missing(missing)) if missing.is_empty() => {}
                other => return other,
            }
        }
    }

    async fn extend_beside(
        &self,
        base: &mut Session,
        needs: Needs,
        wish: &mut Wish<'_>,
    ) -> Result<Option<Session>, NotTaken> {
        let Needs { out_of_order, in_order, stronger } = needs;
        let mut more = None;
        if !out_of_order.is_empty() || !in_order.is_empty() {
            let mut session = self.another_session().await?;
            let id = session.id;
            let taken = {
                let taking = self.take_beside(&mut session, &out_of_order, &in_order, wish);
                self.while_it_is_held(base, id, taking).await?
            };
            match taken {
                Ok(()) => more = Some(session),
                // Another connection's end is not that of the hold.
                Err(NotTaken::Gone(error)) => {
                    return Err(NotTaken::Because(self.failed(error)));
                }
                Err(why) => {
                    self.pool.server.give_back(session);
                    return Err(why);
                }
            }
        }
        if let Err(why) = self.strengthen(base, &stronger, wish).await {
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
    ) -> Result<T, NotTaken> {
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
                return Err(NotTaken::Gone(error));
            }
        }
    }

    /// Takes what is new: first what must not be waited for, then the rest.
    async fn take_beside(
        &self,
        session: &mut Session,
        out_of_order: &[Step],
        in_order: &[Step],
        wish: &mut Wish<'_>,
    ) -> Result<(), NotTaken> {
        let Wish { entry, take, interest } = wish;
        let around = Around::acquire(session);
        loop {
            let taken = async {
                if !out_of_order.is_empty() {
                    let tried = self
                        .taker(entry)
                        .try_take(&mut session.as_ref(), out_of_order, take, around)
                        .await;
                    tried.map_err(|why| out_of_order_if_waiting(why, take))?;
                }
                match in_order {
                    [] => Ok(()),
                    _ => {
                        self.taker(entry)
                            .take(&mut session.as_ref(), in_order, take, around, interest)
                            .await
                    }
                }
            };
            match taken.await {
                Err(NotTaken::Again | NotTaken::Deadlock(_)) => {}
                Err(NotTaken::Missing(missing)) if missing.is_empty() => {}
                Err(NotTaken::Missing(missing)) if self.scheme.strategy == Strategy::OnDemand => {
                    // What was taken before was given back with it.
                    self.taker(entry).undo(&mut session.as_ref(), "ROLLBACK").await?;
                    self.taker(entry).insert(session, &missing, take, interest).await?;
                }
                Err(NotTaken::Missing(missing)) => {
                    self.taker(entry).undo(&mut session.as_ref(), "ROLLBACK").await?;
                    return Err(NotTaken::Missing(missing));
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
        wish: &Wish<'_>,
    ) -> Result<(), NotTaken> {
        let Wish { entry, take, .. } = wish;
        for step in steps {
            let (one, session) = (std::slice::from_ref(step), &mut base.as_ref());
            let tried = self.taker(entry).try_take(session, one, take, Around::NOTHING).await;
            tried.map_err(|why| match why {
                // With a change of the table, which waits for the hold: the hold is no more.
                NotTaken::Deadlock(_) => NotTaken::Gone(sqlx::Error::WorkerCrashed),
                why => out_of_order_if_waiting(why, take),
            })?;
            entry.with(|record| record.take(&take.plan, step));
        }
        Ok(())
    }

    /// On a connection that others use as well nothing waits; and on another one the server would not see
    /// that both are the same guard's. So it is taken at once or not at all.
    async fn extend_shared(
        &self,
        keys: &mut SharedKeys,
        needs: Needs,
        wish: &Wish<'_>,
    ) -> Result<(), NotTaken> {
        let Wish { entry, take, interest } = wish;
        let steps = needs.in_order_of(take);
        match keys.try_add(&steps).await.map_err(NotTaken::Gone)? {
            None if interest.is_lost() => {
                keys.give_back_last(steps.len()).await.map_err(NotTaken::Gone)?;
                Err(NotTaken::GivenUp)
            }
            None => {
                entry.note(&take.plan);
                Ok(())
            }
            Some(place) => {
                let why = self.taker(entry).would_block(&steps[place], take, SHARED_SESSION).await;
                Err(out_of_order_if_waiting(why, take))
            }
        }
    }

    /// Frees what another connection of the hold has. Its end is not that of the hold.
    async fn give_back(&self, mut session: Session) {
        if session.roll_back().await.is_ok() {
            self.pool.server.give_back(session);
        }
    }

    async fn another_session(&self) -> Result<Session, NotTaken> {
        if let Some(mut session) = self.pool.server.take_idle()
            && session.ping().await.is_ok()
        {
            return Ok(session);
        }
        self.pool.connect().await.map_err(NotTaken::Because)
    }

    /// Rows are made in a transaction of their own, so on a connection of its own.
    async fn insert_apart(&self, missing: &[Step], wish: &mut Wish<'_>) -> Result<(), NotTaken> {
        let Wish { entry, take, interest } = wish;
        let mut session = self.another_session().await?;
        match self.taker(entry).insert(&mut session, missing, take, interest).await {
            Ok(()) | Err(NotTaken::Again) => {
                self.pool.server.give_back(session);
                Ok(())
            }
            Err(NotTaken::Gone(error)) => Err(NotTaken::Because(self.failed(error))),
            Err(why) => {
                self.pool.server.give_back(session);
                Err(why)
            }
        }
    }
}

/// What is in the way would have been waited for, if that were safe.
fn out_of_order_if_waiting(why: NotTaken, take: &Take) -> NotTaken {
    match (why, take.patience) {
        (NotTaken::Because(error), patience) if patience.waits() => NotTaken::Because(match error
            .would_block_on()
        {
            Some(blocked_on) => LockError::OutOfOrder { blocked_on, wanted: take.wanted() }.into(),
            None => error,
        }),
        (why, _) => why,
    }
}
