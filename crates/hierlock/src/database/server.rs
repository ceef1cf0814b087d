//! The server of a database, and the sessions of its connections there.

use crate::sql::ProgramPool;
use hierlock_engine::{ConnectionRef, Pool, PoolSettings, Purpose, SessionId, SessionRef};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The server of a database.
#[derive(Debug)]
pub(super) struct DatabaseServer {
    /// For the program's pool it has only the control session, which asks about sessions and ends them. Its dialect is then
    /// MySQL for MariaDB too.
    pub(super) pool: Arc<Pool>,
    /// The session ids of the program's pool by process id, so that each connection is asked only once.
    sessions: Mutex<HashMap<i64, SessionId>>,
}

/// The session of a connection on its server.
#[derive(Debug)]
pub(super) struct ServerSession {
    pub(super) server: Arc<DatabaseServer>,
    /// For the program's pool it is known after the first transaction has begun.
    pub(super) id: Option<SessionId>,
}

impl DatabaseServer {
    pub(super) fn new(pool: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { pool, sessions: Mutex::default() })
    }

    pub(super) fn of_program(pool: &impl ProgramPool) -> Arc<Self> {
        let settings = PoolSettings { purpose: Purpose::Control, ..PoolSettings::default() };
        Self::new(Pool::new(pool.address(), settings))
    }

    pub(super) fn session(self: &Arc<Self>, id: Option<SessionId>) -> Option<ServerSession> {
        Some(ServerSession { server: self.clone(), id })
    }
}

impl ServerSession {
    /// Sets the id of a session of the program's pool. The server is asked only once for each connection.
    pub(super) async fn identify(
        &mut self,
        connection: ConnectionRef<'_>,
        pid: i64,
    ) -> sqlx::Result<()> {
        let Self { server, id } = self;
        *id = server.sessions.lock().get(&pid).copied();
        if id.is_none() {
            let Pool { address, settings, .. } = &*server.pool;
            let mut session =
                SessionRef::of_caller(connection, address.dialect(), settings.answer_limit);
            let session_id = session.query_id().await?;
            server.sessions.lock().insert(session_id.pid, session_id);
            *id = Some(session_id);
        }
        Ok(())
    }

    /// Ends the session on the server and forgets the ids of all others: the server may have restarted, and would give
    /// their process ids to other sessions.
    pub(super) fn abandon(self) {
        let Self { server, id } = self;
        server.sessions.lock().clear();
        if let Some(id) = id {
            server.pool.abandon(id);
        }
    }
}
