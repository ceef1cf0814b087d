//! Questions about sessions, and the ways to end them, by the server's number for a session.

mod innodb;
mod postgres;

use crate::Dialect;

/// Picks the text of the engine.
macro_rules! of_engine {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(dialect: Dialect, pid: i64) -> String {
            match dialect {
                Dialect::Postgres => postgres::$name(pid),
                Dialect::Mysql | Dialect::Mariadb => innodb::$name(pid),
            }
        })*
    };
}

of_engine! {
    /// Ends the statement that a session runs.
    cancel;
    /// Ends a session, with all it holds.
    terminate;
    /// What tells a session from another that has the same number later; no row if there is none, or none that we may
    /// see.
    identity_of;
    /// Whether a session is between two statements; no row if there is none, or none that we may see.
    is_idle;
}

/// The columns by which a session asks who it is: its number, and its identity.
pub fn own_identity(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => postgres::OWN_IDENTITY,
        Dialect::Mysql | Dialect::Mariadb => innodb::OWN_IDENTITY,
    }
}

/// The column by which a session asks for its number.
pub fn own_pid(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "pg_backend_pid()::bigint",
        Dialect::Mysql | Dialect::Mariadb => "CAST(CONNECTION_ID() AS SIGNED)",
    }
}

/// The columns by which a server says its version, and whether it only follows another.
pub fn version(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => postgres::VERSION,
        Dialect::Mysql | Dialect::Mariadb => innodb::VERSION,
    }
}
