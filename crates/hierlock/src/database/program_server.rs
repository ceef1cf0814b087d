//! The server of a pool that the program brings: who its connections are there, and connections of our own to ask about
//! them and to end them.

use hierlock_engine::{Pool, PoolSettings, Purpose, ServerAddress, SessionId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The server of a program's pool. That of MySQL may be MariaDB: sessions are asked about in the same way.
#[derive(Debug)]
pub(super) struct ProgramServer {
    /// Only for the control session: to ask about sessions, and to end them.
    pub(super) pool: Arc<Pool>,
    /// By their number, so that each connection is asked only once who it is.
    pub(super) sessions: Mutex<HashMap<i64, SessionId>>,
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
        Arc::new(Self { pool: Pool::new(address, settings), sessions: Mutex::default() })
    }

    /// A session that is not known yet.
    pub(super) fn session(self: &Arc<Self>) -> ProgramSession {
        ProgramSession { server: self.clone(), id: None }
    }
}

impl ProgramSession {
    /// Has the session ended on the server. All others are forgotten: the server may have been started again, and then
    /// gives their numbers to others.
    pub(super) fn abandon(self) {
        let Self { server, id } = self;
        server.sessions.lock().clear();
        if let Some(id) = id {
            server.pool.abandon(server.pool.address.dialect(), id);
        }
    }
}
