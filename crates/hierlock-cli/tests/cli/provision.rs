//! Tests of `hierlock provision`, which run the command.

use crate::support::{code, hierlock, stderr, stdout};
use hierlock_sandbox::{Engine, Sandbox};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `hierlock provision` with these parameters in the URL.
fn provision(server: &Sandbox, parameters: &str, arguments: &[&str]) -> Output {
    let url = format!("{}{parameters}", server.url());
    hierlock(&["provision", "--url", &url]).args(arguments).output().unwrap()
}

fn lock(url: &str, target: &str) -> Output {
    hierlock(&["run", "--try", "--url", url, target, "--", "true"]).output().unwrap()
}

#[test]
fn a_provisioned_table_can_be_locked() {
    let Some(server) = Sandbox::for_tests(Engine::Mariadb) else { return };
    let output = lock(server.url(), "u1");
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("hierlock provision"), "{}", stderr(&output));

    let output = provision(&server, "", &["--buckets", "2000"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let printed = stderr(&output);
    assert!(printed.contains("hierlock: 6,000 rows, about "), "{printed}");
    assert!(printed.contains("filling: 0 of 6000 rows"), "{printed}");
    assert!(stdout(&output).starts_with("ready: 6,000 rows, 6,000 of them new"), "{output:?}");
    assert_eq!(code(&lock(server.url(), "u1/a1/r1")), Some(0));

    let output = provision(&server, "", &["--buckets", "64"]);
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("--rebucket 64"), "{}", stderr(&output));

    let output = provision(&server, "", &["--rebucket", "500", "--json"]);
    assert_eq!((code(&output), stderr(&output)), (Some(0), String::new()));
    let report = stdout(&output);
    assert!(
        report.contains(r#""result":"ready","rows":1500,"inserted":0,"deleted":4500"#),
        "{report}"
    );
    assert_eq!(code(&lock(server.url(), "u1/a1/r1")), Some(0));
}

#[test]
fn check_reports_its_result_by_exit_code() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let striped = "?strategy=striped";
    let output = provision(&server, striped, &["--check"]);
    assert_eq!(code(&output), Some(69), "there is no table yet: {}", stderr(&output));
    let output = provision(&server, striped, &["--buckets", "3000", "--connections", "3"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let output = provision(&server, striped, &["--check"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("level 2: 3000 of 3000 rows\nthe table is complete"),
        "{output:?}"
    );

    let delete = "DELETE FROM hier_lock_buckets WHERE level = 1 AND bucket BETWEEN 1000 AND 1999";
    let psql = Command::new("psql").args([server.url(), "-qc", delete]).status().unwrap();
    assert!(psql.success());
    let output = provision(&server, striped, &["--check"]);
    assert_eq!(code(&output), Some(65), "{}", stderr(&output));
    assert!(stdout(&output).contains("missing: level 1: 1000..=1999\n"), "{}", stdout(&output));
    let output = provision(&server, striped, &["--check", "--json"]);
    assert_eq!(code(&output), Some(65));
    let found = stdout(&output);
    assert!(found.contains(r#""missing":[{"level":1,"first":1000,"last":1999}]"#), "{found}");

    let output = provision(&server, striped, &["--check", "--repair"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("1,000 of them new"), "{}", stdout(&output));
    assert_eq!(code(&provision(&server, striped, &["--check"])), Some(0));
}

#[test]
fn the_printed_sql_runs_in_the_client_of_the_server() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let parameters = "?strategy=striped&table=beside";
    let output = provision(&server, parameters, &["--buckets", "100", "--print-sql"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let mut client = Command::new("psql")
        .args([server.url(), "-q", "-v", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    assert!(client.wait().unwrap().success());
    assert_eq!(code(&provision(&server, parameters, &["--check"])), Some(0));
    assert_eq!(code(&lock(&format!("{}{parameters}", server.url()), "u1")), Some(0));
}

#[test]
fn rows_by_id_are_added_by_path() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let by_id = "?strategy=per-id";
    let output = provision(&server, by_id, &["u1/a1/r1", "u2"]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "ready: 4 rows added\n");
    let url = format!("{}{by_id}", server.url());
    assert_eq!(code(&lock(&url, "u1/a1")), Some(0));
    let output = lock(&url, "u1/a2");
    assert!(stderr(&output).contains("not provisioned"), "{}", stderr(&output));
}

#[test]
fn a_usage_error_exits_with_64_a_missing_server_with_69() {
    for (arguments, message) in [
        (&["--url", "postgres://127.0.0.1/x"][..], "?strategy=striped"),
        (&["--url", "mysql://127.0.0.1/x", "--buckets", "0"], "bucket count"),
        (&["--url", "mysql://127.0.0.1/x", "--repair"], "--check"),
        (&["--url", "mysql://127.0.0.1/x", "--connections", "0"], "1..=100"),
        (&[], "--url"),
        (&["--url", "file:/tmp/x"], "is not a database"),
    ] {
        let output = hierlock(&["provision"]).args(arguments).output().unwrap();
        assert_eq!(code(&output), Some(64), "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    let url = "mysql://me:secret@127.0.0.1:1/x";
    let output = hierlock(&["provision", "--url", url]).output().unwrap();
    assert_eq!(code(&output), Some(69));
    assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
}
