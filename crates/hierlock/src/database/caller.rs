//! The transactions of sqlx that a caller may bring.

use super::{DatabaseConnection, Transaction};
use hierlock_engine::ConnectionRef;
use sqlx::{MySql, Postgres};

/// A transaction in which the toolbox works: sqlx's on MySQL, MariaDB, PostgreSQL or SQLite, or the
/// [`Transaction`] of a [`Database`](super::Database).
pub trait AnyTransaction: sealed::Connected + Send {}

impl AnyTransaction for sqlx::Transaction<'_, MySql> {}
impl AnyTransaction for sqlx::Transaction<'_, Postgres> {}
#[cfg(feature = "sqlite")]
impl AnyTransaction for sqlx::Transaction<'_, sqlx::Sqlite> {}
impl AnyTransaction for Transaction {}

/// What nobody else can implement.
pub(crate) mod sealed {
    pub trait Connected {
        fn connection(&mut self) -> super::DatabaseConnection<'_>;

        /// Its connection was left in the middle of a statement, and is not to be used any more.
        fn give_up(&mut self) {}
    }
}

impl sealed::Connected for sqlx::Transaction<'_, MySql> {
    fn connection(&mut self) -> DatabaseConnection<'_> {
        DatabaseConnection::of_caller(ConnectionRef::Mysql(self))
    }
}

impl sealed::Connected for sqlx::Transaction<'_, Postgres> {
    fn connection(&mut self) -> DatabaseConnection<'_> {
        DatabaseConnection::of_caller(ConnectionRef::Postgres(self))
    }
}

#[cfg(feature = "sqlite")]
impl sealed::Connected for sqlx::Transaction<'_, sqlx::Sqlite> {
    fn connection(&mut self) -> DatabaseConnection<'_> {
        DatabaseConnection::of_caller(ConnectionRef::Sqlite(self))
    }
}

impl sealed::Connected for Transaction {
    fn connection(&mut self) -> DatabaseConnection<'_> {
        Transaction::connection(self)
    }

    fn give_up(&mut self) {
        Transaction::give_up(self);
    }
}
