//! Messages for errors of the driver.

use std::io::ErrorKind;

/// Returns the message for an error of the driver. The errors of this crate use it.
///
/// It differs from the driver's own text in three ways: an error of PostgreSQL starts with its SQLSTATE and does not
/// end with a line of the server's source code; a closed connection is reported as such, not as an unexpected end of
/// file; and the prefix "error returned from database" is missing.
///
/// ```
/// # use hierlock_engine::sqlx;
/// let error = sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into());
/// assert_eq!(hierlock_engine::error_message(&error), "the server has ended the connection");
/// ```
pub fn error_message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            #[cfg(feature = "postgres")]
            if let Some(error) = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
                return format!("{}: {}{}", error.code(), error.message(), advice(error.code()));
            }
            error.to_string()
        }
        sqlx::Error::Io(error) => match error.kind() {
            ErrorKind::UnexpectedEof => "the server has ended the connection".to_owned(),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                "the server, or the network, has ended the connection".to_owned()
            }
            _ => error.to_string(),
        },
        sqlx::Error::Configuration(error) | sqlx::Error::Decode(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Returns a hint for an error that a setting of PostgreSQL causes.
#[cfg(feature = "postgres")]
fn advice(code: &str) -> &'static str {
    match code {
        // invalid_schema_name
        "3F000" => {
            "; no schema of the search_path exists; name one that does, with ?options[search_path]=public in the URL, or \
             ALTER ROLE … SET search_path"
        }
        // too_many_connections
        "53300" => {
            "; raise max_connections or the role's CONNECTION LIMIT, or use fewer connections"
        }
        _ => "",
    }
}

/// A response of the server in which a value is missing. A proxy may have responded instead of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer cannot be read: it does not contain {0}")]
pub struct UnreadableAnswer(pub &'static str);

impl From<UnreadableAnswer> for sqlx::Error {
    fn from(error: UnreadableAnswer) -> Self {
        sqlx::Error::Decode(error.into())
    }
}

/// Returns the error of a server that has not responded within `limit`.
pub fn timed_out(limit: std::time::Duration) -> sqlx::Error {
    let message = format!("no answer within {} ms", limit.as_millis());
    sqlx::Error::Io(std::io::Error::new(ErrorKind::TimedOut, message))
}
