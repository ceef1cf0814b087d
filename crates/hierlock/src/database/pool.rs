//! The connection pool of a database, and a connection in use.

#[cfg(feature = "_server")]
use super::server::DatabaseServer;
use super::{DatabaseConnection, Driver, ServerSession};
use hierlock_engine::{ConnectionRef, ErrorClass};
#[cfg(feature = "_server")]
use hierlock_engine::{Permit, Pool, Session};
use sqlx::pool::PoolConnection;
#[cfg(feature = "_server")]
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

#[cfg(feature = "_server")]
const CONNECTION_WAIT: Duration = Duration::from_secs(30);

/// How long a writer on SQLite waits for another writer before it is retried.
#[cfg(feature = "sqlite")]
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection of SQLite that was idle for longer is pinged before it is used again.
#[cfg(feature = "sqlite")]
const MAX_IDLE_WITHOUT_PING: Duration = Duration::from_secs(1);

/// Hierlock's own sessions, with the settings that it relies on; the program's pool, with its server; or SQLite.
#[derive(Clone)]
pub(super) enum DatabasePool {
    #[cfg(feature = "_server")]
    Own(Arc<DatabaseServer>),
    #[cfg(feature = "mysql")]
    Mysql(sqlx::MySqlPool, Arc<DatabaseServer>),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool, Arc<DatabaseServer>),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

/// A connection of a database, in use. It returns to its pool only by [`give_back`](Self::give_back), which requires that
/// it is clean. Dropping it closes the connection and ends the session on the server, which may not notice the close and
/// would keep the transaction open.
pub(crate) struct PooledConnection {
    /// None after it was given back.
    connection: Option<LentConnection>,
    /// None on SQLite.
    session: Option<ServerSession>,
    /// The runtime on which sqlx closes a dropped connection: the dropping thread may belong to no runtime.
    runtime: Handle,
}

enum LentConnection {
    /// `Drop` of the session ends it on the server.
    #[cfg(feature = "_server")]
    Own { session: Session, pool: Arc<Pool>, _permit: Permit },
    #[cfg(feature = "mysql")]
    Mysql(PoolConnection<sqlx::MySql>),
    #[cfg(feature = "postgres")]
    Postgres(PoolConnection<sqlx::Postgres>),
    #[cfg(feature = "sqlite")]
    Sqlite(PoolConnection<sqlx::Sqlite>),
}

impl DatabasePool {
    pub(super) fn driver(&self) -> Driver {
        match self {
            #[cfg(feature = "_server")]
            DatabasePool::Own(server) => server.pool.address.dialect().driver(),
            #[cfg(feature = "mysql")]
            DatabasePool::Mysql(..) => Driver::Mysql,
            #[cfg(feature = "postgres")]
            DatabasePool::Postgres(..) => Driver::Postgres,
            #[cfg(feature = "sqlite")]
            DatabasePool::Sqlite(_) => Driver::Sqlite,
        }
    }

    pub(super) async fn connection(&self) -> sqlx::Result<PooledConnection> {
        let (connection, session) = match self {
            #[cfg(feature = "_server")]
            DatabasePool::Own(server) => {
                let pool = server.pool.clone();
                let permit = tokio::time::timeout(CONNECTION_WAIT, pool.permit()).await;
                let permit = permit.map_err(|_| sqlx::Error::PoolTimedOut)?;
                let _permit = permit.ok_or(sqlx::Error::PoolClosed)?;
                let session = pool.session().await.map_err(|error| error.into_driver_error())?;
                let id = Some(session.id);
                (LentConnection::Own { session, pool, _permit }, server.session(id))
            }
            #[cfg(feature = "mysql")]
            DatabasePool::Mysql(pool, server) => {
                (LentConnection::Mysql(pool.acquire().await?), server.session(None))
            }
            #[cfg(feature = "postgres")]
            DatabasePool::Postgres(pool, server) => {
                (LentConnection::Postgres(pool.acquire().await?), server.session(None))
            }
            #[cfg(feature = "sqlite")]
            DatabasePool::Sqlite(pool) => (LentConnection::Sqlite(pool.acquire().await?), None),
        };
        let (connection, runtime) = (Some(connection), Handle::current());
        Ok(PooledConnection { connection, session, runtime })
    }

