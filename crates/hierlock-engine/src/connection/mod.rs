//! Connections, owned and borrowed.

mod connection_ref;
#[cfg(feature = "postgres")]
mod listening;

pub use connection_ref::{ConnectionRef, ExecuteResult, PacketResult, StatementResult};
#[cfg(feature = "postgres")]
pub use listening::ListeningConnection;

/// An open connection without session settings. A [`Session`](crate::Session) has them.
#[cfg(feature = "_server")]
#[derive(Debug)]
pub enum Connection {
    /// To MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(Box<sqlx::MySqlConnection>),
    /// To PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::PgConnection>),
}

#[cfg(feature = "_server")]
impl Connection {
    /// Borrows the connection.
    pub fn as_ref(&mut self) -> ConnectionRef<'_> {
        match self {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => ConnectionRef::Mysql(connection),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => ConnectionRef::Postgres(connection),
        }
    }

    /// Closes the connection. Fails if the server cannot be reached.
    pub async fn close(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => sqlx::Connection::close(*connection).await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => sqlx::Connection::close(*connection).await,
        }
    }
}
