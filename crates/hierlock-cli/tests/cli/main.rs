//! Tests that run the `hierlock` command.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod client_program;
mod deadlocks;
mod doctor;
mod doctor_cluster;
mod doctor_server;
mod doctor_settings;
mod hot;
mod lab;
mod lab_bless;
mod lab_interrupt;
mod lease;
mod locks;
mod locks_file;
mod locks_kill;
mod locks_paths;
mod locks_rows;
mod plan;
mod provision;
mod queue;
mod queue_stop;
mod rewriting_proxy;
mod run;
mod sandbox;
mod secrets;
mod server;
mod settings;
mod size;
mod striped_server;
mod support;
mod terminal;
mod test_database;
mod toolbox;
mod top;
mod virtual_screen;
