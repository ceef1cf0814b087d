//! The toolbox on MySQL, MariaDB, PostgreSQL and SQLite.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cases;
mod database;
mod lease;
mod optimistic;
#[path = "../servers/proxy.rs"]
#[allow(dead_code, reason = "shared with the tests of locks on servers")]
mod proxy;
mod queue;
#[path = "../servers/support.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the tests of locks on servers"
)]
mod servers;
mod support;
