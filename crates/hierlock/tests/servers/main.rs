//! The conformance suite on every server with every strategy, and tests for servers only.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod blocking;
mod cancel;
mod child_process;
mod close;
mod connecting;
mod dropped_guards;
mod exclusion;
mod faults;
mod label_rows;
mod labels;
mod lost_locks;
mod messages;
mod on_demand;
mod overlap;
mod own_server;
mod processes;
mod refusals;
mod retry;
mod round_trips;
mod row_locks;
mod shared_session;
mod silent_clients;
mod soak;
mod statements;
#[allow(dead_code, reason = "shared with the tests of provisioning")]
mod support;
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
