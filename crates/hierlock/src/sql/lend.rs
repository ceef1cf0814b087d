//! The lock's own transaction, lent for work: then lock and data live and die together, and the work
//! needs no second connection.
//!
//! The keeper sets a savepoint before it lends. If that is gone when the connection comes back, somebody
//! has ended the transaction (a COMMIT, a DDL statement, a deadlock on InnoDB), and with it the lock: the
//! guard is told that it is lost.

use super::keeper::{Held, Keeper};
use super::session::{Meaning, Session, meaning};
use super::{Connection, Dialect};
use crate::error::{Result, SqlError};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;

/// A statement that the borrower has left running is ended after this long.
const CANCEL_AFTER: Duration = Duration::from_millis(100);

/// A session on its way to the borrower and back; however it is dropped, it goes back.
pub(super) struct Lent {
    session: Option<Session>,
    back: Option<oneshot::Sender<Session>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(session), Some(back)) = (self.session.take(), self.back.take()) {
            // Without a keeper there is nobody left to hold for: closing it frees everything.
            let _ = back.send(session);
        }
    }
}

/// The transaction that holds a guard's locks, lent for work by
/// [`Guard::transaction`](crate::Guard::transaction). Use it as a connection of sqlx; dropping it gives
/// it back.
///
/// It is at READ COMMITTED. Do not end the transaction: [`Guard::commit`](crate::Guard::commit) does,
/// and dropping or releasing the guard undoes the work.
pub struct Work<'guard, C: Connection> {
    lent: Lent,
    guard: PhantomData<(&'guard mut (), C)>,
}

impl<C: Connection> std::fmt::Debug for Work<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("session", &self.lent.session).finish_non_exhaustive()
    }
}

impl<C: Connection> Work<'_, C> {
    pub(super) fn new(lent: Lent, server: String) -> Result<Self> {
        match connection_of::<C>(&lent) {
            Some(_) => Ok(Self { lent, guard: PhantomData }),
            None => Err(SqlError::OtherConnection { server, asked: C::NAME }.into()),
        }
    }
}

fn connection_of<C: Connection>(lent: &Lent) -> Option<&C> {
    lent.session.as_ref()?.as_any().downcast_ref()
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
        let session = self.lent.session.as_mut();
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

impl Keeper {
    /// Lends the connection of the hold, and looks at it when it comes back. An error only if the hold
    /// is lost.
    pub(super) async fn answer_lend(
        &self,
        mut held: Held,
        reply: oneshot::Sender<Result<Lent>>,
    ) -> Result<Held, String> {
        held.base.run("SAVEPOINT lent").await.map_err(|error| error.to_string())?;
        let Held { base, more, failed } = held;
        let (back, returned) = oneshot::channel();
        let _ = reply.send(Ok(Lent { session: Some(base), back: Some(back) }));
        let mut base = returned.await.map_err(|_| "its connection was not given back")?;
        match self.look_at(&mut base).await {
            Returned::Whole => Ok(Held { base, more, failed }),
            Returned::Failed => Ok(Held { base, more, failed: true }),
            Returned::Ended(why) => Err(why),
        }
    }

    async fn look_at(&self, base: &mut Session) -> Returned {
        let ended = |error: sqlx::Error| Returned::Ended(error.to_string());
        let (dialect, pid) = (base.dialect, base.pid);
        // Whoever borrowed it may have dropped a statement that still runs.
        let released = {
            let mut line = base.line();
            let mut release = pin!(line.run("RELEASE SAVEPOINT lent"));
            match tokio::time::timeout(CANCEL_AFTER, release.as_mut()).await {
                Ok(released) => released,
                Err(_) => self.taker().cancel(dialect, pid, release).await,
            }
        };
        let released = match released {
            // The cancel came a moment too late, and hit this.
            Err(error) if meaning(&error) == Meaning::Cancelled => {
                base.run("RELEASE SAVEPOINT lent").await
            }
            other => other,
        };
        match released {
            Ok(()) => Returned::Whole,
            Err(error) if meaning(&error) == Meaning::InFailedTransaction => {
                match base.run("ROLLBACK TO SAVEPOINT lent").await {
                    Ok(()) => Returned::Failed,
                    Err(error) => ended(error),
                }
            }
            Err(error) if meaning(&error) == Meaning::Gone => ended(error),
            Err(_) => {
                Returned::Ended("its transaction was ended by the work that ran in it".to_owned())
            }
        }
    }

    /// Ends the hold by COMMIT, with the work that was done in its transaction.
    pub(super) async fn commit(self, mut held: Held) -> Result<()> {
        let server = self.pool.address.to_string();
        if held.failed {
            self.end(held).await?;
            return Err(SqlError::WorkFailed { server }.into());
        }
        if let Err(source) = held.base.run("COMMIT").await {
            return Err(match meaning(&source) {
                Meaning::Gone => SqlError::CommitUnknown { server, source }.into(),
                _ => {
                    // Refused, for example by a deferred constraint: then it was rolled back.
                    self.end(held).await?;
                    SqlError::Failed { server, source }.into()
                }
            });
        }
        self.end(held).await
    }

    /// A number that is greater than that of everyone who held the same before.
    pub(super) async fn token(&self, base: &mut Session) -> Result<u64, sqlx::Error> {
        let sql = match base.dialect {
            Dialect::Postgres => "SELECT pg_current_xact_id()::text",
            _ => "SELECT UUID_SHORT()",
        };
        let rows = base.rows(sql).await?;
        let token = rows.first().and_then(|row| row[0].parse().ok());
        token.ok_or(sqlx::Error::RowNotFound)
    }
}
