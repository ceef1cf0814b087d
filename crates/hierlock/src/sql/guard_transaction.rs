//! The lock's own transaction, lent for work: then lock and data live and die together, and the work
//! needs no second connection.
//!
//! A savepoint is set before it is lent. If that is gone when the session comes back, somebody has ended the transaction
//! (by COMMIT, DDL, or a deadlock on InnoDB), and with it the lock: the guard is told that it is lost.

use super::Connection;
use super::hold::{HoldInner, HoldSession, HoldSessions};
use crate::database::error_message;
use crate::error::{Result, SqlError};
use hierlock_engine::{ErrorClass, Session};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// A statement that the borrower has left running is cancelled after this long.
const CANCEL_DELAY: Duration = Duration::from_millis(100);

/// The sessions of a hold, out of everybody else's reach.
type LentSessions = OwnedMutexGuard<Option<HoldSessions>>;

/// The transaction that holds a guard's locks, lent for work by [`Guard::transaction`](crate::Guard::transaction). Use
/// it as a connection of sqlx; dropping it gives it back.
///
/// It is at READ COMMITTED. Do not end the transaction: [`Guard::commit`](crate::Guard::commit) does,
/// and dropping or releasing the guard undoes the work.
#[must_use = "dropping it gives the transaction back"]
pub struct GuardTransaction<'guard, C: Connection> {
    hold: Arc<HoldInner>,
    /// None when they are given back.
    held: Option<LentSessions>,
    guard: PhantomData<(&'guard mut (), C)>,
}

impl<C: Connection> std::fmt::Debug for GuardTransaction<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardTransaction").finish_non_exhaustive()
    }
}

impl<C: Connection> GuardTransaction<'_, C> {
    pub(super) fn new(hold: Arc<HoldInner>, held: LentSessions) -> Result<Self> {
        let mut work = Self { hold, held: Some(held), guard: PhantomData };
        if work.connection().is_none() {
            let server = work.hold.scheme.dialect.to_string();
            return Err(SqlError::OtherConnection { server, asked: C::NAME }.into());
        }
        Ok(work)
    }

    fn connection(&mut self) -> Option<&mut C> {
        let base = &mut self.held.as_mut()?.as_mut()?.base;
        base.own().ok()?.as_any_mut().downcast_mut()
    }
}

impl<C: Connection> Deref for GuardTransaction<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        let sessions = self.held.as_ref().and_then(|held| held.as_ref());
        let connection = match sessions.map(|sessions| &sessions.base) {
            Some(HoldSession::Own(session)) => session.as_any().downcast_ref(),
            _ => None,
        };
        connection.expect(CHECKED)
    }
}

impl<C: Connection> DerefMut for GuardTransaction<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection().expect(CHECKED)
    }
}

const CHECKED: &str = "it was looked at when it was lent, and is there until it is dropped";

/// However it is dropped, the sessions are checked before anybody else has them.
impl<C: Connection> Drop for GuardTransaction<'_, C> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let hold = self.hold.clone();
            let tasks = &self.hold.pool.server.tasks;
            tasks.spawn(&self.hold.runtime, async move { hold.take_back(held).await });
        }
    }
}

impl HoldInner {
    pub(super) async fn lend(&self) -> Result<LentSessions> {
        let mut held = self.held.clone().lock_owned().await;
        let Some(sessions) = &mut *held else { return Err(self.lost_error()) };
        match sessions.base.own()?.run("SAVEPOINT lent").await {
            Ok(()) => Ok(held),
            Err(error) => Err(self.lose(&mut held, &error_message(&error))),
        }
    }

    async fn take_back(&self, mut held: LentSessions) {
        if let Some(HoldSessions { base: HoldSession::Own(base), work_failed, .. }) = &mut *held {
            match self.release_savepoint(base).await {
                Ok(failed) => *work_failed |= failed,
                Err(why) => drop(self.lose(&mut held, &why)),
            }
        }
    }

    /// Releases the savepoint of a lent transaction. Returns whether the work in it failed, on PostgreSQL: then it is
    /// undone, and the locks are there. Fails if somebody has ended the transaction: then the locks are gone.
    async fn release_savepoint(&self, base: &mut Session) -> Result<bool, String> {
        const RELEASE: &str = "RELEASE SAVEPOINT lent";
        let (dialect, id) = (base.dialect, base.id);
        // The borrower may have dropped a statement that still runs.
        let mut released = {
            let mut session = base.as_ref();
            let mut release = pin!(session.run(RELEASE));
            match tokio::time::timeout(CANCEL_DELAY, release.as_mut()).await {
                Ok(released) => released,
                Err(_) => self.pool.cancel(dialect, id, release).await,
            }
        };
        if let Err(error) = &released
            && ErrorClass::of(error).is_interrupted()
        {
            // The cancel came a moment too late, and hit this.
            released = base.run(RELEASE).await;
        }
        let Err(error) = released else { return Ok(false) };
        match ErrorClass::of(&error) {
            ErrorClass::InFailedTransaction => {
                let undone = base.run("ROLLBACK TO SAVEPOINT lent").await;
                undone.map(|()| true).map_err(|error| error_message(&error))
            }
            class if class.is_connection_lost() => Err(error_message(&error)),
            _ => Err("its transaction was ended by the work that ran in it".to_owned()),
        }
    }
}
