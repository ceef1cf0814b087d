//! The server of a pool that the program brings: who its connections are there, and connections of our own to ask about
//! them and to end them.

use hierlock_engine::{Dialect, Pool, PoolSettings, Purpose, ServerAddress, SessionId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The server of a program's pool.
#[derive(Debug)]
pub(super) struct ProgramServer {
    /// Only for the control session: to ask about sessions, and to end them.
    pub(super) pool: Arc<Pool>,
    /// MySQL stands for MariaDB too: sessions are asked about in the same way.
    pub(super) dialect: Dialect,
    /// By their number, so that each connection is asked only once who it is.
    sessions: Mutex<HashMap<i64, SessionId>>,
}

/// A connection of a program's pool, as its server knows it.
#[derive(Debug)]
pub(super) struct ProgramSession {
    pub(super) server: Arc<ProgramServer>,
    /// Learned when a transaction begins.
    pub(super) id: Option<SessionId>,
}

impl ProgramServer {
    pub(super) fn new(address: ServerAddress) -> Arc<Self> {
        let settings = PoolSettings { purpose: Purpose::Control, ..PoolSettings::default() };
        let dialect = address.dialect();
        let pool = Pool::new(address, settings);
        Arc::new(Self { pool, dialect, sessions: Mutex::default() })
    }

    pub(super) fn session(&self, pid: i64) -> Option<SessionId> {
        self.sessions.lock().get(&pid).copied()
    }

    pub(super) fn learn(&self, id: SessionId) {
        self.sessions.lock().insert(id.pid, id);
    }

    /// Has the session of a connection ended that was given up. All others are forgotten: the server may have been
    /// started again, and then gives their numbers to others.
    pub(super) fn abandon(&self, id: Option<SessionId>) {
        self.sessions.lock().clear();
        if let Some(id) = id {
            self.pool.abandon(self.dialect, id);
        }
    }
}
