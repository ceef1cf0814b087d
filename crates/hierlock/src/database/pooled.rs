//! A connection of a database while it is in use.

use super::connection::DatabaseConnection;
#[cfg(feature = "_server")]
use super::{connection::ServerSession, program_server::ProgramSession};
use hierlock_engine::{ConnectionRef, ErrorClass};
#[cfg(feature = "_server")]
use hierlock_engine::{Permit, Pool, Session};
use sqlx::pool::PoolConnection;
#[cfg(feature = "_server")]
use std::sync::Arc;
use tokio::runtime::Handle;

/// A connection of a database, in use. It goes back to its pool only by [`give_back`](Self::give_back), by whoever knows
/// that it is clean. Dropped, it is closed, and ended on the server as well: the server may not have heard of it, and
/// would keep its transaction.
pub(crate) struct PooledConnection {
    /// None once it was given back.
    pub(super) connection: Option<LentConnection>,
    /// Who it is to the server of a program's pool.
    #[cfg(feature = "_server")]
    pub(super) program: Option<ProgramSession>,
    /// Where sqlx closes what is dropped: who drops it may be part of no runtime.
    pub(super) runtime: Handle,
}

/// Where a connection comes from.
pub(super) enum LentConnection {
    /// A session of a pool of ours. Its own `Drop` ends it on the server.
    #[cfg(feature = "_server")]
    Own { session: Session, pool: Arc<Pool>, _permit: Permit },
    #[cfg(feature = "mysql")]
    Mysql(PoolConnection<sqlx::MySql>),
    #[cfg(feature = "postgres")]
    Postgres(PoolConnection<sqlx::Postgres>),
    #[cfg(feature = "sqlite")]
    Sqlite(PoolConnection<sqlx::Sqlite>),
}

impl PooledConnection {
    pub(crate) fn connection(&mut self) -> DatabaseConnection<'_> {
        let connection = self.connection.as_mut().expect("it is there until it is given back");
        let connection = match connection {
            #[cfg(feature = "_server")]
            LentConnection::Own { session, pool, .. } => {
                let (dialect, id) = (session.dialect, session.id);
                let session_of_ours = ServerSession::Own { pool, dialect, id };
                return DatabaseConnection::of_session(
                    session.as_ref().connection,
                    session_of_ours,
                );
            }
            #[cfg(feature = "mysql")]
            LentConnection::Mysql(connection) => ConnectionRef::Mysql(connection),
            #[cfg(feature = "postgres")]
            LentConnection::Postgres(connection) => ConnectionRef::Postgres(connection),
            #[cfg(feature = "sqlite")]
            LentConnection::Sqlite(connection) => ConnectionRef::Sqlite(connection),
        };
        #[cfg(feature = "_server")]
        if let Some(program) = &mut self.program {
            return DatabaseConnection::of_session(connection, ServerSession::Program(program));
        }
        DatabaseConnection::of_caller(connection)
    }

    /// Ends a statement that was a transaction by itself, and gives the connection back if it is known to be clean.
    #[cfg_attr(not(feature = "mysql"), allow(unused_mut, reason = "only MySQL needs a COMMIT"))]
    pub(super) async fn end_statement<T>(
        mut self,
        done: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        if let Err(error) = &done
            && ErrorClass::of(error).is_connection_lost()
        {
            return done;
        }
        // `autocommit` may be off on a program's pool.
        #[cfg(feature = "mysql")]
        if matches!(self.connection, Some(LentConnection::Mysql(_))) {
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            self.connection().run(end).await?;
        }
        self.give_back();
        done
    }

    /// Gives it back to its pool: it is in no transaction, and no statement of it is under way.
    pub(super) fn give_back(mut self) {
        match self.connection.take() {
            #[cfg(feature = "_server")]
            Some(LentConnection::Own { mut session, pool, .. }) => {
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
        let Some(connection) = self.connection.take() else { return };
        let _entered = self.runtime.enter();
        match connection {
            #[cfg(feature = "mysql")]
            LentConnection::Mysql(mut connection) => connection.close_on_drop(),
            #[cfg(feature = "postgres")]
            LentConnection::Postgres(mut connection) => connection.close_on_drop(),
            #[cfg(feature = "sqlite")]
            LentConnection::Sqlite(mut connection) => connection.close_on_drop(),
            #[cfg(feature = "_server")]
            LentConnection::Own { .. } => {}
        }
        #[cfg(feature = "_server")]
        if let Some(ProgramSession { server, id }) = &self.program {
            server.abandon(*id);
        }
    }
}
