//! The connections, transactions and pools of sqlx in the API.

use crate::database::AnyTransaction;
use hierlock_engine::ServerAddress;

/// A connection that [`Guard::transaction`](crate::Guard::transaction) can lend: `MySqlConnection` (also
/// for MariaDB) or `PgConnection` of sqlx.
pub trait DriverConnection: sqlx::Connection + sealed::HasName + 'static {}

/// A transaction in which [`Hierlock::acquire_in`](crate::Hierlock::acquire_in) can lock: of sqlx, or of a
/// [`Database`](crate::database::Database), on MySQL, MariaDB or PostgreSQL.
pub trait InTransaction: AnyTransaction {}

impl InTransaction for crate::database::Transaction {}

/// The program's own sqlx pool for MySQL, MariaDB or PostgreSQL, for [`Hierlock::beside`](crate::Hierlock::beside).
pub trait ProgramPool: sealed::HasAddress {}

/// Private supertraits, so that no other crate can implement the traits above.
mod sealed {
    pub trait HasName {
        const NAME: &'static str;
    }

    pub trait HasAddress {
        fn address(&self) -> super::ServerAddress;
    }
}

macro_rules! impl_for_driver {
    ($feature:literal, $driver:ident, $connection:ident, $pool:ident, $options:ident => $address:expr) => {
        #[cfg(feature = $feature)]
        const _: () = {
            use sqlx::{$connection, $driver, $pool};

            impl DriverConnection for $connection {}
            impl InTransaction for sqlx::Transaction<'_, $driver> {}
            impl ProgramPool for $pool {}

            impl sealed::HasName for $connection {
                const NAME: &'static str = stringify!($connection);
            }

            impl sealed::HasAddress for $pool {
                fn address(&self) -> ServerAddress {
                    let $options = self.connect_options().as_ref().clone();
                    $address
                }
            }
        };
    };
}

impl_for_driver!("mysql", MySql, MySqlConnection, MySqlPool,
    options => ServerAddress::mysql(hierlock_engine::Dialect::Mysql, options));
impl_for_driver!("postgres", Postgres, PgConnection, PgPool,
    options => ServerAddress::postgres(options));
