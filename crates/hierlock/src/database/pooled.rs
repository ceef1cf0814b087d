//! A connection of a database while it is in use.

use super::connection::{DatabaseConnection, ServerSession};
use super::program_server::ProgramServer;
use hierlock_engine::{ConnectionRef, Permit, Pool, Session, SessionId};
use sqlx::pool::PoolConnection;
use sqlx::{MySql, Postgres};
use std::sync::Arc;

/// A connection of a database, in use. It goes back to its pool only by [`give_back`](Self::give_back), by whoever knows
/// that it is clean. Dropped, it is closed, and ended on the server as well: the server may not have heard of it, and
/// would keep its transaction.
pub(super) struct PooledConnection(Option<Inner>);

enum Inner {
    /// A session of a pool of ours. Its own `Drop` ends it on the server.
    Own {
        session: Session,
        pool: Arc<Pool>,
        _permit: Permit,
    },
    Mysql(OfProgram<PoolConnection<MySql>>),
    Postgres(OfProgram<PoolConnection<Postgres>>),
    #[cfg(feature = "sqlite")]
    Sqlite(PoolConnection<sqlx::Sqlite>),
}

/// A connection of a program's pool.
struct OfProgram<C> {
    connection: C,
    server: Arc<ProgramServer>,
    /// Who it is to the server, once that is known.
    id: Option<SessionId>,
}

impl PooledConnection {
    pub(super) fn own(session: Session, pool: Arc<Pool>, permit: Permit) -> Self {
        Self(Some(Inner::Own { session, pool, _permit: permit }))
    }

    pub(super) fn mysql(connection: PoolConnection<MySql>, server: Arc<ProgramServer>) -> Self {
        Self(Some(Inner::Mysql(OfProgram { connection, server, id: None })))
    }

    pub(super) fn postgres(
        connection: PoolConnection<Postgres>,
        server: Arc<ProgramServer>,
    ) -> Self {
        Self(Some(Inner::Postgres(OfProgram { connection, server, id: None })))
    }

    #[cfg(feature = "sqlite")]
    pub(super) fn sqlite(connection: PoolConnection<sqlx::Sqlite>) -> Self {
        Self(Some(Inner::Sqlite(connection)))
    }

    pub(super) fn connection(&mut self) -> DatabaseConnection<'_> {
        let inner = self.0.as_mut().expect("it is there until it is given back or dropped");
        let program = |server, id| Some(ServerSession::Program { server, id });
        match inner {
            Inner::Own { session, pool, .. } => {
                let (dialect, id) = (session.dialect, session.id);
                let connection = session.as_ref().connection;
                DatabaseConnection::new(connection, Some(ServerSession::Own { pool, dialect, id }))
            }
            Inner::Mysql(OfProgram { connection, server, id }) => {
                DatabaseConnection::new(ConnectionRef::Mysql(connection), program(server, id))
            }
            Inner::Postgres(OfProgram { connection, server, id }) => {
                DatabaseConnection::new(ConnectionRef::Postgres(connection), program(server, id))
            }
            #[cfg(feature = "sqlite")]
            Inner::Sqlite(connection) => {
                DatabaseConnection::new(ConnectionRef::Sqlite(connection), None)
            }
        }
    }

    /// Gives it back to its pool: it is in no transaction, and no statement of it is under way.
    pub(super) fn give_back(mut self) {
        if let Some(Inner::Own { session, pool, .. }) = self.0.take() {
            pool.give_back(session);
        }
        // Those of sqlx go back when they are dropped.
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        match &mut self.0 {
            Some(Inner::Mysql(of_program)) => {
                of_program.connection.close_on_drop();
                of_program.server.abandon(of_program.id);
            }
            Some(Inner::Postgres(of_program)) => {
                of_program.connection.close_on_drop();
                of_program.server.abandon(of_program.id);
            }
            #[cfg(feature = "sqlite")]
            Some(Inner::Sqlite(connection)) => connection.close_on_drop(),
            Some(Inner::Own { .. }) | None => {}
        }
    }
}
