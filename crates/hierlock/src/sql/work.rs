//! The lock's own transaction, lent for work: then lock and data live and die together, and the work
//! needs no second connection.
//!
//! A savepoint is set before it is lent. If that is gone when the connection comes back, somebody
//! has ended the transaction (a COMMIT, a DDL statement, a deadlock on InnoDB), and with it the lock: the
//! guard is told that it is lost.

use super::Connection;
use super::failure::LockFailure;
use super::hold::{HoldError, HoldInner, HoldSession, HoldSessions};
use crate::database::error_message;
use crate::error::{Result, SqlError};
use hierlock_engine::Session;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// A statement that the borrower has left running is ended after this long.
const CANCEL_AFTER: Duration = Duration::from_millis(100);

/// The connections of a hold, out of everybody else's reach; however it is dropped, they are looked at
/// before anybody else has them.
pub(super) struct LentSession {
    hold: Arc<HoldInner>,
    held: Option<OwnedMutexGuard<Option<HoldSessions>>>,
}

impl LentSession {
    fn base(&self) -> Option<&Session> {
        match &self.held.as_ref()?.as_ref()?.base {
            HoldSession::Own(session) => Some(session),
            HoldSession::Shared(_) => None,
        }
    }

    fn base_mut(&mut self) -> Option<&mut Session> {
        self.held.as_mut()?.as_mut()?.base.own().ok()
    }
}

impl Drop for LentSession {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let hold = self.hold.clone();
            let tasks = &self.hold.pool.server.tasks;
            tasks.spawn(&self.hold.runtime, async move { hold.take_back(held).await });
        }
    }
}

/// The transaction that holds a guard's locks, lent for work by
/// [`Guard::transaction`](crate::Guard::transaction). Use it as a connection of sqlx; dropping it gives
/// it back.
///
/// It is at READ COMMITTED. Do not end the transaction: [`Guard::commit`](crate::Guard::commit) does,
/// and dropping or releasing the guard undoes the work.
#[must_use = "dropping it gives the transaction back"]
pub struct Work<'guard, C: Connection> {
    lent: LentSession,
    guard: PhantomData<(&'guard mut (), C)>,
}

impl<C: Connection> std::fmt::Debug for Work<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("session", &self.lent.base()).finish_non_exhaustive()
    }
}

impl<C: Connection> Work<'_, C> {
    pub(super) fn new(lent: LentSession, server: String) -> Result<Self> {
        match connection_of::<C>(&lent) {
            Some(_) => Ok(Self { lent, guard: PhantomData }),
            None => Err(SqlError::OtherConnection { server, asked: C::NAME }.into()),
        }
    }
}

fn connection_of<C: Connection>(lent: &LentSession) -> Option<&C> {
    lent.base()?.as_any().downcast_ref()
}

impl<C: Connection> Deref for Work<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        let connection = connection_of::<C>(&self.lent);
        connection.expect("it was looked at when it was lent, and is there until it is dropped")
    }
}

impl<C: Connection> DerefMut for Work<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        let session = self.lent.base_mut();
        let connection = session.and_then(|session| session.as_any_mut().downcast_mut());
        connection.expect("it was looked at when it was lent, and is there until it is dropped")
    }
}

/// What became of a lent transaction.
enum Returned {
    Whole,
    /// A statement failed, on PostgreSQL: the work is undone, the locks are there.
    Failed,
    /// Ended by someone; the locks are gone.
    Ended(String),
}

impl HoldInner {
    /// Lends the connections of the hold.
    pub(super) async fn lend(self: Arc<Self>) -> Result<LentSession, HoldError> {
        let mut held = self.held.clone().lock_owned().await;
        let Some(connections) = &mut *held else { return Err(HoldError::Lost) };
        if let Err(error) = connections.base.own()?.run("SAVEPOINT lent").await {
            return Err(self.lose(&mut held, &error_message(&error)));
        }
        Ok(LentSession { hold: self, held: Some(held) })
    }

    async fn take_back(&self, mut held: OwnedMutexGuard<Option<HoldSessions>>) {
        let Some(connections) = &mut *held else { return };
        match self.look_at(connections).await {
            Returned::Whole => {}
            Returned::Failed => connections.failed = true,
            Returned::Ended(why) => drop(self.lose(&mut held, &why)),
        }
    }

    async fn look_at(&self, held: &mut HoldSessions) -> Returned {
        let HoldSessions { base: HoldSession::Own(base), entry, .. } = held else {
            return Returned::Whole;
        };
        let ended = |error: sqlx::Error| Returned::Ended(error_message(&error));
        let (dialect, id) = (base.dialect, base.id);
        // Whoever borrowed it may have dropped a statement that still runs.
        let released = {
            let mut session = base.as_ref();
            let mut release = pin!(session.run("RELEASE SAVEPOINT lent"));
            match tokio::time::timeout(CANCEL_AFTER, release.as_mut()).await {
                Ok(released) => released,
                Err(_) => self.acquirer(entry).cancel(dialect, id, release).await,
            }
        };
        let released = match released {
            // The cancel came a moment too late, and hit this.
            Err(error) if LockFailure::of(&error) == LockFailure::Interrupted => {
                base.run("RELEASE SAVEPOINT lent").await
            }
            other => other,
        };
        match released {
            Ok(()) => Returned::Whole,
            Err(error) if LockFailure::of(&error) == LockFailure::InFailedTransaction => {
                match base.run("ROLLBACK TO SAVEPOINT lent").await {
                    Ok(()) => Returned::Failed,
                    Err(error) => ended(error),
                }
            }
            Err(error) if LockFailure::of(&error) == LockFailure::ConnectionLost => ended(error),
            Err(_) => {
                Returned::Ended("its transaction was ended by the work that ran in it".to_owned())
            }
        }
    }
}
