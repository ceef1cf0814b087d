//! Where a server is, and who we are to it.

use crate::connection::ConnectionRef;
use crate::{Dialect, error_message};
use sqlx::ConnectOptions as _;
use std::fmt;
use url::Url;

/// Where a server is, and who we are to it. `Display` and `Debug` show it without the password, as `mysql at HOST:PORT`.
#[derive(Clone)]
pub enum ServerAddress {
    /// MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(Dialect, Box<sqlx::mysql::MySqlConnectOptions>),
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::postgres::PgConnectOptions>),
}

/// A URL that does not lead to a server. It may hold a password, so only the reason is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's URL cannot be read: {0}")]
pub struct AddressError(pub String);

/// An open connection of ours.
pub(crate) enum Connection {
    #[cfg(feature = "mysql")]
    Mysql(Box<sqlx::MySqlConnection>),
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::PgConnection>),
}

impl Connection {
    pub(crate) fn as_ref(&mut self) -> ConnectionRef<'_> {
        match self {
            #[cfg(feature = "mysql")]
            Connection::Mysql(connection) => ConnectionRef::Mysql(connection),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => ConnectionRef::Postgres(connection),
        }
    }
}

impl ServerAddress {
    /// Reads a URL whose parameters are all the driver's.
    ///
    /// # Errors
    /// [`AddressError`], also if the driver of the URL is not compiled in.
    pub fn from_url(url: &Url) -> Result<Self, AddressError> {
        let dialect = Dialect::from_scheme(url.scheme())
            .ok_or_else(|| AddressError(format!("`{}:` is no database server", url.scheme())))?;
        #[cfg_attr(
            all(feature = "mysql", feature = "postgres"),
            expect(unused_variables, reason = "every driver is there")
        )]
        let not_compiled = |feature: &str| {
            AddressError(format!("{dialect} needs the feature `{feature}` of hierlock"))
        };
        match dialect {
            #[cfg(feature = "mysql")]
            Dialect::Mysql | Dialect::Mariadb => {
                let options = sqlx::mysql::MySqlConnectOptions::from_url(url);
                Ok(Self::mysql(dialect, options.map_err(unreadable)?))
            }
            #[cfg(not(feature = "mysql"))]
            Dialect::Mysql | Dialect::Mariadb => Err(not_compiled("mysql")),
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                let options = sqlx::postgres::PgConnectOptions::from_url(url);
                Ok(Self::postgres(options.map_err(unreadable)?))
            }
            #[cfg(not(feature = "postgres"))]
            Dialect::Postgres => Err(not_compiled("postgres")),
        }
    }

    /// Takes the options of the driver, which then logs no statements.
    #[cfg(feature = "mysql")]
    pub fn mysql(dialect: Dialect, options: sqlx::mysql::MySqlConnectOptions) -> Self {
        ServerAddress::Mysql(dialect, Box::new(options.disable_statement_logging()))
    }

    /// Takes the options of the driver, which then logs no statements.
    #[cfg(feature = "postgres")]
    pub fn postgres(options: sqlx::postgres::PgConnectOptions) -> Self {
        let options = options.application_name("hierlock").disable_statement_logging();
        ServerAddress::Postgres(Box::new(options))
    }

    /// Returns what the server is said to be. A URL may call MariaDB `mysql:`, and the other way round.
    pub fn dialect(&self) -> Dialect {
        match self {
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(dialect, _) => *dialect,
            #[cfg(feature = "postgres")]
            ServerAddress::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection, sqlx::Error> {
        match self {
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(_, options) => {
                Ok(Connection::Mysql(Box::new(options.connect().await?)))
            }
            #[cfg(feature = "postgres")]
            ServerAddress::Postgres(options) => {
                Ok(Connection::Postgres(Box::new(options.connect().await?)))
            }
        }
    }
}

fn unreadable(error: sqlx::Error) -> AddressError {
    AddressError(error_message(&error))
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerAddress({self})")
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (socket, host, port) = match self {
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(_, options) => {
                (options.get_socket(), options.get_host(), options.get_port())
            }
            #[cfg(feature = "postgres")]
            ServerAddress::Postgres(options) => {
                (options.get_socket(), options.get_host(), options.get_port())
            }
        };
        let name = self.dialect();
        match socket {
            Some(socket) => write!(f, "{name} at {}", socket.display()),
            None => write!(f, "{name} at {host}:{port}"),
        }
    }
}
