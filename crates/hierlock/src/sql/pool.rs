//! The sessions of a client that locks on a server, and what watches over them.

use super::keep_alive::KeepAlive;
use super::place::{Place, Scope, Settings};
use super::shared::Shared;
use super::{Dialect, Scheme, mariadb, mysql, postgres};
use crate::error::{Result, SqlError};
use hierlock_engine::{Pool, PoolSettings, Purpose, Session, SessionSettings};
use std::sync::Arc;

/// The sessions of a client that locks on a server.
#[derive(Debug)]
pub(super) struct LockPool {
    pub(super) server: Arc<Pool>,
    pub(super) settings: Settings,
    pub(super) keep_alive: KeepAlive,
    /// The session that guards share, if they do.
    pub(super) shared: Option<Arc<Shared>>,
}

impl LockPool {
    pub(super) fn new(place: &Place) -> Arc<Self> {
        let Place { address, settings, .. } = place;
        let server = Pool::new(address.clone(), settings.pool());
        let shared = (settings.scope == Scope::Session).then(Arc::default);
        Arc::new(Self { server, settings: *settings, keep_alive: KeepAlive::default(), shared })
    }

    /// Opens a session to lock with. Fails if the server only follows another.
    pub(super) async fn connect(&self) -> Result<Session> {
        let session = self.server.connect().await?;
        match session.why_read_only() {
            None => Ok(session),
            Some(why) => {
                session.close();
                Err(SqlError::Unfit { server: self.server.address.to_string(), why }.into())
            }
        }
    }

    /// Returns the name of the slot that a session waits for, if it does.
    pub(super) async fn waits_for(&self, scheme: &Scheme, pid: i64) -> Result<Option<String>> {
        let question = match scheme.dialect {
            Dialect::Mysql => mysql::waits_for(pid),
            Dialect::Mariadb => mariadb::STATUS.to_owned(),
            _ => postgres::waits_for(scheme, pid),
        };
        let rows = self.server.ask_on_the_side(&question).await?;
        let answer = rows.first().and_then(|row| match scheme.dialect {
            Dialect::Mysql | Dialect::Mariadb => row.last(),
            _ => row.first(),
        });
        Ok(answer.and_then(|answer| match scheme.dialect {
            Dialect::Mysql => Some(mysql::slot_name(answer)),
            Dialect::Mariadb => mariadb::slot_name(answer, pid),
            _ => Some(answer.clone()),
        }))
    }
}

impl Settings {
    /// How the sessions of such a client are opened.
    fn pool(&self) -> PoolSettings {
        PoolSettings {
            connections: self.connections,
            answer_limit: self.answer_limit,
            purpose: Purpose::Lock,
            session: SessionSettings {
                client_silence: self.client_silence,
                lock_wait_timeout: self.lock_wait_timeout,
            },
        }
    }
}
