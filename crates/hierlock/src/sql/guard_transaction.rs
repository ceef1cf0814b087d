//! The lock's own transaction, lent for work: lock and data end together, and the work needs no second connection.
//!
//! A savepoint is set before the transaction is lent. If the savepoint is gone afterwards, the work has ended the
//! transaction (by COMMIT, DDL, or a deadlock on InnoDB), and the hold is lost.

use super::DriverConnection;
use super::hold::{HoldInner, HoldSession, HoldSessions};
use crate::error::{Result, SqlError};
use hierlock_engine::{ErrorClass, Session, error_message};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// The time after which a statement that the borrower has left running is cancelled.
const CANCEL_DELAY: Duration = Duration::from_millis(100);

/// The sessions of a hold, locked for the borrower.
type LentSessions = OwnedMutexGuard<Option<HoldSessions>>;

/// The transaction that holds a guard's locks, lent for work by [`Guard::transaction`](crate::Guard::transaction). Use
/// it as a connection of sqlx; dropping it returns the transaction to the guard.
///
/// The isolation level is READ COMMITTED. Do not end the transaction: [`Guard::commit`](crate::Guard::commit) commits it,
/// and dropping or releasing the guard rolls it back.
#[must_use = "dropping it gives the transaction back"]
pub struct GuardTransaction<'guard, C: DriverConnection> {
    hold: Arc<HoldInner>,
    /// `None` once the sessions are returned.
    held: Option<LentSessions>,
    guard: PhantomData<(&'guard mut (), C)>,
}

impl<C: DriverConnection> std::fmt::Debug for GuardTransaction<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardTransaction").finish_non_exhaustive()
    }
}

impl<C: DriverConnection> GuardTransaction<'_, C> {
    pub(super) fn new(hold: Arc<HoldInner>, held: LentSessions) -> Result<Self> {
        let mut work = Self { hold, held: Some(held), guard: PhantomData };
        if work.connection().is_none() {
            let server = work.hold.scheme.dialect.to_string();
            return Err(SqlError::OtherConnection { server, asked: C::NAME }.into());
        }
        Ok(work)
    }

    fn connection(&mut self) -> Option<&mut C> {
        let main = &mut self.held.as_mut()?.as_mut()?.main;
        main.own().ok()?.as_any_mut().downcast_mut()
    }
}

impl<C: DriverConnection> Deref for GuardTransaction<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        let sessions = self.held.as_ref().and_then(|held| held.as_ref());
        let connection = match sessions.map(|sessions| &sessions.main) {
            Some(HoldSession::Own(session)) => session.as_any().downcast_ref(),
            _ => None,
        };
        connection.expect(CHECKED)
    }
}

impl<C: DriverConnection> DerefMut for GuardTransaction<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection().expect(CHECKED)
    }
}

const CHECKED: &str = "`new` checks the type of the connection, and only `drop` takes the sessions";

/// The sessions stay locked until a task has released the savepoint.
impl<C: DriverConnection> Drop for GuardTransaction<'_, C> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let hold = self.hold.clone();
            let tasks = &self.hold.pool.server.tasks;
            tasks.spawn_on(async move { hold.take_back(held).await }, &self.hold.runtime);
        }
    }
}

impl HoldInner {
    pub(super) async fn lend(&self) -> Result<LentSessions> {
        let mut held = self.held.clone().lock_owned().await;
        let Some(sessions) = &mut *held else { return Err(self.lost_error()) };
        let main = sessions.main.own()?;
        // The borrower must not commit the label.
        let remove_label = sessions.label_rows.removal(main);
        let saved = main.run(&format!("{remove_label}SAVEPOINT lent")).await;
        saved.map_err(|error| self.lose(&mut held, &error_message(&error)))?;
        Ok(held)
    }

    async fn take_back(&self, mut held: LentSessions) {
        if let Some(HoldSessions { main: HoldSession::Own(main), work_failed, .. }) = &mut *held {
            match self.release_savepoint(main).await {
                Ok(failed) => *work_failed |= failed,
                Err(why) => drop(self.lose(&mut held, &why)),
            }
        }
    }

    /// Releases the savepoint of a lent transaction. Returns whether the work failed, on PostgreSQL: then the work is undone
    /// and the locks remain. Fails if the transaction has ended: then the locks are gone.
    async fn release_savepoint(&self, main: &mut Session) -> Result<bool, String> {
        const RELEASE: &str = "RELEASE SAVEPOINT lent";
        let id = main.id;
        // The borrower may have dropped a statement that still runs.
        let mut released = {
            let mut session = main.as_ref();
            let mut release = pin!(session.run(RELEASE));
            match tokio::time::timeout(CANCEL_DELAY, release.as_mut()).await {
                Ok(released) => released,
                Err(_) => self.pool.cancel(id, release).await,
            }
        };
        if let Err(error) = &released
            && ErrorClass::of(error).is_interrupted()
        {
            // The cancel came too late and interrupted this statement.
            released = main.run(RELEASE).await;
        }
        let Err(error) = released else { return Ok(false) };
        match ErrorClass::of(&error) {
            ErrorClass::InFailedTransaction => {
                let undone = main.run("ROLLBACK TO SAVEPOINT lent").await;
                undone.map(|()| true).map_err(|error| error_message(&error))
            }
            class if class.is_connection_lost() => Err(error_message(&error)),
            _ => Err("its transaction was ended by the work that ran in it".to_owned()),
        }
    }
}
