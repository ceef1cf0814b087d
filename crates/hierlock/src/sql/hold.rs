//! A hold on a server: its sessions, and what can be done with them. Whatever is done runs to its end, also if its
//! caller goes away (see `handover`).

use super::acquirer::Acquirer;
use super::failure::LockFailure;
use super::pool::LockPool;
use super::shared::SharedKeys;
use super::{Dialect, Scheme, postgres};
use crate::database::error_message;
use crate::error::{Error, Result, SqlError};
use crate::registry::Entry;
use hierlock_engine::{Permit, ServerError, Session};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};

/// The session that holds the first plan of a hold.
pub(super) enum HoldSession {
    /// A transaction on a session of its own.
    Own(Session),
    /// Keys on a session that other guards use as well.
    Shared(SharedKeys),
}

impl HoldSession {
    pub(super) async fn ping(&mut self, pool: &LockPool) -> Result<(), sqlx::Error> {
        match self {
            HoldSession::Own(session) => session.ping().await,
            HoldSession::Shared(keys) => keys.ping(pool).await,
        }
    }

    /// Frees everything, and gives the session back if it is known to be clean.
    async fn end(self, pool: &LockPool) -> Result<(), sqlx::Error> {
        match self {
            HoldSession::Own(mut session) => {
                session.roll_back().await?;
                pool.server.give_back(session);
                Ok(())
            }
            HoldSession::Shared(keys) => keys.end().await,
        }
    }

    /// Returns the session with its transaction; a shared one has none.
    pub(super) fn own(&mut self) -> Result<&mut Session, Error> {
        match self {
            HoldSession::Own(session) => Ok(session),
            HoldSession::Shared(_) => Err(SqlError::NoOwnTransaction.into()),
        }
    }
}

/// The sessions of one hold.
pub(super) struct HoldSessions {
    /// With the first plan.
    pub(super) base: HoldSession,
    /// With what was added, where a transaction cannot give back a part.
    pub(super) more: Vec<Session>,
    /// Did work in its transaction fail? Then it cannot be committed.
    pub(super) failed: bool,
    pub(super) entry: Arc<Entry>,
    /// Freed last, after the sessions are back. A shared one needs none.
    permit: Option<Permit>,
}

impl HoldSessions {
    pub(super) fn new(base: HoldSession, entry: Arc<Entry>, permit: Option<Permit>) -> Self {
        Self { base, more: Vec::new(), failed: false, entry, permit }
    }

    async fn ping(&mut self, pool: &LockPool) -> Result<(), sqlx::Error> {
        self.base.ping(pool).await?;
        self.ping_more().await
    }

    async fn ping_more(&mut self) -> Result<(), sqlx::Error> {
        for session in &mut self.more {
            session.ping().await?;
        }
        Ok(())
    }

    /// Draws a fencing token: a number of the server's that grows. All was still held when it was drawn.
    async fn draw_token(&mut self) -> Result<Option<u64>, sqlx::Error> {
        let rows = match &mut self.base {
            HoldSession::Own(session) => {
                let token = match session.dialect {
                    Dialect::Postgres => postgres::TOKEN,
                    _ => "SELECT UUID_SHORT()",
                };
                session.rows(token).await?
            }
            HoldSession::Shared(keys) => keys.ask(postgres::TOKEN).await?,
        };
        self.ping_more().await?;
        Ok(rows.first().and_then(|row| row[0].parse().ok()))
    }
}

/// A hold, as its guard and the keep-alive task share it.
pub(super) struct HoldInner {
    pub(super) pool: Arc<LockPool>,
    pub(super) scheme: Arc<Scheme>,
    /// The runtime on which its sessions were opened.
    pub(super) runtime: Handle,
    /// None when it was ended, or lost.
    pub(super) held: Arc<Mutex<Option<HoldSessions>>>,
    lost: watch::Sender<Option<String>>,
}

/// Why something could not be done with a hold.
pub(super) enum HoldError {
    Failed(Error),
    /// There is no hold any more.
    Lost,
}

impl From<Error> for HoldError {
    fn from(error: Error) -> Self {
        HoldError::Failed(error)
    }
}

impl HoldInner {
    pub(super) fn new(
        pool: Arc<LockPool>,
        scheme: Arc<Scheme>,
        runtime: Handle,
        held: HoldSessions,
    ) -> Arc<Self> {
        let held = Arc::new(Mutex::new(Some(held)));
        Arc::new(Self { pool, scheme, runtime, held, lost: watch::Sender::new(None) })
    }

    /// Takes more under the name of the hold.
    pub(super) fn acquirer(&self, entry: &Arc<Entry>) -> Acquirer {
        let (pool, scheme) = (self.pool.clone(), self.scheme.clone());
        Acquirer { pool, scheme, entry: entry.clone() }
    }

