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

use super::keeper::{Confirm, Held, Keeper};
use super::session::{Ran, Session};
use super::take::{Around, NotTaken, Take};
use super::{Dialect, Strategy};
use crate::backend::Patience;
use crate::error::{LockError, Result};
use crate::plan::Step;
use tokio::sync::oneshot;

type Reply = oneshot::Sender<Result<Confirm>>;

/// What an extension needs beyond what is held.
struct Needs {
    /// Not held at all, and before something that is.
    out_of_order: Vec<Step>,
    /// Not held at all, and after all that is.
    in_order: Vec<Step>,
    /// Held too weakly.
    stronger: Vec<Step>,
}

impl Keeper {
    /// Extends, and makes sure that the guard knows; an error only if the connection is gone.
    pub(super) async fn answer_extend(
        &self,
        held: &mut Held,
        take: &Take,
        mut reply: Reply,
    ) -> Ran {
        let needs = self.needs(take);
        let is_nothing =
            [&needs.out_of_order, &needs.in_order, &needs.stronger].iter().all(|n| n.is_empty());
        let extended = if is_nothing {
            Ok(None)
        } else if self.scheme.dialect == Dialect::Postgres {
            self.extend_at_savepoint(&mut held.base, needs, take, &mut reply).await
        } else {
            self.extend_beside(&mut held.base, needs, take, &mut reply).await
        };
        let more = match extended {
            Ok(more) => more,
            Err(NotTaken::Gone(error)) => return Err(error),
            Err(why) => {
                let _ = reply.send(Err(self.taker().error(why, take)));
                return Ok(());
            }
        };
        // Noted before it is told: whoever is told may ask for the modes.
        let before = self.entry.with(|record| Some(record.clone()));
        self.note(take);
        let (confirm, confirmed) = oneshot::channel();
        let _ = reply.send(Ok(confirm));
        if confirmed.await.is_ok() {
            held.more.extend(more);
            return Ok(());
        }
        match more {
            Some(mut more) => {
                more.run("ROLLBACK").await?;
                self.pool.give_back(more);
            }
            None if !is_nothing && self.scheme.dialect == Dialect::Postgres => {
                held.base.run(Around::EXTEND.undo).await?;
            }
            None => {}
        }
        self.entry.with(|record| before.into_iter().for_each(|before| *record = before));
        Ok(())
    }

    fn needs(&self, take: &Take) -> Needs {
        let (mut out_of_order, mut in_order, mut stronger) = (vec![], vec![], vec![]);
        self.entry.with(|record| {
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

    async fn extend_at_savepoint(
        &self,
        base: &mut Session,
        needs: Needs,
        take: &Take,
        reply: &mut Reply,
    ) -> Result<Option<Session>, NotTaken> {
        let mut steps = [needs.out_of_order, needs.in_order, needs.stronger].concat();
        steps.sort_by_key(|step| take.plan.id(step));
        loop {
            let taken = self.taker().take(base, &steps, take, Around::EXTEND, reply).await;
            match taken {
                Err(NotTaken::Missing(missing))
                    if self.scheme.strategy == Strategy::OnDemand && !missing.is_empty() =>
                {
                    self.insert_apart(&missing, take, reply).await?;
                }
                Err(NotTaken::Missing(missing)) if missing.is_empty() => {}
                other => return other.map(|()| None),
            }
        }
    }

    async fn extend_beside(
        &self,
        base: &mut Session,
        needs: Needs,
        take: &Take,
        reply: &mut Reply,
    ) -> Result<Option<Session>, NotTaken> {
        let Needs { out_of_order, in_order, stronger } = needs;
        let mut more = None;
        if !out_of_order.is_empty() || !in_order.is_empty() {
            let mut session = self.another_session().await?;
            let taken = self.take_beside(&mut session, &out_of_order, &in_order, take, reply).await;
            match taken {
                Ok(()) => more = Some(session),
                // Another connection's end is not that of the hold.
                Err(NotTaken::Gone(error)) => {
                    return Err(NotTaken::Because(self.taker().failed(error)));
                }
                Err(why) => {
                    self.pool.give_back(session);
                    return Err(why);
                }
            }
        }
        if let Err(why) = self.strengthen(base, &stronger, take).await {
            if let Some(mut session) = more
                && session.run("ROLLBACK").await.is_ok()
            {
                self.pool.give_back(session);
            }
            return Err(why);
        }
        Ok(more)
    }

    /// Takes what is new: first what must not be waited for, then the rest.
    async fn take_beside(
        &self,
        session: &mut Session,
        out_of_order: &[Step],
        in_order: &[Step],
        take: &Take,
        reply: &mut Reply,
    ) -> Result<(), NotTaken> {
        let around = Around::acquire(self.scheme.dialect);
        loop {
            let taken = async {
                if !out_of_order.is_empty() {
                    let tried = self.taker().try_take(session, out_of_order, take, around).await;
                    tried.map_err(|why| out_of_order_if_waiting(why, take))?;
                }
                match in_order {
                    [] => Ok(()),
                    _ => self.taker().take(session, in_order, take, around, reply).await,
                }
            };
            match taken.await {
                Err(NotTaken::Again | NotTaken::Deadlock(_)) => {}
                Err(NotTaken::Missing(missing)) if missing.is_empty() => {}
                Err(NotTaken::Missing(missing)) if self.scheme.strategy == Strategy::OnDemand => {
                    // What was taken before was given back with it.
                    self.taker().undo(session, "ROLLBACK").await?;
                    self.taker().insert(session, &missing, take, reply).await?;
                }
                Err(NotTaken::Missing(missing)) => {
                    self.taker().undo(session, "ROLLBACK").await?;
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
        take: &Take,
    ) -> Result<(), NotTaken> {
        let around = Around::STRENGTHEN;
        for step in steps {
            let one = std::slice::from_ref(step);
            let tried = self.taker().try_take(base, one, take, around).await;
            tried.map_err(|why| out_of_order_if_waiting(why, take))?;
            self.entry.with(|record| record.take(&take.plan, step));
        }
        Ok(())
    }

    async fn another_session(&self) -> Result<Session, NotTaken> {
        if let Some(mut session) = self.pool.take_idle()
            && session.ping().await.is_ok()
        {
            return Ok(session);
        }
        self.pool.connect().await.map_err(NotTaken::Because)
    }

    /// Rows are made in a transaction of their own, so on a connection of its own.
    async fn insert_apart(
        &self,
        missing: &[Step],
        take: &Take,
        reply: &mut Reply,
    ) -> Result<(), NotTaken> {
        let mut session = self.another_session().await?;
        match self.taker().insert(&mut session, missing, take, reply).await {
            Ok(()) | Err(NotTaken::Again) => {
                self.pool.give_back(session);
                Ok(())
            }
            Err(NotTaken::Gone(error)) => Err(NotTaken::Because(self.taker().failed(error))),
            Err(why) => {
                self.pool.give_back(session);
                Err(why)
            }
        }
    }
}

/// What is in the way would have been waited for, if that were safe.
fn out_of_order_if_waiting(why: NotTaken, take: &Take) -> NotTaken {
    match (why, take.patience) {
        (NotTaken::Because(error), patience) if patience != Patience::Never => {
            NotTaken::Because(match error.would_block_on() {
                Some(blocked_on) => {
                    LockError::OutOfOrder { blocked_on, wanted: take.wanted() }.into()
                }
                None => error,
            })
        }
        (why, _) => why,
    }
}
