//! A connection of a database while it is in use.

use super::connection::DatabaseConnection;
#[cfg(feature = "_server")]
use super::{connection::ServerSession, program_server::ProgramServer};
use hierlock_engine::ConnectionRef;
#[cfg(feature = "_server")]
use hierlock_engine::{Permit, Pool, Session, SessionId};
use sqlx::pool::PoolConnection;
#[cfg(feature = "_server")]
use std::sync::Arc;

/// A connection of a database, in use. It goes back to its pool only by [`give_back`](Self::give_back), by whoever knows
/// that it is clean. Dropped, it is closed, and ended on the server as well: the server may not have heard of it, and
/// would keep its transaction.
pub(super) struct PooledConnection(Option<Inner>);

enum Inner {
    /// A session of a pool of ours. Its own `Drop` ends it on the server.
    #[cfg(feature = "_server")]
    Own { session: Session, pool: Arc<Pool>, _permit: Permit },
    #[cfg(feature = "mysql")]
    Mysql(OfProgram<PoolConnection<sqlx::MySql>>),
    #[cfg(feature = "postgres")]
    Postgres(OfProgram<PoolConnection<sqlx::Postgres>>),
    #[cfg(feature = "sqlite")]
    Sqlite(PoolConnection<sqlx::Sqlite>),
}

/// A connection of a program's pool.
#[cfg(feature = "_server")]
struct OfProgram<C> {
    connection: C,
    server: Arc<ProgramServer>,
    /// Who it is to the server, once that is known.
    id: Option<SessionId>,
}

impl PooledConnection {
    #[cfg(feature = "_server")]
    pub(super) fn own(session: Session, pool: Arc<Pool>, permit: Permit) -> Self {
        Self(Some(Inner::Own { session, pool, _permit: permit }))
    }

    #[cfg(feature = "mysql")]
    pub(super) fn mysql(
        connection: PoolConnection<sqlx::MySql>,
        server: Arc<ProgramServer>,
    ) -> Self {
        Self(Some(Inner::Mysql(OfProgram { connection, server, id: None })))
    }

    #[cfg(feature = "postgres")]
    pub(super) fn postgres(
        connection: PoolConnection<sqlx::Postgres>,
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
        #[cfg(feature = "_server")]
        let program = |server, id| Some(ServerSession::Program { server, id });
        match inner {
            #[cfg(feature = "_server")]
            Inner::Own { session, pool, .. } => {
                let (dialect, id) = (session.dialect, session.id);
                let connection = session.as_ref().connection;
                DatabaseConnection::new(connection, Some(ServerSession::Own { pool, dialect, id }))
            }
            #[cfg(feature = "mysql")]
            Inner::Mysql(OfProgram { connection, server, id }) => {
                DatabaseConnection::new(ConnectionRef::Mysql(connection), program(server, id))
            }
            #[cfg(feature = "postgres")]
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
        match self.0.take() {
            #[cfg(feature = "_server")]
            Some(Inner::Own { mut session, pool, .. }) => {
                session.mark_clean();
                pool.give_back(session);
            }
            // Those of sqlx go back when they are dropped.
            _ => {}
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        match &mut self.0 {
            #[cfg(feature = "mysql")]
            Some(Inner::Mysql(of_program)) => {
                of_program.connection.close_on_drop();
                of_program.server.abandon(of_program.id);
            }
            #[cfg(feature = "postgres")]
            Some(Inner::Postgres(of_program)) => {
                of_program.connection.close_on_drop();
                of_program.server.abandon(of_program.id);
            }
            #[cfg(feature = "sqlite")]
            Some(Inner::Sqlite(connection)) => connection.close_on_drop(),
            #[cfg(feature = "_server")]
            Some(Inner::Own { .. }) => {}
            None => {}
        }
    }
}
