//! `hierlock run` with a lock on a server.

use crate::support::{Holder, code, hierlock, stderr};
use hierlock_sandbox::{Engine, Sandbox};
use std::process::Command;

fn run(server: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = hierlock(&["run", "--url", server.url()]);
    command.args(arguments);
    command
}

const HOLD: [&str; 4] = ["--", "sh", "-c", "echo $$; exec cat"];

#[test]
fn a_lock_on_a_server_is_held_while_the_command_runs() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let holder = Holder::start(run(&server, &[&["u1/a1/r1"][..], &HOLD].concat()));
    let output = run(&server, &["--try", "u1/a1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(75), "{}", stderr(&output));
    let output = run(&server, &["--within", "50ms", "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(75), "{}", stderr(&output));
    assert!(stderr(&output).contains("waiting for `u1`"), "{}", stderr(&output));
    let output = run(&server, &["--try", "u1/a1/r2", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(holder.finish(), (Some(0), String::new()));
    let output = run(&server, &["--try", "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
}

#[test]
fn a_server_that_goes_away_ends_the_command() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let mut holder = Holder::start(run(&server, &[&["u1"][..], &HOLD].concat()));
    drop(server);
    let (code, said) = holder.wait();
    assert_eq!(code, Some(76), "{said}");
    assert!(said.contains("lock of `u1` is lost"), "{said}");
}

#[test]
fn a_server_that_is_not_there_is_69() {
    let url = "postgres://me:secret@127.0.0.1:1/x";
    let output = hierlock(&["run", "--url", url, "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("127.0.0.1:1"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
}
