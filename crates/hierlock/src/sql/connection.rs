//! The connections and transactions of sqlx that a caller may bring, or be lent.

use crate::database::AnyTransaction;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{
    Either, MySql, MySqlConnection, MySqlPool, PgConnection, PgPool, Postgres, Transaction,
};

/// A connection that [`Guard::transaction`](crate::Guard::transaction) can lend: `MySqlConnection` (also
/// for MariaDB) or `PgConnection` of sqlx.
pub trait Connection: sqlx::Connection + sealed::Named + 'static {}

impl Connection for MySqlConnection {}
impl Connection for PgConnection {}

/// A transaction of the caller's, in which [`Hierlock::acquire_in`](crate::Hierlock::acquire_in) can lock:
/// sqlx's, on MySQL, MariaDB or PostgreSQL, or that of a [`Database`](crate::database::Database) there.
pub trait InTransaction: AnyTransaction {}

impl InTransaction for Transaction<'_, MySql> {}
impl InTransaction for Transaction<'_, Postgres> {}
impl InTransaction for crate::database::Transaction {}

/// A pool that the program has already, of MySQL, MariaDB or PostgreSQL: for
/// [`Hierlock::beside`](crate::Hierlock::beside).
pub trait ProgramPool: sealed::Configured {}

impl ProgramPool for MySqlPool {}
impl ProgramPool for PgPool {}

/// What nobody else can implement.
mod sealed {
    use super::{Either, MySqlConnectOptions, PgConnectOptions};

    pub trait Named {
        const NAME: &'static str;
    }

    pub trait Configured {
        fn options(&self) -> Either<MySqlConnectOptions, PgConnectOptions>;
    }
}

impl sealed::Named for MySqlConnection {
    const NAME: &'static str = "MySqlConnection";
}

impl sealed::Named for PgConnection {
    const NAME: &'static str = "PgConnection";
}

impl sealed::Configured for MySqlPool {
    fn options(&self) -> Either<MySqlConnectOptions, PgConnectOptions> {
        Either::Left(self.connect_options().as_ref().clone())
    }
}

impl sealed::Configured for PgPool {
    fn options(&self) -> Either<MySqlConnectOptions, PgConnectOptions> {
        Either::Right(self.connect_options().as_ref().clone())
    }
}
