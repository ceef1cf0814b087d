//! Tests of `hierlock lease`, which run the command.

use crate::support::{code, hierlock, stderr, stdout, until};
use crate::test_database::TestDatabase;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn acquire<'a>(path: &'a str, owner: &'a str) -> Vec<&'a str> {
    vec!["lease", "acquire", path, "--owner", owner]
}

fn tokens(database: &TestDatabase, arguments: &[&str]) -> Vec<i64> {
    let listed = database.json(&[&["lease", "list"], arguments].concat());
    listed.as_array().unwrap().iter().map(|lease| lease["token"].as_i64().unwrap()).collect()
}

/// Ada has a lease, and Bob is refused. An administrator takes the lease away, and Ada's renew fails with the reason.
pub(crate) fn a_lease_excludes_others_until_it_is_taken_away(database: &TestDatabase) {
    let edits = ["--session", "tab-7", "--reason", "edits the address", "--print-token"];
    let token = database.ok(&[&acquire("u1/a1", "ada")[..], &edits].concat());
    let token = token.trim_end();

    let printed = database.fails(75, &acquire("u1", "bob"));
    for part in ["`u1`", "`u1/a1`", "ada", "tab-7", "since 2", "until 2", "edits the address"] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    assert!(
        printed.contains("ends in 4 min "),
        "the remaining time is that of the database's clock: {printed}"
    );
    let held = database.json_with(75, &acquire("u1/a1/r1", "bob"));
    assert_eq!((&held["result"], &held["wanted"]), (&"held".into(), &"u1/a1/r1".into()));
    assert_eq!(held["holder"]["token"].to_string(), token);
    assert_eq!(held["holder"]["reason"], "edits the address");
    database.ok(&acquire("u1/a2", "bob"));
    assert!(
        database.ok(&["lease", "renew", token]).starts_with(&format!("renewed lease {token} "))
    );

    let force = ["lease", "force-release", token, "--actor", "root", "--reason", "holiday"];
    assert_eq!(database.ok(&force), format!("took away lease {token} of `u1/a1` from ada\n"));
    assert!(database.fails(76, &force).contains("no longer"));
    let printed = database.fails(76, &["lease", "renew", token]);
    assert!(printed.contains("root") && printed.contains("holiday"), "{printed}");
    let lost = database.json_with(76, &["lease", "renew", token]);
    assert_eq!((&lost["result"], &lost["why"]), (&"lost".into(), &"forced".into()));
    assert_eq!((&lost["actor"], &lost["reason"]), (&"root".into(), &"holiday".into()));
    let audit = database.json(&["lease", "audit"]);
    assert_eq!((&audit[0]["owner"], &audit[0]["actor"]), (&"ada".into(), &"root".into()));
    assert!(database.ok(&["lease", "audit"]).contains("holiday"));

    let next = database.json(&acquire("u1/a1", "bob"));
    assert!(next["token"].as_i64().unwrap() > token.parse().unwrap(), "{next}");
    assert_eq!(database.ok(&["lease", "release", "--owner", "bob"]), "released 2 leases\n");
    assert!(tokens(database, &[]).is_empty());
}

#[test]
fn a_lease_in_a_file_excludes_others_until_it_is_taken_away() {
    a_lease_excludes_others_until_it_is_taken_away(&TestDatabase::file());
}

#[test]
fn acquire_prints_a_sentence_a_token_or_json() {
    let database = TestDatabase::file();
    let printed = database.ok(&acquire("u1", "ada"));
    assert!(printed.starts_with("acquired lease 1 of `u1` for ada until 2"), "{printed}");
    assert!(printed.ends_with("Z (in 5 min)\n"), "{printed}");
    let mut request = acquire("u1", "ada");
    request.extend(["--ttl", "1.5m", "--session", "s"]);
    let lease = database.json(&request);
    let fields: Vec<&String> = lease.as_object().unwrap().keys().collect();
    let all =
        ["result", "token", "path", "owner", "session", "reason", "acquired", "expires", "expired"];
    assert_eq!(fields, all);
    assert_eq!((&lease["result"], &lease["token"]), (&"acquired".into(), &2.into()));
    assert_eq!((&lease["session"], &lease["reason"]), (&"s".into(), &serde_json::Value::Null));
    let expires = lease["expires"].as_str().unwrap();
    assert!(expires.len() == 24 && expires.ends_with('Z'), "{expires}");
    assert_eq!(database.json(&["lease", "renew", "2"])["result"], "renewed");
}

