//! Locks inside a transaction of the caller's: they live and die with it.
//!
//! An uncontended acquire is one statement that does not wait. Only if something is in the way is the
//! server asked for the connection's number, so that the wait can be cancelled there: at the deadline, or
//! when the caller drops the future.

use super::failure::LockFailure;
use super::pool::LockPool;
use super::statement::Wait;
use super::take::{Around, NotTaken, Take, Taker};
use super::{Dialect, InTransaction, Scheme, Strategy, updaters};
use crate::error::{Error, LockError, Result, SqlError, TransactionState};
use crate::handover::Interest;
use crate::plan::Step;
use crate::registry::Entry;
use hierlock_engine::{Driver, SessionId, SessionRef};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How often a wait that nobody wants any more is looked for: it was sent, but may not have begun.
const LOOKS: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// PostgreSQL goes back to a savepoint; InnoDB cannot give back a part.
fn around(dialect: Dialect) -> Around {
    match dialect {
        Dialect::Postgres => {
            Around { before: "SAVEPOINT hierlock;\n", undo: "ROLLBACK TO SAVEPOINT hierlock" }
        }
        _ => Around::NOTHING,
    }
}

/// Everything that an acquire within a transaction needs.
pub(super) struct Within {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    pub(super) entry: Arc<Entry>,
}

