//! The one place where an error of the driver becomes a sentence.

use std::io::ErrorKind;

/// What an error of the driver says to a person; the errors of this crate say it so.
///
/// It differs from the driver's own text in three ways: an error of PostgreSQL begins with its SQLSTATE and does not
/// end with a line of the server's source code; a connection that was ended is called so, instead of a stream that
/// ended early; and there is no "error returned from database" before what the server says.
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

/// What to do about a setting of PostgreSQL that is in the way.
#[cfg(feature = "postgres")]
fn advice(code: &str) -> &'static str {
    match code {
        // invalid_schema_name
        "3F000" => {
            "; no schema of the search_path is there: name one that is, with ?options[search_path]=public in the URL, or \
             ALTER ROLE … SET search_path"
        }
        // too_many_connections
        "53300" => {
            "; raise max_connections or the role's CONNECTION LIMIT, or use fewer connections"
        }
        _ => "",
    }
}

/// An answer of a server in which something is missing: this. Something between us may have answered instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer cannot be read: it does not tell {0}")]
pub struct UnreadableAnswer(pub &'static str);

impl From<UnreadableAnswer> for sqlx::Error {
    fn from(error: UnreadableAnswer) -> Self {
        sqlx::Error::Decode(error.into())
    }
}

/// The error of a server that has not answered in this time.
pub fn timed_out(limit: std::time::Duration) -> sqlx::Error {
    let message = format!("no answer within {} ms", limit.as_millis());
    sqlx::Error::Io(std::io::Error::new(ErrorKind::TimedOut, message))
}