    /// Closes all connections after their current statements. A connection that takes too long ends when the server notices
    /// the close.
    pub(super) async fn close(&self) {
        match self {
            #[cfg(feature = "_server")]
            DatabasePool::Own(server) => {
                server.pool.shut_down(super::CLOSE_LIMIT).await;
                let _ = server.pool.close(super::CLOSE_LIMIT).await;
            }
            #[cfg(feature = "mysql")]
            DatabasePool::Mysql(pool, server) => {
                pool.close().await;
                let _ = server.pool.close(super::CLOSE_LIMIT).await;
            }
            #[cfg(feature = "postgres")]
            DatabasePool::Postgres(pool, server) => {
                pool.close().await;
                let _ = server.pool.close(super::CLOSE_LIMIT).await;
            }
            #[cfg(feature = "sqlite")]
            DatabasePool::Sqlite(pool) => pool.close().await,
        }
    }
}

impl PooledConnection {
    pub(crate) fn connection(&mut self) -> DatabaseConnection<'_> {
        let lent = self.connection.as_mut().expect("the connection was not given back yet");
        let connection = match lent {
            #[cfg(feature = "_server")]
            LentConnection::Own { session, .. } => session.as_ref().connection,
            #[cfg(feature = "mysql")]
            LentConnection::Mysql(connection) => ConnectionRef::Mysql(connection),
            #[cfg(feature = "postgres")]
            LentConnection::Postgres(connection) => ConnectionRef::Postgres(connection),
            #[cfg(feature = "sqlite")]
            LentConnection::Sqlite(connection) => ConnectionRef::Sqlite(connection),
        };
        DatabaseConnection { connection, session: self.session.as_mut() }
    }

    /// Ends a statement that is its own transaction, and gives the connection back if it is clean.
    #[cfg_attr(not(feature = "mysql"), allow(unused_mut, reason = "only MySQL needs a COMMIT"))]
    pub(super) async fn end_statement<T>(mut self, done: sqlx::Result<T>) -> sqlx::Result<T> {
        if let Err(error) = &done
            && ErrorClass::of(error).is_connection_lost()
        {
            return done;
        }
        // `autocommit` may be off on the program's pool.
        #[cfg(feature = "mysql")]
        if matches!(self.connection, Some(LentConnection::Mysql(..))) {
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            self.connection().run(end).await?;
        }
        self.give_back();
        done
    }

    /// Returns the connection to its pool. It must not be in a transaction or run a statement.
    pub(super) fn give_back(mut self) {
        match self.connection.take() {
            #[cfg(feature = "_server")]
            Some(LentConnection::Own { mut session, pool, .. }) => {
                session.mark_clean();
                pool.give_back(session);
            }
            // A connection of sqlx returns to its pool on drop.
            _ => {}
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let _entered = self.runtime.enter();
        match connection {
            #[cfg(feature = "_server")]
            LentConnection::Own { .. } => return,
            #[cfg(feature = "mysql")]
            LentConnection::Mysql(mut connection) => connection.close_on_drop(),
            #[cfg(feature = "postgres")]
            LentConnection::Postgres(mut connection) => connection.close_on_drop(),
            #[cfg(feature = "sqlite")]
            LentConnection::Sqlite(mut connection) => connection.close_on_drop(),
        }
        #[cfg(feature = "_server")]
        if let Some(session) = self.session.take() {
            session.abandon();
        }
    }
}

/// Opens a SQLite database in WAL mode, in which readers do not wait for the writer.
#[cfg(feature = "sqlite")]
pub(super) async fn open(url: &str) -> crate::Result<sqlx::SqlitePool> {
    use crate::error::UrlError;
    use hierlock_engine::{ServerError, error_message};
    use sqlx::Connection as _;
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
    // The URL may contain a password by mistake, so the message contains only the reason.
    let unreadable = |error: sqlx::Error| UrlError::Server { why: error_message(&error) };
    let options: SqliteConnectOptions = url.parse().map_err(unreadable)?;
    let server = options.get_filename().display().to_string();
    let options = options
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = sqlx::pool::PoolOptions::new().test_before_acquire(false).before_acquire(
        |connection: &mut sqlx::SqliteConnection, meta| {
            Box::pin(async move {
                Ok(meta.idle_for < MAX_IDLE_WITHOUT_PING || connection.ping().await.is_ok())
            })
        },
    );
    let opened = pool.connect_with(options).await;
    opened.map_err(|source| ServerError::Connect { server, source }.into())
}