impl Within {
    fn taker(&self) -> Taker<'_> {
        Taker { pool: &self.pool, scheme: &self.scheme, entry: &self.entry }
    }

    /// Takes all steps in the caller's transaction.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the wait is ended on the server; the transaction keeps what was taken
    /// until it ends.
    pub(super) async fn acquire(&self, tx: &mut impl InTransaction, take: &Take) -> Result<()> {
        let steps: Vec<Step> = take.plan.steps().collect();
        let dialect = self.scheme.dialect;
        let mut session = SessionRef {
            connection: tx.connection().into_ref(),
            answer_limit: self.pool.settings.answer_limit,
            id: SessionId::default(),
            dialect,
            is_ours: false,
        };
        let is_of_that_server = match session.connection.driver() {
            Driver::Mysql => dialect.is_innodb(),
            Driver::Postgres => !dialect.is_innodb(),
            Driver::Sqlite => false,
        };
        if !is_of_that_server {
            let server = self.pool.server.address.to_string();
            return Err(SqlError::OtherTransaction { server }.into());
        }
        if self.scheme.strategy == Strategy::OnDemand {
            self.make_rows(&steps, take).await?;
        }
        let taken = self.take(&mut session, &steps, take).await;
        let taken = taken.map_err(|why| self.explain(why, take));
        if let Err(error) = &taken
            && error.transaction_state() == Some(TransactionState::Gone)
        {
            // It may have been left in the middle of a statement: a ROLLBACK could wait there for ever.
            tx.give_up();
        }
        taken
    }

    async fn take(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        take: &Take,
    ) -> Result<(), NotTaken> {
        let around = around(self.scheme.dialect);
        if !take.patience.waits() {
            return self.taker().try_take(session, steps, take, around).await;
        }
        match self.at_once(session, steps, around).await? {
            true => return Ok(()),
            false => self.taker().undo(session, around.undo).await?,
        }
        session.id = session.ask_id().await.map_err(NotTaken::Gone)?;
        let mut ends = EndsTheWait { within: Some(self), pid: session.id.pid, steps };
        let mut interest = Interest::assumed();
        loop {
            let taken = self.taker().take(session, steps, take, around, &mut interest).await;
            match taken {
                // The caller's own limit for one wait, on InnoDB: it goes on.
                Err(NotTaken::Again) => {}
                Err(NotTaken::Missing(missing)) if missing.is_empty() => {}
                other => {
                    ends.within = None;
                    return other;
                }
            }
        }
    }

    /// Takes all, if nothing is in the way.
    async fn at_once(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        around: Around,
    ) -> Result<bool, NotTaken> {
        let statement = around.put_before(|form| self.scheme.take(steps, Wait::No, form));
        let rows_expected = statement.rows;
        if self.scheme.strategy == Strategy::Advisory {
            let got = session.rows(&statement.sql).await.map_err(NotTaken::Gone)?;
            return Ok(got.iter().all(|row| row[0] == "t"));
        }
        match statement.run_limited(session).await {
            Ok(rows) => Ok(rows == rows_expected),
            Err(error) => match LockFailure::of(&error) {
                LockFailure::ConnectionLost => Err(NotTaken::Gone(error)),
                LockFailure::NotGranted => Ok(false),
                LockFailure::Deadlock => Err(NotTaken::Deadlock(steps[0].target.clone())),
                LockFailure::TableChanged => {
                    self.taker().undo(session, around.undo).await?;
                    Err(NotTaken::Disagrees(error))
                }
                _ => {
                    let failed = self.taker().failed(error);
                    self.taker().undo(session, around.undo).await?;
                    Err(NotTaken::Because(failed))
                }
            },
        }
    }

    /// Makes missing rows beforehand, on a connection of our own: once the transaction has looked for
    /// them in vain it may have locked the gap.
    async fn make_rows(&self, steps: &[Step], take: &Take) -> Result<()> {
        let mut session = match self.pool.server.take_idle() {
            Some(session) => session,
            None => self.pool.connect().await?,
        };
        let failed = |error| self.taker().failed(error);
        let missing = match self.taker().find_missing(&mut session.as_ref(), steps).await {
            Ok(missing) => missing,
            Err(error) if LockFailure::of(&error) == LockFailure::ConnectionLost => {
                session = self.pool.connect().await?;
                self.taker().find_missing(&mut session.as_ref(), steps).await.map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        session.roll_back().await.map_err(failed)?;
        if !missing.is_empty() {
            let interest = &mut Interest::assumed();
            let made = self.taker().insert(&mut session, &missing, take, interest).await;
            match made {
                Ok(()) | Err(NotTaken::Again) => {}
                Err(why) => return Err(self.taker().error(why, take)),
            }
        }
        self.pool.server.give_back(session);
        Ok(())
    }

    /// Says what has become of the transaction.
    fn explain(&self, why: NotTaken, take: &Take) -> Error {
        let is_postgres = self.scheme.dialect == Dialect::Postgres;
        let state = match &why {
            NotTaken::Gone(_) | NotTaken::GivenUp => TransactionState::Gone,
            _ if is_postgres => TransactionState::AsBefore,
            NotTaken::Deadlock(_) => TransactionState::RolledBack,
            _ => TransactionState::KeepsSome,
        };
        let error = match why {
            NotTaken::Deadlock(blocked_on) => {
                LockError::DeadlockInTransaction { blocked_on, wanted: take.wanted() }.into()
            }
            why => self.taker().error(why, take),
        };
        LockError::InTransaction { error, state }.into()
    }
}

/// Dropped with the future of a caller who no longer waits, it ends the wait on the server.
struct EndsTheWait<'a> {
    /// None when there is no wait to end.
    within: Option<&'a Within>,
    pid: i64,
    steps: &'a [Step],
}

impl Drop for EndsTheWait<'_> {
    fn drop(&mut self) {
        let Some(Within { pool, scheme, .. }) = self.within else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (pool, scheme, pid) = (pool.clone(), scheme.clone(), self.pid);
        let names = |step| [Some(scheme.slot_name(step)), updaters::name(&scheme, step)];
        let names: Vec<String> = self.steps.iter().flat_map(names).flatten().collect();
        pool.server.tasks.clone().spawn(&runtime, async move {
            for _ in 0..LOOKS {
                // Only a wait for one of ours, and only once: the connection is the caller's, who may
                // go on with it.
                match pool.waits_for(&scheme, pid).await {
                    Ok(Some(name)) if names.iter().any(|ours| ours.starts_with(&name)) => {
                        if let Err(error) = pool.server.cancel(scheme.dialect, pid).await {
                            tracing::warn!(%error, "a dropped wait could not be cancelled");
                        }
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a dropped wait could not be looked at"),
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }
}
