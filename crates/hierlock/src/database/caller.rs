//! The transactions of sqlx that a caller may bring.

use super::{DatabaseConnection, Transaction};
use hierlock_engine::ConnectionRef;

/// A transaction in which the toolbox works: sqlx's on MySQL, MariaDB, PostgreSQL or SQLite, or the
/// [`Transaction`] of a [`Database`](super::Database).
pub trait AnyTransaction: sealed::HasConnection + Send {}

impl AnyTransaction for Transaction {}

/// What nobody else can implement.
pub(crate) mod sealed {
    pub trait HasConnection {
        fn connection(&mut self) -> super::DatabaseConnection<'_>;

        #[cfg(feature = "_server")]
        /// Its connection was left in the middle of a statement, and is not to be used any more.
        fn give_up(&mut self) {}
    }
}

impl sealed::HasConnection for Transaction {
    fn connection(&mut self) -> DatabaseConnection<'_> {
        Transaction::connection(self)
    }

    #[cfg(feature = "_server")]
    fn give_up(&mut self) {
        Transaction::give_up(self);
    }
}

/// The transactions of a driver of sqlx.
macro_rules! of_driver {
    ($($feature:literal: $driver:ident, $connection:ident;)*) => {
        $(#[cfg(feature = $feature)]
        impl AnyTransaction for sqlx::Transaction<'_, sqlx::$driver> {}

        #[cfg(feature = $feature)]
        impl sealed::HasConnection for sqlx::Transaction<'_, sqlx::$driver> {
            fn connection(&mut self) -> DatabaseConnection<'_> {
                DatabaseConnection::of_caller(ConnectionRef::$connection(self))
            }
        })*
    };
}

of_driver! {
    "mysql": MySql, Mysql;
    "postgres": Postgres, Postgres;
    "sqlite": Sqlite, Sqlite;
}
