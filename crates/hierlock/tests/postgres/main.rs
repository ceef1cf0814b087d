//! `postgres:` passes the conformance suite; and what is special to a server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod failures;
mod round_trips;
mod support;

/// The suite that every backend passes.
mod conformance {
    use crate::support::Database;
    use hierlock_conformance::{Intentions, conformance};

    conformance!(Intentions::No, async || match Database::new().await {
        Some(database) => Some(database.connect().await),
        None => None,
    });
}
