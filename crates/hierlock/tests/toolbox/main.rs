//! The toolbox on MySQL, MariaDB, PostgreSQL and SQLite.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cases;
mod database;
mod faults;
mod isolation;
mod lease;
mod optimistic;
mod queue;
mod restarts;
mod schema;
#[path = "../servers/support.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the tests of locks on servers"
)]
mod servers;
mod support;
