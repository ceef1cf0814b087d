//! `hierlock locks kill`.

use crate::client_program::ClientProgram;
use crate::locks::{locks_json, session};
use crate::support::{code, hierlock, stderr, stdout, until};
use crate::terminal::Shell;
use hierlock_sandbox::Sandbox;
use serde_json::Value;
use std::process::Output;

pub(crate) fn sessions_are_ended(server: &Sandbox) {
    let directory = tempfile::tempdir().unwrap();
    let [mut holder, mut waiter] = [(); 2].map(|()| ClientProgram::start(server));
    holder.run("START TRANSACTION; UPDATE numbers SET password = 1 WHERE id = 10;");
    waiter.send("UPDATE numbers SET password = 2 WHERE id = 10;");
    until("the waiter is listed", || {
        locks_json(server, &[])["trees"].as_array().is_some_and(|trees| trees.len() == 1)
    });
    let kill = |id: i64, arguments: &[&str]| -> Output {
        let id = id.to_string();
        let words = ["locks", "kill", &id, "--reason", "ticket 4711", "--url", server.url()];
        let mut command = hierlock(&[&words[..], arguments].concat());
        command.env("XDG_STATE_HOME", directory.path()).output().unwrap()
    };
    // There is no terminal for the confirmation.
    let output = kill(holder.id, &[]);
    assert_eq!(code(&output), Some(64), "{output:?}");
    assert!(stderr(&output).contains("--yes"), "{}", stderr(&output));
    assert!(
        stderr(&output).contains(&format!("waits for it: {}", waiter.id)),
        "{}",
        stderr(&output)
    );
    session(&locks_json(server, &[]), holder.id);
    a_confirmation_other_than_yes_ends_nothing(server, holder.id);
    session(&locks_json(server, &[]), holder.id);

    let output = kill(holder.id, &["--yes", "--by", "ada"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let printed = stdout(&output);
    assert!(printed.starts_with(&format!("ended session {}", holder.id)), "{printed}");
    assert!(printed.ends_with(&format!("waited for by {}\n", waiter.id)), "{printed}");
    waiter.run("");
    let log = std::fs::read_to_string(directory.path().join("hierlock/kills.log")).unwrap();
    assert_eq!(log, stderr(&output), "the file and standard error have the same line");
    let line: Value = serde_json::from_str(&log).unwrap();
    assert_eq!((&line["event"], &line["session"]), (&"killed".into(), &holder.id.into()));
    assert_eq!((&line["reason"], &line["by"]), (&"ticket 4711".into(), &"ada".into()));
    assert_eq!((&line["waiting"][0], &line["gone"]), (&waiter.id.into(), &true.into()));

    let output = kill(holder.id, &["--yes"]);
    assert_eq!(code(&output), Some(76), "{output:?}");
    assert!(stderr(&output).contains("has no session"), "{}", stderr(&output));

    // A session without locks is described too.
    let idle = ClientProgram::start(server);
    let output = kill(idle.id, &[]);
    assert_eq!(code(&output), Some(64), "{output:?}");
    assert!(stderr(&output).contains("holds no lock"), "{}", stderr(&output));
    assert!(stderr(&output).contains("from 127.0.0.1:"), "{}", stderr(&output));

    // If the log cannot be opened, no session is ended.
    let output = kill(waiter.id, &["--yes", "--log", "/nowhere/kills.log"]);
    assert_eq!(code(&output), Some(69), "{output:?}");
    waiter.run("");
}

/// On a terminal, with colours.
fn a_confirmation_other_than_yes_ends_nothing(server: &Sandbox, id: i64) {
    let mut shell = Shell::start();
    let program = env!("CARGO_BIN_EXE_hierlock");
    shell.type_in(&format!("{program} locks --url '{}'\n", server.url()));
    shell.wait_for_text(&format!("\u{1b}[1m{id}\u{1b}[0m"));
    shell.type_in(&format!(
        "{program} locks kill {id} --reason x --log /dev/null --url '{}'\n",
        server.url()
    ));
    shell.wait_for_text(&format!("end session {id} on "));
    shell.wait_for_text("[yes/no]");
    shell.type_in("y\n");
    shell.wait_for_text("not confirmed; nothing was ended");
}
