//! Every server with every strategy passes the conformance suite; and what is special to servers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cancel;
mod connecting;
mod dropped;
mod lost;
mod own_server;
mod parts;
mod processes;
mod proxy;
mod refusals;
mod round_trips;
mod shared;
mod soak;
mod statements;
#[allow(dead_code, reason = "shared with the tests of provisioning")]
mod support;
mod transactions;

/// The suite that every backend passes.
macro_rules! conformance_of {
    ($($name:ident: $engine:ident $strategy:ident),* $(,)?) => {
        mod conformance {
            $(mod $name {
                use crate::support::{Database, Setup};
                use hierlock::sql::Strategy;
                use hierlock_conformance::{Intentions, conformance};
                use hierlock_sandbox::Engine;

                const SETUP: Setup = Setup { engine: Engine::$engine, strategy: Strategy::$strategy };

                conformance!(Intentions::No, async || match Database::new(SETUP).await {
                    Some(database) => Some(database.connect().await),
                    None => None,
                });
            })*
        }
    };
}

conformance_of! {
    mysql_striped: Mysql Striped,
    mysql_per_id: Mysql PerId,
    mysql_on_demand: Mysql OnDemand,
    mariadb_striped: Mariadb Striped,
    mariadb_per_id: Mariadb PerId,
    mariadb_on_demand: Mariadb OnDemand,
    postgres_advisory: Postgres Advisory,
    postgres_striped: Postgres Striped,
    postgres_per_id: Postgres PerId,
    postgres_on_demand: Postgres OnDemand,
}
