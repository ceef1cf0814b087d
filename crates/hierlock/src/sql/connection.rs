//! The connections and transactions of sqlx that a caller may bring, or be lent.

use sqlx::{Either, MySql, MySqlConnection, PgConnection, Postgres, Transaction};

/// A connection that [`Guard::transaction`](crate::Guard::transaction) can lend: `MySqlConnection` (also
/// for MariaDB) or `PgConnection` of sqlx.
pub trait Connection: sqlx::Connection + sealed::Named + 'static {}

impl Connection for MySqlConnection {}
impl Connection for PgConnection {}

/// A transaction of the caller's, in which [`Hierlock::acquire_in`](crate::Hierlock::acquire_in) can lock:
/// sqlx's, on MySQL, MariaDB or PostgreSQL.
pub trait InTransaction: sealed::Known + Send {}

impl InTransaction for Transaction<'_, MySql> {}
impl InTransaction for Transaction<'_, Postgres> {}

/// What nobody else can implement.
mod sealed {
    use super::{Either, MySqlConnection, PgConnection};

    pub trait Named {
        const NAME: &'static str;
    }

    pub trait Known {
        fn connection(&mut self) -> Either<&mut MySqlConnection, &mut PgConnection>;
    }
}

impl sealed::Named for MySqlConnection {
    const NAME: &'static str = "MySqlConnection";
}

impl sealed::Named for PgConnection {
    const NAME: &'static str = "PgConnection";
}

impl sealed::Known for Transaction<'_, MySql> {
    fn connection(&mut self) -> Either<&mut MySqlConnection, &mut PgConnection> {
        Either::Left(self)
    }
}

impl sealed::Known for Transaction<'_, Postgres> {
    fn connection(&mut self) -> Either<&mut MySqlConnection, &mut PgConnection> {
        Either::Right(self)
    }
}