#[test]
fn leases_are_released_by_token_session_or_owner() {
    let database = TestDatabase::file();
    for (path, owner, session) in
        [("u1", "ada", "s1"), ("u2", "ada", "s2"), ("u3", "bob", "s1"), ("u4", "bob", "s3")]
    {
        database.ok(&[&acquire(path, owner)[..], &["--session", session]].concat());
    }
    assert_eq!(database.ok(&["lease", "release", "4"]), "released lease 4\n");
    assert_eq!(database.ok(&["lease", "release", "4"]), "lease 4 was not there any more\n");
    assert!(database.fails(76, &["lease", "renew", "4"]).contains("lease 4"));
    assert_eq!(tokens(&database, &["--session", "s1"]), [1, 3]);
    assert_eq!(database.ok(&["lease", "release", "--session", "s1"]), "released 2 leases\n");
    assert_eq!(tokens(&database, &["--owner", "ada"]), [2]);
    assert_eq!(database.ok(&["lease", "release", "--owner", "ada"]), "released 1 lease\n");
    assert_eq!(database.ok(&["lease", "list"]), "no leases\n");
}

#[test]
fn leases_are_listed_by_subtree() {
    let database = TestDatabase::file();
    for path in ["u1", "u1/a1", "u10", "u2"] {
        database.ok(&[&acquire(path, "ada")[..], &["--reason", "two\nlines"]].concat());
    }
    assert_eq!(tokens(&database, &["u1"]), [1, 2]);
    assert_eq!(tokens(&database, &["u1/a1"]), [2]);
    let shown = database.ok(&["lease", "list", "u2"]);
    for part in ["u2", "ada", "two\\nlines", "(in 4 min "] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn an_expired_lease_is_listed_and_swept() {
    let database = TestDatabase::file();
    database.ok(&[&acquire("u1", "ada")[..], &["--ttl", "1ms"]].concat());
    until("the lease has expired", || tokens(&database, &[]).is_empty());
    assert_eq!(tokens(&database, &["--expired"]), [1]);
    assert!(database.ok(&["lease", "list", "--expired"]).contains(" ago)"));
    let lost = database.json_with(76, &["lease", "renew", "1"]);
    assert_eq!(lost["why"], "expired");
    assert!(database.fails(76, &["lease", "renew", "1"]).contains("expired at 2"));
    assert_eq!(database.ok(&["lease", "sweep"]), "1 expired lease deleted\n");
    assert!(tokens(&database, &["--expired"]).is_empty());
}

#[test]
fn a_wait_ends_with_the_release_or_the_timeout() {
    let database = TestDatabase::file();
    database.ok(&acquire("u1", "ada"));
    let started = Instant::now();
    database.fails(75, &[&acquire("u1", "bob")[..], &["--wait", "300ms"]].concat());
    assert!(started.elapsed() >= Duration::from_millis(300));
    let mut waits = acquire("u1", "bob");
    waits.extend(["--wait", "60s", "--print-token"]);
    let waiter = database.command(&waits).stdout(Stdio::piped()).spawn().unwrap();
    database.ok(&["lease", "release", "1"]);
    let output = waiter.wait_with_output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (Some(0), "2\n".to_owned()));
}

/// A command that is ended while it waits must not leave a lease whose token is unknown.
#[test]
fn a_signal_while_waiting_leaves_no_lease() {
    let database = TestDatabase::file();
    database.ok(&acquire("u1", "ada"));
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let waits = [&acquire("u1", "bob")[..], &["--wait", "60s"]].concat();
        let mut waiter = database.command(&waits).stderr(Stdio::null()).spawn().unwrap();
        let threads = format!("/proc/{}/task", waiter.id());
        until("the command has opened the database", || {
            fs::read_dir(&threads).is_ok_and(|t| t.count() > 1)
        });
        send_signal(&waiter, signal);
        assert_eq!(waiter.wait().unwrap().code(), Some(128 + signal as i32));
    }
    assert_eq!(tokens(&database, &["--expired"]), [1]);
}

/// Whenever the signal arrives: either the token was printed, or there is no lease.
#[test]
fn a_signal_leaves_only_leases_with_a_printed_token() {
    let database = TestDatabase::file();
    database.ok(&["lease", "provision"]);
    let mut printed_tokens = Vec::new();
    for millis in 0..40 {
        let mut command = database.command(&acquire(&format!("u{millis}"), "ada"));
        let process = command.arg("--print-token").stdout(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        send_signal(&process, Signal::SIGTERM);
        let output = process.wait_with_output().unwrap();
        printed_tokens.extend(stdout(&output).lines().map(|token| token.parse::<i64>().unwrap()));
        // Before the handler is installed, the signal ends the process. After the token is printed, the command succeeds.
        assert!([Some(0), Some(143), None].contains(&code(&output)), "{output:?}");
    }
    assert_eq!(tokens(&database, &["--expired"]), printed_tokens);
}

fn send_signal(process: &std::process::Child, signal: Signal) {
    kill(Pid::from_raw(process.id() as i32), signal).unwrap();
}

/// A lease whose token was not printed could not be released, and would block others.
#[test]
fn a_lease_whose_token_cannot_be_printed_is_released() {
    let database = TestDatabase::file();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = database.command(&acquire("u1", "ada")).stdout(full).output().unwrap();
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("given back"), "{}", stderr(&output));
    assert!(tokens(&database, &["--expired"]).is_empty());
}

