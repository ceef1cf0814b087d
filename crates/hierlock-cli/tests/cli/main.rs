//! Tests that run the `hierlock` command.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lab;
mod lab_bless;
mod lab_interrupt;
mod lease;
mod plan;
mod provision;
mod queue;
mod queue_stop;
mod run;
mod sandbox;
mod secrets;
mod server;
mod settings;
mod support;
mod terminal;
mod test_database;
mod toolbox;
