//! The sessions of a client that locks on a server, and what watches over them.

use super::keep_alive::KeepAlive;
use super::options::{ClientSettings, LockServer, Scope};
use super::shared::SharedSession;
use crate::error::{Error, Result, SqlError};
use hierlock_engine::{Pool, ServerError, Session};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The sessions of a client that locks on a server.
#[derive(Debug)]
pub(super) struct LockPool {
    pub(super) server: Arc<Pool>,
    pub(super) settings: ClientSettings,
    pub(super) keep_alive: Mutex<KeepAlive>,
    /// The session that guards share, if they do.
    pub(super) shared: Option<Arc<SharedSession>>,
}

impl LockPool {
    pub(super) fn new(lock_server: &LockServer) -> Arc<Self> {
        let settings = lock_server.settings;
        let server = Pool::new(lock_server.address.clone(), settings.pool);
        let shared = (settings.scope == Scope::Session).then(Arc::default);
        Arc::new(Self { server, settings, keep_alive: Mutex::default(), shared })
    }

    /// Returns how long the server may take to answer what it need not wait for.
    pub(super) fn answer_limit(&self) -> Duration {
        self.settings.pool.answer_limit
    }

    /// Opens a session to lock with. Fails if the server only follows another.
    pub(super) async fn connect(&self) -> Result<Session> {
        let session = self.server.connect().await?;
        match session.why_read_only() {
            None => Ok(session),
            Some(why) => {
                session.close();
                Err(SqlError::Unusable { server: self.server.address.to_string(), why }.into())
            }
        }
    }

    /// Returns the idle session, if there is one, or a new one.
    pub(super) async fn idle_or_new(&self, idle: &mut Option<Session>) -> Result<Session> {
        match idle.take() {
            Some(session) => Ok(session),
            None => self.connect().await,
        }
    }

    /// Waits until what was abandoned has ended on the server, no longer than for any answer.
    pub(super) async fn wait_until_abandoned_end(&self) {
        let _ = timeout(self.answer_limit(), self.server.abandoned.wait_until_ended()).await;
    }

    /// Frees everything that a session holds, and keeps it if it is clean then.
    pub(super) async fn roll_back(&self, mut session: Session) -> Result<(), sqlx::Error> {
        session.roll_back().await?;
        self.server.give_back(session);
        Ok(())
    }

    /// Returns that a statement failed on this server.
    pub(super) fn failed(&self, source: sqlx::Error) -> Error {
        ServerError::Failed { server: self.server.address.to_string(), source }.into()
    }

    /// Returns that this server has done what it should not.
    pub(super) fn unexpected(&self, what: &'static str) -> Error {
        SqlError::Unexpected { server: self.server.address.to_string(), what }.into()
    }
}
