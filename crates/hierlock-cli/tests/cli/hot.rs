//! `hierlock hot` against sessions that wait on real servers.

use crate::striped_server::{StripedServer, Waiter};
use crate::support::{TestDirectory, code, hierlock, stderr, stdout, until};
use hierlock_sandbox::Engine;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn false_contention_is_seen_on_mysql() {
    false_contention_is_seen(Engine::Mysql, &[]);
}

#[test]
fn false_contention_is_seen_on_postgres() {
    false_contention_is_seen(Engine::Postgres, &[]);
}

#[test]
fn false_contention_is_seen_on_mariadb_with_performance_schema() {
    false_contention_is_seen(Engine::Mariadb, &["--performance-schema=ON"]);
}

#[test]
fn false_contention_is_seen_on_mariadb_without_performance_schema() {
    false_contention_is_seen(Engine::Mariadb, &[]);
}

fn false_contention_is_seen(engine: Engine, options: &[&str]) {
    let Some(server) = StripedServer::start(engine, options) else { return };
    let [one, other] = server.colliding_paths();
    let idle = server.json(&["hot", "--for", "0s", "--json"]);
    assert_eq!((&idle["slots"], &idle["samples"]), (&json!([]), &json!(1)));
    let _holder = server.hold(&one);
    for (wanted, expected) in [(&other, "yes"), (&one, "no")] {
        let _waiter = server.wait_for(wanted);
        let hot = || server.json(&["hot", "--for", "600ms", "--json"]);
        until("the waiter is listed with its path", || {
            let slot = hot()["slots"][0].clone();
            slot["false_contention"] == expected
                && slot["wanted"] == json!([wanted])
                && slot["held"] == json!([one])
        });
        let slot = &hot()["slots"][0];
        assert_eq!((&slot["wanted"], &slot["held"]), (&json!([wanted]), &json!([one])), "{slot}");
        assert_eq!((&slot["max_waiting"], &slot["waits"]), (&json!(1), &json!(1)), "{slot}");
        assert!(slot["waited_ms"].as_u64().unwrap() > 0, "{slot}");
        assert_eq!(slot["slot"]["bucket"]["level"], 2, "{slot}");
    }
    let _waiter = server.wait_for(&other);
    until("the table shows the false contention", || {
        stdout(&server.output(&["hot", "--for", "400ms"])).contains("yes: 1 of 1 wait")
    });
    if engine == Engine::Postgres {
        an_interrupt_prints_the_results_so_far(&server);
    }
}

fn an_interrupt_prints_the_results_so_far(server: &StripedServer) {
    // A signal before the first snapshot ends the command with the exit code of the signal, so longer delays are tried.
    for wait in [300, 1000, 3000, 9000] {
        let mut command = hierlock(&["hot", "--url", &server.url, "--for", "1h", "--json"]);
        let process = command.stdout(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        kill(Pid::from_raw(process.id() as i32), Signal::SIGINT).unwrap();
        let output = process.wait_with_output().unwrap();
        if code(&output) == Some(0) {
            let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert!(report["samples"].as_u64().unwrap() > 0, "{report}");
            return;
        }
        assert_eq!(code(&output), Some(130));
    }
    panic!("no run took a snapshot before the signal");
}

#[test]
fn waits_for_a_lock_file_are_counted() {
    let place = TestDirectory::new();
    let url = format!("file:{}", place.lock_file().display());
    let _holder = place.hold(&["u1"]);
    let _waiter = Waiter(place.run(&["--quiet", "u1", "--", "true"]).spawn().unwrap());
    until("the waiter is listed", || {
        let output = hierlock(&["hot", "--url", &url, "--for", "0s"]).output().unwrap();
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        stdout(&output).contains("┆ no ")
    });
}

#[test]
fn a_usage_error_exits_with_64_a_missing_server_with_69() {
    for (arguments, exit, message) in [
        (&["--interval", "10ms"][..], 64, "200 ms"),
        (&["--url", "memory:"], 64, "memory:"),
        (&["--url", "postgres://me:secret@127.0.0.1:1/x"], 69, "127.0.0.1:1"),
    ] {
        for command in [&["hot"][..], &["top", "--once"]] {
            let output = hierlock(&[command, arguments].concat()).output().unwrap();
            assert_eq!(code(&output), Some(exit), "{arguments:?}: {output:?}");
            assert!(stderr(&output).contains(message), "{}", stderr(&output));
            assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
        }
    }
}
