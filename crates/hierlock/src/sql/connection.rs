//! The connections and transactions of sqlx that a caller may bring, or be lent.

use crate::database::AnyTransaction;
use hierlock_engine::ServerAddress;

/// A connection that [`Guard::transaction`](crate::Guard::transaction) can lend: `MySqlConnection` (also
/// for MariaDB) or `PgConnection` of sqlx.
pub trait Connection: sqlx::Connection + sealed::HasName + 'static {}

/// A transaction of the caller's, in which [`Hierlock::acquire_in`](crate::Hierlock::acquire_in) can lock:
/// sqlx's, on MySQL, MariaDB or PostgreSQL, or that of a [`Database`](crate::database::Database) there.
pub trait InTransaction: AnyTransaction {}

impl InTransaction for crate::database::Transaction {}

/// A pool that the program has already, of MySQL, MariaDB or PostgreSQL: for
/// [`Hierlock::beside`](crate::Hierlock::beside).
pub trait ProgramPool: sealed::HasAddress {}

/// What nobody else can implement.
mod sealed {
    pub trait HasName {
        const NAME: &'static str;
    }

    pub trait HasAddress {
        fn address(&self) -> super::ServerAddress;
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::{Connection, InTransaction, ProgramPool, ServerAddress, sealed};
    use hierlock_engine::Dialect;
    use sqlx::{MySql, MySqlConnection, MySqlPool, Transaction};

    impl Connection for MySqlConnection {}
    impl InTransaction for Transaction<'_, MySql> {}
    impl ProgramPool for MySqlPool {}

    impl sealed::HasName for MySqlConnection {
        const NAME: &'static str = "MySqlConnection";
    }

    impl sealed::HasAddress for MySqlPool {
        fn address(&self) -> ServerAddress {
            ServerAddress::mysql(Dialect::Mysql, self.connect_options().as_ref().clone())
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{Connection, InTransaction, ProgramPool, ServerAddress, sealed};
    use sqlx::{PgConnection, PgPool, Postgres, Transaction};

    impl Connection for PgConnection {}
    impl InTransaction for Transaction<'_, Postgres> {}
    impl ProgramPool for PgPool {}

    impl sealed::HasName for PgConnection {
        const NAME: &'static str = "PgConnection";
    }

    impl sealed::HasAddress for PgPool {
        fn address(&self) -> ServerAddress {
            ServerAddress::postgres(self.connect_options().as_ref().clone())
        }
    }
}
