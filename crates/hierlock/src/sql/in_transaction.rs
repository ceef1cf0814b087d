//! Locks in a transaction of the caller, which end with it.
//!
//! An uncontended acquire is one statement that does not wait. If a slot is not free, the server is asked for the process
//! id of the connection, so that the wait can be cancelled at the deadline or when the caller drops the future.

use super::acquire_error::Result;
use super::acquirer::TryLockResult;
use super::{AcquireError, Acquirer, Dialect, InTransaction, LockSession, Strategy, update_keys};
use crate::error::{Error, LockError, SqlError, TransactionState};
use crate::plan::Step;
use hierlock_engine::SessionRef;
use std::time::Duration;
use tokio::runtime::Handle;

/// The number of times to look for the wait of a dropped future. Its statement was sent, but may not have started.
const MAX_CANCEL_CHECKS: usize = 4;
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(5);

impl Acquirer {
    /// Takes all steps in the caller's transaction.
    ///
    /// # Cancel safety
    /// If the future is dropped, its wait is ended on the server. The transaction keeps the locks that it has.
    pub(super) async fn acquire_in(
        &self,
        transaction: &mut impl InTransaction,
    ) -> Result<(), Error> {
        let steps: Vec<Step> = self.plan.steps().collect();
        let dialect = self.scheme.dialect;
        let connection = transaction.connection().connection;
        if connection.driver() != dialect.driver() {
            let server = self.pool.server.address.to_string();
            return Err(SqlError::OtherTransaction { server }.into());
        }
        let session = SessionRef::of_caller(connection, dialect, self.pool.answer_limit());
        if self.scheme.strategy == Strategy::OnDemand {
            // Before the transaction looks for the rows: a search for a missing row may lock the gap.
            let inserted = self.insert_missing(&steps).await;
            inserted.map_err(|why| why.into_error(&self.pool, &self.scheme))?;
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
                // A statement may still run on the connection, and a ROLLBACK would wait for it.
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
        let id = session.inner.query_id().await.map_err(AcquireError::ConnectionLost)?;
        session.inner.id = id;
        let mut cancel_on_drop = CancelWaitOnDrop { acquirer: Some(self), pid: id.pid, steps };
        loop {
            match self.lock(&mut session, steps).await {
                // The `innodb_lock_wait_timeout` of the caller's session. The acquire has its own deadline.
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

/// Ends a wait on the server when its future is dropped.
struct CancelWaitOnDrop<'a> {
    /// `None` once the wait is over.
    acquirer: Option<&'a Acquirer>,
    pid: i64,
    steps: &'a [Step],
}

impl Drop for CancelWaitOnDrop<'_> {
    fn drop(&mut self) {
        let Some(Acquirer { pool, scheme, .. }) = self.acquirer else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (pool, scheme, pid) = (pool.clone(), scheme.clone(), self.pid);
        let names = |step| [Some(scheme.slot_name(step)), update_keys::name(&scheme, step)];
        let names: Vec<String> = self.steps.iter().flat_map(names).flatten().collect();
        let tasks = pool.server.tasks.clone();
        let cancel = async move {
            for _ in 0..MAX_CANCEL_CHECKS {
                // Cancels only a wait for one of these slots, and only once: the caller may continue to use the connection.
                match pool.waits_for(&scheme, pid).await {
                    Ok(Some(name)) if names.iter().any(|slot| slot.starts_with(&name)) => {
                        if let Err(error) = pool.server.cancel(pid).await {
                            tracing::warn!(%error, "a dropped wait could not be cancelled");
                        }
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a dropped wait could not be checked"),
                }
                tokio::time::sleep(CANCEL_CHECK_INTERVAL).await;
            }
        };
        tasks.spawn_on(cancel, &runtime);
    }
}
