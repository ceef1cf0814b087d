//! Connections: those that we own, and those that are lent.

mod connection_ref;
#[cfg(feature = "postgres")]
mod listening;

pub use connection_ref::{ConnectionRef, ExecuteResult, PacketResult, StatementResult};
#[cfg(feature = "postgres")]
pub use listening::ListeningConnection;

/// An open connection of ours, which is not set up for anything. A [`Session`](crate::Session) is more.
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
    /// Lends it for some statements.
    pub fn as_ref(&mut self) -> ConnectionRef<'_> {
        match self {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => ConnectionRef::Mysql(connection),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => ConnectionRef::Postgres(connection),
        }
    }

    /// Tells the server that the connection is over. Fails if the server is gone.
    pub async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => sqlx::Connection::close(*connection).await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => sqlx::Connection::close(*connection).await,
        }
    }
}
