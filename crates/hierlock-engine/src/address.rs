//! The address of a server and the account to log in with.

use crate::connection::Connection;
#[cfg(feature = "postgres")]
use crate::connection::ListeningConnection;
use crate::{Dialect, error_message};
use sqlx::ConnectOptions as _;
use std::fmt;
#[cfg(feature = "postgres")]
use std::time::Duration;
use url::Url;

/// The address of a server and the account to log in with. `Display` and `Debug` print `mysql at HOST:PORT`, without
/// the password.
#[derive(Clone)]
pub enum ServerAddress {
    /// MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(Dialect, Box<sqlx::mysql::MySqlConnectOptions>),
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::postgres::PgConnectOptions>),
}

/// The error of an invalid server URL. The URL may contain a password, so the message contains only the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's URL cannot be read: {0}")]
pub struct AddressError(pub String);

/// Returns the address with changed driver options.
macro_rules! with_options {
    ($address:expr, $options:ident, mysql: $mysql:expr, postgres: $postgres:expr) => {
        match $address {
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(dialect, $options) => {
                ServerAddress::Mysql(dialect, Box::new($mysql))
            }
            #[cfg(feature = "postgres")]
            ServerAddress::Postgres($options) => ServerAddress::Postgres(Box::new($postgres)),
        }
    };
}

impl ServerAddress {
    /// Parses a URL that has only parameters of the driver. Fails if the driver of the URL is not compiled in.
    pub fn from_url(url: &Url) -> Result<Self, AddressError> {
        let dialect = Dialect::from_scheme(url.scheme())
            .ok_or_else(|| AddressError(format!("`{}:` is not a database server", url.scheme())))?;
        Self::from_url_as(dialect, url)
    }

    /// Parses a URL for a server of this dialect. The scheme is ignored.
    pub fn from_url_as(dialect: Dialect, url: &Url) -> Result<Self, AddressError> {
        let unreadable = |error: sqlx::Error| AddressError(error_message(&error));
        match dialect {
            #[cfg(feature = "mysql")]
            Dialect::Mysql | Dialect::Mariadb => {
                let options = sqlx::mysql::MySqlConnectOptions::from_url(url);
                options.map(|options| Self::mysql(dialect, options)).map_err(unreadable)
            }
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                let options = sqlx::postgres::PgConnectOptions::from_url(url);
                options.map(Self::postgres).map_err(unreadable)
            }
            #[cfg(not(all(feature = "mysql", feature = "postgres")))]
            dialect => {
                let feature = if dialect.is_innodb() { "mysql" } else { "postgres" };
                Err(AddressError(format!("{dialect} needs the feature `{feature}` of hierlock")))
            }
        }
    }

    /// Makes an address of driver options. Statement logging is switched off.
    #[cfg(feature = "mysql")]
    pub fn mysql(dialect: Dialect, options: sqlx::mysql::MySqlConnectOptions) -> Self {
        ServerAddress::Mysql(dialect, Box::new(options.disable_statement_logging()))
    }

    /// Makes an address of driver options. Statement logging is switched off.
    #[cfg(feature = "postgres")]
    pub fn postgres(options: sqlx::postgres::PgConnectOptions) -> Self {
        let options = options.application_name("hierlock").disable_statement_logging();
        ServerAddress::Postgres(Box::new(options))
    }

    /// Returns the dialect in the URL. MariaDB can also be reached with a `mysql:` URL, and MySQL with `mariadb:`.
    pub fn dialect(&self) -> Dialect {
        match self {
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(dialect, _) => *dialect,
            #[cfg(feature = "postgres")]
            ServerAddress::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Returns the address with this database.
    #[must_use]
    pub fn in_database(self, name: &str) -> Self {
        with_options!(self, options,
            mysql: options.database(name),
            postgres: options.database(name))
    }

    /// Returns the address with this schema as the `search_path` of PostgreSQL. MySQL and MariaDB ignore it.
    #[must_use]
    pub fn in_schema(self, name: &str) -> Self {
        let _ = name;
        with_options!(self, options,
            mysql: *options,
            postgres: options.options([("search_path", name)]))
    }

    /// Returns the address with encryption switched off.
    #[must_use]
    pub fn without_encryption(self) -> Self {
        with_options!(self, options,
            mysql: options.ssl_mode(sqlx::mysql::MySqlSslMode::Disabled),
            postgres: options.ssl_mode(sqlx::postgres::PgSslMode::Disable))
    }

    /// Returns the address without the session settings of the driver: new sessions have the defaults of the server.
    #[must_use]
    pub fn with_server_settings(self) -> Self {
        with_options!(self, options,
            mysql: options.pipes_as_concat(false).no_engine_substitution(false).timezone(None),
            postgres: options.extra_float_digits(None))
    }

    /// Returns the address with this `application_name` on PostgreSQL. MySQL and MariaDB ignore it.
    #[must_use]
    pub fn with_application_name(self, name: &str) -> Self {
        let _ = name;
        with_options!(self, options,
            mysql: *options,
            postgres: options.application_name(name))
    }

    /// Opens a connection. There is no timeout.
    pub async fn connect(&self) -> sqlx::Result<Connection> {
        match self {
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(_, options) => {
                options.connect().await.map(|opened| Connection::Mysql(opened.into()))
            }
            #[cfg(feature = "postgres")]
            ServerAddress::Postgres(options) => {
                options.connect().await.map(|opened| Connection::Postgres(opened.into()))
            }
        }
    }

    /// Opens a connection on which LISTEN can run, and retries until `limit`. Fails on MySQL and MariaDB.
    #[cfg(feature = "postgres")]
    pub async fn connect_listening(&self, limit: Duration) -> sqlx::Result<ListeningConnection> {
        match self {
            ServerAddress::Postgres(options) => ListeningConnection::connect(options, limit).await,
            #[cfg(feature = "mysql")]
            ServerAddress::Mysql(..) => {
                Err(sqlx::Error::Protocol("only PostgreSQL has LISTEN".to_owned()))
            }
        }
    }
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