#[test]
fn custom_levels_are_accepted() {
    let database = TestDatabase::file();
    let deep = acquire("o/t/p/d", "ada");
    assert!(database.fails(64, &deep).contains("only 3 levels"));
    database.ok(&[&deep[..], &["--levels", "org,team,project,doc"]].concat());
    assert!(database.ok(&["lease", "list", "o"]).contains("o/t/p/d"));
}

#[test]
fn a_usage_error_exits_with_64_and_changes_nothing() {
    let database = TestDatabase::file();
    let long = "x".repeat(256);
    for (arguments, message) in [
        (&["acquire", "u1"][..], "--owner"),
        (&["acquire", "u1//a1", "--owner", "ada"], "1 to 255 bytes"),
        (&["acquire", "u1", "--owner", ""], "1 to 255 characters"),
        (&["acquire", "u1", "--owner", "ada", "--session", &long], "the session"),
        (&["acquire", "u1", "--owner", "ada", "--ttl", "5"], "300ms, 5s, 2m or 1h"),
        (&["acquire", "u1", "--owner", "ada", "--ttl", "0s"], "1 ms to 10 years"),
        (&["acquire", "u1", "--owner", "ada", "--json", "--print-token"], "cannot be used with"),
        (&["renew", "first"], "invalid"),
        (&["release"], "--session"),
        (&["release", "1", "--owner", "ada"], "cannot be used with"),
        (&["force-release", "1", "--actor", "root"], "--reason"),
        (&["force-release", "1", "--actor", "", "--reason", "x"], "1 to 255 characters"),
        (&["audit", "--limit", "0"], "0"),
        (&["list", "--url", "sqlite::memory:"], "sqlite:PATH"),
        (&["list", "--url", "redis://me:secret@x"], "is not a database"),
        (&["list", "--url", "mysql://me:secret@x:y/z"], "cannot be read"),
        (&["nothing"], "--help"),
    ] {
        let printed = database.fails(64, &[&["lease"], arguments].concat());
        assert!(printed.contains(message), "{arguments:?}: {printed}");
        assert!(!printed.contains("secret"), "{printed}");
    }
    assert!(tokens(&database, &["--expired"]).is_empty());
}

#[test]
fn an_unreachable_database_exits_with_69() {
    for (url, message) in [
        ("postgres://me:secret@127.0.0.1:1/x", "127.0.0.1:1"),
        ("mysql://me:secret@127.0.0.1:1/x", "127.0.0.1:1"),
        ("sqlite:/nowhere/toolbox.db", "/nowhere/toolbox.db"),
    ] {
        let output = hierlock(&["lease", "list", "--url", url]).output().unwrap();
        assert_eq!(code(&output), Some(69));
        let printed = stderr(&output);
        assert!(printed.contains(message) && !printed.contains("secret"), "{printed}");
    }
}

#[test]
fn the_default_database_is_a_file_in_the_state_directory() {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("50%?").join("deep");
    let run =
        |arguments: &[&str]| hierlock(arguments).env("XDG_STATE_HOME", &place).output().unwrap();
    assert_eq!(code(&run(&acquire("u1", "ada"))), Some(0));
    assert_eq!(code(&run(&acquire("u1", "bob"))), Some(75));
    assert!(place.join("hierlock/toolbox.db").is_file());
    let mode = fs::metadata(place.join("hierlock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // The XDG specification requires that a relative path is ignored.
    let home = tempfile::tempdir().unwrap();
    let mut command = hierlock(&["lease", "list"]);
    command.env("XDG_STATE_HOME", "here").env("HOME", home.path());
    assert_eq!(code(&command.output().unwrap()), Some(0));
    assert!(home.path().join(".local/state/hierlock/toolbox.db").is_file());
    let mut command = hierlock(&["lease", "list"]);
    let output = command.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap();
    assert_eq!(code(&output), Some(64));
    assert!(stderr(&output).contains("--url"), "{}", stderr(&output));
}

#[test]
fn print_sql_changes_nothing() {
    let database = TestDatabase::file();
    let sql = database.ok(&["lease", "provision", "--print-sql"]);
    assert!(sql.contains("CREATE TABLE") && sql.contains("hier_leases"), "{sql}");
    let size = fs::metadata(database.path("toolbox.db")).unwrap().len();
    assert!(size <= 4096, "the file contains tables: {size} bytes");
    assert_eq!(database.ok(&["lease", "provision"]), "ready\n");
    assert_eq!(database.ok(&["lease", "provision"]), "ready\n");
}
