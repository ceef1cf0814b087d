//! The sessions of a client that locks on a server.

use super::Contention;
use super::keep_alive::KeepAlive;
use super::options::{ClientSettings, LockServer, Scope};
use super::shared_session::SharedSession;
use crate::error::{Error, Result, SqlError};
use hierlock_engine::{ErrorClass, Pool, ServerError, Session};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Fails if the connection is lost. Otherwise returns the answer of the server, which may be an error.
pub(super) fn fail_if_lost<T>(result: sqlx::Result<T>) -> sqlx::Result<sqlx::Result<T>> {
    match result {
        Err(error) if ErrorClass::of(&error).is_connection_lost() => Err(error),
        answer => Ok(answer),
    }
}

/// The sessions of a client that locks on a server.
#[derive(Debug)]
pub(super) struct LockPool {
    pub(super) server: Arc<Pool>,
    pub(super) settings: ClientSettings,
    pub(super) keep_alive: Mutex<KeepAlive>,
    /// The session that guards share, with `scope=session`.
    pub(super) shared: Option<Arc<SharedSession>>,
    pub(super) contention: Mutex<Contention>,
    /// Whether holds write their labels to a table. `None` until the first ping of a hold has queried the server.
    pub(super) writes_label_rows: Mutex<Option<bool>>,
}

impl LockPool {
    pub(super) fn new(lock_server: &LockServer) -> Arc<Self> {
        let settings = lock_server.settings.clone();
        let server = Pool::new(lock_server.address.clone(), settings.pool.clone());
        let shared = (settings.scope == Scope::Session).then(Arc::default);
        let (keep_alive, contention, writes_label_rows) = Default::default();
        Arc::new(Self { server, settings, keep_alive, shared, contention, writes_label_rows })
    }

    /// Returns the limit for answers of the server to statements that wait for no lock.
    pub(super) fn answer_limit(&self) -> Duration {
        self.settings.pool.answer_limit
    }

    /// Opens a session that can lock. Fails if the server is read-only, such as a replica.
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

    /// Takes the idle session if there is one, and opens a new one otherwise.
    pub(super) async fn idle_or_new(&self, idle: &mut Option<Session>) -> Result<Session> {
        match idle.take() {
            Some(session) => Ok(session),
            None => self.connect().await,
        }
    }

    /// Waits until dropped sessions have ended on the server, at most for the answer limit.
    pub(super) async fn wait_until_abandoned_end(&self) {
        let _ = timeout(self.answer_limit(), self.server.abandoned.wait_until_ended()).await;
    }

    /// Releases all locks of a session, and returns it to the pool.
    pub(super) async fn roll_back(&self, mut session: Session) -> sqlx::Result<()> {
        session.roll_back().await?;
        self.server.give_back(session);
        Ok(())
    }

    /// Returns the error for a statement that failed on this server.
    pub(super) fn failed(&self, source: sqlx::Error) -> Error {
        ServerError::Failed { server: self.server.address.to_string(), source }.into()
    }

    /// Returns the error for unexpected behaviour of this server.
    pub(super) fn unexpected(&self, what: &'static str) -> Error {
        SqlError::Unexpected { server: self.server.address.to_string(), what }.into()
    }
}
