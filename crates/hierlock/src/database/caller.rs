//! The transactions of sqlx that a caller may bring.

use super::{Transaction, Wire};
use sqlx::{MySql, Postgres};

/// A transaction in which the toolbox works: sqlx's on MySQL, MariaDB, PostgreSQL or SQLite, or the
/// [`Transaction`] of a [`Database`](super::Database).
pub trait AnyTransaction: sealed::Wired + Send {}

impl AnyTransaction for sqlx::Transaction<'_, MySql> {}
impl AnyTransaction for sqlx::Transaction<'_, Postgres> {}
#[cfg(feature = "sqlite")]
impl AnyTransaction for sqlx::Transaction<'_, sqlx::Sqlite> {}
impl AnyTransaction for Transaction {}

/// What nobody else can implement.
pub(crate) mod sealed {
    pub trait Wired {
        fn wire(&mut self) -> super::Wire<'_>;

        /// Its connection was left in the middle of a statement, and is not to be used any more.
        fn give_up(&mut self) {}
    }
}

impl sealed::Wired for sqlx::Transaction<'_, MySql> {
    fn wire(&mut self) -> Wire<'_> {
        Wire::Innodb(self)
    }
}

impl sealed::Wired for sqlx::Transaction<'_, Postgres> {
    fn wire(&mut self) -> Wire<'_> {
        Wire::Postgres(self)
    }
}

#[cfg(feature = "sqlite")]
impl sealed::Wired for sqlx::Transaction<'_, sqlx::Sqlite> {
    fn wire(&mut self) -> Wire<'_> {
        Wire::Sqlite(self)
    }
}

impl sealed::Wired for Transaction {
    fn wire(&mut self) -> Wire<'_> {
        Transaction::wire(self)
    }

    fn give_up(&mut self) {
        Transaction::give_up(self);
    }
}
