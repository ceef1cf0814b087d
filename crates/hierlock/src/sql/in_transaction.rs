//! Locks inside a transaction of the caller's: they live and die with it.
//!
//! An uncontended acquire is one statement that does not wait. Only if something is in the way is the
//! server asked for the connection's number, so that the wait can be cancelled there: at the deadline, or
//! when the caller drops the future.

use super::acquirer::{AcquireError, Acquirer, LockRequest, UndoScope};
use super::failure::LockFailure;
use super::statement::Wait;
use super::{Dialect, InTransaction, Strategy, updaters};
use crate::error::{Error, LockError, Result, SqlError, TransactionState};
use crate::handover::Interest;
use crate::plan::Step;
use hierlock_engine::{Driver, SessionRef};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often a wait that nobody wants any more is looked for: it was sent, but may not have begun.
const LOOKS: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// PostgreSQL goes back to a savepoint; InnoDB cannot give back a part.
fn around(dialect: Dialect) -> UndoScope {
    match dialect {
        Dialect::Postgres => {
            UndoScope { before: "SAVEPOINT hierlock;\n", undo: "ROLLBACK TO SAVEPOINT hierlock" }
        }
        _ => UndoScope::NOTHING,
    }
}

impl Acquirer {
    /// Takes all steps in the caller's transaction.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the wait is ended on the server; the transaction keeps what was taken
    /// until it ends.
    pub(super) async fn acquire_in(
        &self,
        tx: &mut impl InTransaction,
        request: &LockRequest,
    ) -> Result<()> {
        let steps: Vec<Step> = request.plan.steps().collect();
        let dialect = self.scheme.dialect;
        let connection = tx.connection().into_ref();
        let mut session =
            SessionRef::of_caller(connection, dialect, self.pool.settings.answer_limit);
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
            self.make_rows(&steps, request).await?;
        }
        let taken = self.lock_in(&mut session, &steps, request).await;
        let taken = taken.map_err(|why| self.explain(why));
        if let Err(error) = &taken
            && error.transaction_state() == Some(TransactionState::Gone)
        {
            // It may have been left in the middle of a statement: a ROLLBACK could wait there for ever.
            tx.give_up();
        }
        taken
    }

    async fn lock_in(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        request: &LockRequest,
    ) -> Result<(), AcquireError> {
        let around = around(self.scheme.dialect);
        if !request.wait_limit.waits() {
            return self.try_lock(session, steps, request, around).await;
        }
        match self.lock_now(session, steps, request, around).await? {
            true => return Ok(()),
            false => self.undo(session, around.undo).await?,
        }
        session.id = session.ask_id().await.map_err(AcquireError::ConnectionLost)?;
        let mut cancel_on_drop =
            CancelWaitOnDrop { acquirer: Some(self), pid: session.id.pid, steps };
        let mut interest = Interest::assumed();
        loop {
            let taken = self.lock(session, steps, request, around, &mut interest).await;
            match taken {
                // The caller's own limit for one wait, on InnoDB: it goes on.
                Err(AcquireError::LockWaitTimeout) => {}
                Err(AcquireError::MissingRows(missing)) if missing.is_empty() => {}
                other => {
                    cancel_on_drop.acquirer = None;
                    return other;
                }
            }
        }
    }

    /// Takes all, if nothing is in the way.
    async fn lock_now(
        &self,
        session: &mut SessionRef<'_>,
        steps: &[Step],
        request: &LockRequest,
        around: UndoScope,
    ) -> Result<bool, AcquireError> {
        let statement = around.put_before(|form| self.scheme.take(steps, Wait::No, form));
        let rows_expected = statement.rows;
        if self.scheme.strategy == Strategy::Advisory {
            let got = session.rows(&statement.sql).await.map_err(AcquireError::ConnectionLost)?;
            return Ok(got.iter().all(|row| row[0] == "t"));
        }
        match statement.run_limited(session).await {
            Ok(rows) => Ok(rows == rows_expected),
            Err(error) => match LockFailure::of(&error) {
                LockFailure::ConnectionLost => Err(AcquireError::ConnectionLost(error)),
                LockFailure::NotGranted => Ok(false),
                LockFailure::Deadlock => Err(request.deadlock(steps[0].target.clone())),
                LockFailure::TableChanged => {
                    self.undo(session, around.undo).await?;
                    Err(AcquireError::TableChanged(error))
                }
                _ => {
                    let failed = self.failed(error);
                    self.undo(session, around.undo).await?;
                    Err(AcquireError::Failed(failed))
                }
            },
        }
    }

    /// Makes missing rows beforehand, on a connection of our own: once the transaction has looked for
    /// them in vain it may have locked the gap.
    async fn make_rows(&self, steps: &[Step], request: &LockRequest) -> Result<()> {
        let mut session = match self.pool.server.take_idle() {
            Some(session) => session,
            None => self.pool.connect().await?,
        };
        let failed = |error| self.failed(error);
        let missing = match self.find_missing(&mut session.as_ref(), steps).await {
            Ok(missing) => missing,
            Err(error) if LockFailure::of(&error) == LockFailure::ConnectionLost => {
                session = self.pool.connect().await?;
                self.find_missing(&mut session.as_ref(), steps).await.map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        session.roll_back().await.map_err(failed)?;
        let mut missing = missing;
        while !missing.is_empty() {
            let interest = &mut Interest::assumed();
            match self.insert(&mut session, &missing, request, interest).await {
                Ok(()) => break,
                // Somebody else is making one of them.
                Err(AcquireError::LockWaitTimeout) => {
                    missing =
                        self.find_missing(&mut session.as_ref(), steps).await.map_err(failed)?;
                    session.roll_back().await.map_err(failed)?;
                }
                Err(why) => return Err(why.into_error(&self.pool, &self.scheme)),
            }
        }
        self.pool.server.give_back(session);
        Ok(())
    }

    /// Says what has become of the transaction.
    fn explain(&self, why: AcquireError) -> Error {
        let is_postgres = self.scheme.dialect == Dialect::Postgres;
        let state = match &why {
            AcquireError::ConnectionLost(_) | AcquireError::Abandoned => TransactionState::Gone,
            _ if is_postgres => TransactionState::AsBefore,
            AcquireError::Deadlock { .. } => TransactionState::RolledBack,
            _ => TransactionState::KeepsSome,
        };
        let error = match why {
            AcquireError::Deadlock { blocked_on, wanted } => {
                LockError::DeadlockInTransaction { blocked_on, wanted }.into()
            }
            why => why.into_error(&self.pool, &self.scheme),
        };
        LockError::InTransaction { error, state }.into()
    }
}

/// Dropped with the future of a caller who no longer waits, it ends the wait on the server.
struct CancelWaitOnDrop<'a> {
    /// None when there is no wait to end.
    acquirer: Option<&'a Acquirer>,
    pid: i64,
    steps: &'a [Step],
}

impl Drop for CancelWaitOnDrop<'_> {
    fn drop(&mut self) {
        let Some(Acquirer { pool, scheme, .. }) = self.acquirer else { return };
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
