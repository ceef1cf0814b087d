//! Locks inside a transaction of the caller's: they live and die with it.
//!
//! An uncontended acquire is one statement that does not wait. Only if something is in the way is the
//! server asked for the connection's number, so that the wait can be cancelled there: at the deadline, or
//! when the caller drops the future.

use super::acquire_error::Result;
use super::acquirer::TryLockResult;
use super::{AcquireError, Acquirer, Dialect, InTransaction, LockSession, Strategy, updaters};
use crate::error::{Error, LockError, SqlError, TransactionState};
use crate::plan::Step;
use hierlock_engine::SessionRef;
use std::time::Duration;
use tokio::runtime::Handle;

/// How often a wait that nobody wants any more is looked for: it was sent, but may not have begun.
const MAX_CANCEL_CHECKS: usize = 4;
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(5);

impl Acquirer {
    /// Takes all steps in the caller's transaction.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the wait is ended on the server; the transaction keeps what was taken until it ends.
    pub(super) async fn acquire_in(
        &self,
        transaction: &mut impl InTransaction,
    ) -> Result<(), Error> {
        let steps: Vec<Step> = self.plan.steps().collect();
        let dialect = self.scheme.dialect;
        let connection = transaction.connection().into_ref();
        if connection.driver() != dialect.driver() {
            let server = self.pool.server.address.to_string();
            return Err(SqlError::OtherTransaction { server }.into());
        }
        let session = SessionRef::of_caller(connection, dialect, self.pool.answer_limit());
        if self.scheme.strategy == Strategy::OnDemand {
            // Beforehand: once the transaction has looked for them in vain it may have locked the gap.
            let made = self.make_rows(&steps).await;
            made.map_err(|why| why.into_error(&self.pool, &self.scheme))?;
        }
        let locked = self.lock_in(LockSession::in_transaction(session), &steps).await;
        locked.map_err(|why| {
            let state = match &why {
                AcquireError::ConnectionLost(_) | AcquireError::Abandoned => TransactionState::Gone,
                _ if dialect == Dialect::Postgres => TransactionState::AsBefore,
                AcquireError::Deadlock(_) => TransactionState::RolledBack,
                _ => TransactionState::KeepsSome,
            };
            if state == TransactionState::Gone {
                // It may have been left in the middle of a statement: a ROLLBACK could wait there for ever.
                transaction.give_up();
            }
            let error = match why {
                AcquireError::Deadlock(conflict) => {
                    LockError::DeadlockInTransaction(conflict).into()
                }
                why => why.into_error(&self.pool, &self.scheme),
            };
            LockError::InTransaction { error, state }.into()
        })
    }

    async fn lock_in(&self, mut session: LockSession<'_>, steps: &[Step]) -> Result<()> {
        if !self.wait_limit.waits() {
            return self.try_lock(&mut session, steps).await;
        }
        if let TryLockResult::Locked = self.attempt(&mut session, steps).await? {
            return Ok(());
        }
        session.undo().await?;
        let id = session.inner.ask_id().await.map_err(AcquireError::ConnectionLost)?;
        session.inner.id = id;
        let mut cancel_on_drop = CancelWaitOnDrop { acquirer: Some(self), pid: id.pid, steps };
        loop {
            match self.lock(&mut session, steps).await {
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
            for _ in 0..MAX_CANCEL_CHECKS {
                // Only a wait for one of ours, and only once: the connection is the caller's, who may go on with it.
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
                tokio::time::sleep(CANCEL_CHECK_INTERVAL).await;
            }
        });
    }
}
