//! The `hierlock` command, from the outside.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod lab;
mod plan;
mod provision;
mod run;
mod sandbox;
mod server;
mod support;
mod terminal;
