//! Every server with every strategy passes the conformance suite; and tests that concern servers only.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod blocking;
mod cancel;
mod child_process;
mod close;
mod connecting;
mod dropped;
mod faults;
mod lost;
mod messages;
mod on_demand;
mod own_server;
mod processes;
mod refusals;
mod retry;
mod round_trips;
mod shared;
mod silent;
mod soak;
mod statements;
#[allow(dead_code, reason = "shared with the tests of provisioning")]
mod support;
mod together;
mod transactions;

/// The suite that every backend passes.
macro_rules! conformance_of {
    ($($name:ident: $engine:ident $strategy:ident,)*) => {
        mod conformance {
            $(mod $name {
                use crate::support::{Database, Setup};
                use hierlock::sql::Strategy;
                use hierlock_conformance::conformance;
                use hierlock_sandbox::Engine;

                const SETUP: Setup = Setup { engine: Engine::$engine, strategy: Strategy::$strategy };

                conformance!(async || match Database::new(SETUP).await {
                    Some(database) => Some(database.connect().await),
                    None => None,
                });
            })*
        }
    };
}

support::every_setup!([conformance_of]);
