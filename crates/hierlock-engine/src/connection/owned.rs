//! An open connection of ours to a server.

use super::ConnectionRef;
use sqlx::Connection as _;

/// An open connection, as the server and the driver leave it: it is not set up for anything, and nobody ends it on the
/// server when it is dropped. A [`Session`](crate::Session) is more.
#[derive(Debug)]
pub enum Connection {
    /// To MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(Box<sqlx::MySqlConnection>),
    /// To PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::PgConnection>),
}

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

    /// Tells the server that the connection is over.
    ///
    /// # Errors
    /// If the server is gone.
    pub async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => connection.close().await,
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => connection.close().await,
        }
    }
}