    /// Why it was lost, if it was.
    pub(super) fn lost(&self) -> watch::Receiver<Option<String>> {
        self.lost.subscribe()
    }

    /// Gives up a hold whose connection is gone. Dropped first: nothing must still be held when it is
    /// told that it is lost.
    pub(super) fn lose(&self, held: &mut Option<HoldSessions>, why: &str) -> HoldError {
        drop(held.take());
        self.lost.send_replace(Some(format!("{} is gone: {why}", self.pool.server.address)));
        HoldError::Lost
    }

    /// Is the server still there? Not asked while something else is being done: that will tell.
    pub(super) async fn ping(&self) {
        let Ok(mut held) = self.held.try_lock() else { return };
        if let Some(connections) = &mut *held
            && let Err(error) = connections.ping(&self.pool).await
        {
            self.lose(&mut held, &error_message(&error));
        }
    }

    /// Frees everything. If a server does not confirm it, the hold counts as lost: nobody knows since when.
    pub(super) async fn release(&self) -> Result<(), HoldError> {
        let held = self.held.lock().await.take().ok_or(HoldError::Lost)?;
        self.end(held).await.map_err(|source| {
            let (server, why) = (&self.pool.server.address, error_message(&source));
            self.lost.send_replace(Some(format!("{server} has not confirmed its release: {why}")));
            HoldError::Lost
        })
    }

    /// Keeps the connections if they are known to be clean.
    async fn end(&self, held: HoldSessions) -> Result<(), sqlx::Error> {
        let HoldSessions { base, more, entry, permit, .. } = held;
        let mut ended = Ok(());
        for base in more.into_iter().map(HoldSession::Own).chain([base]) {
            if let Err(source) = base.end(&self.pool).await {
                ended = Err(source);
            }
        }
        // In this order: what is free is no longer listed when the guard's release returns.
        drop((entry, permit));
        ended
    }

    /// Ends it by COMMIT, with the work that was done in its transaction.
    pub(super) async fn commit(&self) -> Result<(), HoldError> {
        let mut held = self.held.lock().await.take().ok_or(HoldError::Lost)?;
        let server = self.pool.server.address.to_string();
        // What an extension has taken may be lost alone; then the work was not protected.
        if let Err(error) = held.ping_more().await {
            return Err(self.lose(&mut Some(held), &error_message(&error)));
        }
        let HoldSession::Own(base) = &mut held.base else {
            self.end_quietly(held).await;
            return Err(HoldError::Failed(SqlError::NoOwnTransaction.into()));
        };
        if held.failed {
            self.end_quietly(held).await;
            return Err(HoldError::Failed(SqlError::WorkFailed { server }.into()));
        }
        let commit = match base.dialect {
            Dialect::Postgres => "COMMIT AND CHAIN",
            _ => "COMMIT",
        };
        if let Err(source) = base.run(commit).await {
            return Err(HoldError::Failed(match LockFailure::of(&source) {
                LockFailure::ConnectionLost => SqlError::CommitUnknown { server, source }.into(),
                _ => {
                    // Refused, for example by a deferred constraint: then it was rolled back.
                    self.end_quietly(held).await;
                    ServerError::Failed { server, source }.into()
                }
            }));
        }
        // It is committed, whatever becomes of the connections.
        self.end_quietly(held).await;
        Ok(())
    }

    /// Frees everything where something else is to be told than how that went.
    async fn end_quietly(&self, held: HoldSessions) {
        if let Err(error) = self.end(held).await {
            let error = error_message(&error);
            tracing::debug!(error, "the connection of a hold was gone when it was freed");
        }
    }

    /// A number that is greater than that of everyone who held the same before.
    pub(super) async fn token(&self) -> Result<u64, HoldError> {
        let mut held = self.held.lock().await;
        let Some(connections) = &mut *held else { return Err(HoldError::Lost) };
        let token = match connections.draw_token().await {
            Ok(Some(token)) => token,
            Ok(None) => {
                let server = self.pool.server.address.to_string();
                let what = "it has given no fencing token";
                return Err(HoldError::Failed(SqlError::Unexpected { server, what }.into()));
            }
            Err(error) => return Err(self.lose(&mut held, &error_message(&error))),
        };
        drop(held);
        if self.scheme.dialect == Dialect::Postgres {
            self.pool.server.ask_on_the_side(postgres::FLUSH).await.map_err(Error::from)?;
        }
        Ok(token)
    }

    pub(super) fn failed(&self, source: sqlx::Error) -> Error {
        ServerError::Failed { server: self.pool.server.address.to_string(), source }.into()
    }
}
