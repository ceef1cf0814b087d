//! `hierlock locks` on a lock file.

use crate::support::{TestDirectory, code, hierlock, stderr, stdout, until};
use serde_json::Value;
use std::process::{Command, Stdio};

fn locks(place: &TestDirectory, arguments: &[&str]) -> Command {
    let mut command = hierlock(&["locks", "--url"]);
    command.arg(format!("file:{}", place.lock_file().display())).args(arguments);
    command
}

fn json(place: &TestDirectory, arguments: &[&str]) -> Value {
    let output = locks(place, arguments).arg("--json").output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn holders_and_waiters_of_a_file_are_listed() {
    let place = TestDirectory::new();
    let text = stdout(&locks(&place, &[]).output().unwrap());
    assert!(text.contains("no session waits, and no lock of hierlock is visible"), "{text}");
    assert!(!place.lock_file().exists(), "`locks` must not create the file");

    let holder = place.hold(&["u1/a1/r1"]);
    let mut waiter = place.run(&["u1/a1", "--", "true"]).stderr(Stdio::null()).spawn().unwrap();
    let mut snapshot = Value::Null;
    until("the waiter is listed", || {
        snapshot = json(&place, &[]);
        snapshot["trees"][0]["root"] == "blocker"
    });
    let rows = &snapshot["trees"][0]["sessions"];
    assert_eq!((&rows[0]["id"], &rows[1]["id"]), (&holder.pid().into(), &waiter.id().into()));
    let holds = snapshot["sessions"][0]["holds"].as_array().unwrap();
    let mut paths: Vec<&str> =
        holds.iter().map(|lock| lock["paths"][0].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["u1", "u1/a1", "u1/a1/r1"]);
    assert_eq!(snapshot["sessions"][1]["waits_for"]["paths"][0], "u1/a1", "{snapshot}");
    // The kernel does not report since when a byte is held. The process may have started long before.
    for field in ["state_ms", "transaction_ms", "waiting_ms"] {
        assert!(snapshot["sessions"][0][field].is_null(), "{field}: {snapshot}");
    }
    let waiting = &snapshot["sessions"][1];
    assert!(waiting["state_ms"].is_null(), "{snapshot}");
    assert!(waiting["waiting_ms"].as_u64().is_some_and(|millis| millis < 60_000), "{snapshot}");
    let text = stdout(&locks(&place, &["u1/a1/r1"]).output().unwrap());
    assert!(
        text.contains("sh on this host") && text.contains("holds u1/a1/r1 exclusive"),
        "{text}"
    );
    assert!(json(&place, &["u2"])["sessions"].as_array().unwrap().is_empty());

    let id = holder.pid().to_string();
    let output = locks(&place, &["kill"]).args([&*id, "--reason", "x", "--yes"]).output().unwrap();
    assert_eq!(code(&output), Some(64), "{output:?}");
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(waiter.wait().unwrap().code(), Some(0));
}
