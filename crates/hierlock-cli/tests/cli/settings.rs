//! Runs every command under each server setting of a list. After every command that reports success, another client checks
//! the state in the database.

#[path = "../../../hierlock/tests/settings/list.rs"]
#[allow(dead_code, reason = "shared with the tests of the library")]
mod list;
#[path = "../../../hierlock/tests/settings/server.rs"]
#[allow(dead_code, reason = "shared with the tests of the library")]
mod server;

use crate::support::{Holder, code, hierlock, stderr, stdout};
use hierlock_sandbox::{Engine, on_each_server};
use server::{Client, SettingsServer, TestDatabase};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

on_each_server!(every_command_works_under_each_setting);

/// The failure this prevents: with `autocommit` off by default, `lease release` and `provision` reported success and
/// committed nothing, and `queue work --until-empty` did the same jobs three times.
async fn every_command_works_under_each_setting(engine: Engine) {
    let Some(mut server) = SettingsServer::start(engine).await else { return };
    // For debugging: tests only the settings whose names contain this.
    let only = std::env::var("HIERLOCK_SETTING").unwrap_or_default();
    let directory = tempfile::tempdir().unwrap();
    let scenario: Arc<Path> = directory.path().join("defaults.lab").into();
    std::fs::write(&scenario, SCENARIO).unwrap();
    let mut failed = Vec::new();
    for setting in list::settings(engine) {
        if (setting.needs_tls && !server.has_tls) || !setting.name.contains(&only) {
            continue;
        }
        let started = Instant::now();
        let place = Arc::new(server.apply(&setting).await);
        let (tried, scenario) = (place.clone(), scenario.clone());
        let exercise = tokio::spawn(async move {
            let mut outside = tried.outside().await;
            locks(&tried, &mut outside).await;
            leases(&tried, &mut outside).await;
            jobs(&tried, &mut outside).await;
            lab(&tried, &scenario);
        });
        // A panic has printed its message. The other settings are tested as well.
        let result = if exercise.await.is_ok() { "works" } else { "FAILS" };
        eprintln!("{engine}: {} {result}, in {:?}", setting.name, started.elapsed());
        if result == "FAILS" {
            failed.push(setting.name.clone());
        }
        server.undo(&setting, &place).await;
    }
    assert_eq!(failed, [""; 0]);
}

/// Runs a command, which must succeed; returns its output.
fn ok(url: &str, arguments: &[&str]) -> String {
    let split = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
    let (options, child_command) = arguments.split_at(split);
    let mut command = hierlock(options);
    let output = command.args(["--url", url]).args(child_command).output().unwrap();
    assert_eq!(code(&output), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

async fn locks(place: &TestDatabase, outside: &mut Client) {
    let url = place.with("strategy=striped");
    assert!(ok(&url, &["provision", "--buckets", "40"]).starts_with("ready"));
    assert_eq!(outside.number("SELECT COUNT(*) FROM hier_lock_buckets").await, 120);
    assert_eq!(outside.text("SELECT state FROM hier_lock_meta").await, "ready");
    ok(&url, &["provision", "--check"]);
    // Settings that a session sets itself are no problem for the doctor. Some servers here allow only 8 connections.
    let few = format!("{url}&connections=2");
    assert!(ok(&few, &["doctor"]).contains("0 problems"));
    let holder = Holder::start({
        let mut run = hierlock(&["run", "--url", &url, "u1/a1"]);
        run.args(["--", "sh", "-c", "echo $$; exec cat"]);
        run
    });
    let refused = hierlock(&["run", "--url", &url, "--try", "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&refused), Some(75), "{}", stderr(&refused));
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(ok(&url, &["run", "--within", "60s", "u1", "--", "echo", "held"]), "held\n");
    assert!(ok(&url, &["provision", "--rebucket", "50"]).starts_with("ready"));
    assert_eq!(outside.number("SELECT COUNT(*) FROM hier_lock_buckets").await, 150);
    assert_eq!(outside.number("SELECT buckets FROM hier_lock_meta").await, 50);
    // The number of buckets is that of the server.
    let plan = ok(&url, &["plan", "--json", "u1/a1/r1"]);
    assert_eq!(plan.matches("\"buckets\":50").count(), 3, "{plan}");
    let by_id = place.with("strategy=per-id&table=by_id");
    ok(&by_id, &["provision", "u1/a1/r1"]);
    assert_eq!(outside.number("SELECT COUNT(*) FROM by_id").await, 3);
    ok(&by_id, &["run", "u1/a1/r1", "--", "true"]);
}

async fn leases(place: &TestDatabase, outside: &mut Client) {
    let (url, count) = (&*place.url, "SELECT COUNT(*) FROM hier_leases");
    assert_eq!(ok(url, &["lease", "provision"]), "ready\n");
    assert_eq!(outside.number(count).await, 0);
    for path in ["u1/a1", "u2"] {
        ok(url, &["lease", "acquire", path, "--owner", "ada"]);
    }
    assert_eq!(outside.number(count).await, 2);
    let token = outside.text("SELECT MIN(token) FROM hier_leases").await;
    let expires = format!("SELECT expires_ms FROM hier_leases WHERE token = {token}");
    let before = outside.number(&expires).await;
    ok(url, &["lease", "renew", &token]);
    assert!(outside.number(&expires).await > before);
    ok(url, &["lease", "release", &token]);
    assert_eq!(outside.number(count).await, 1);
    let token = outside.text("SELECT MIN(token) FROM hier_leases").await;
    ok(url, &["lease", "force-release", &token, "--actor", "root", "--reason", "x"]);
    assert_eq!(outside.number(count).await, 0);
    assert_eq!(outside.number("SELECT COUNT(*) FROM hier_lease_audit").await, 1);
    assert!(ok(url, &["lease", "audit"]).contains("root"));
    assert_eq!(ok(url, &["lease", "list"]), "no leases\n");
    ok(url, &["lease", "sweep"]);
}

async fn jobs(place: &TestDatabase, outside: &mut Client) {
    let (url, count) = (&*place.url, "SELECT COUNT(*) FROM hier_jobs");
    assert_eq!(ok(url, &["queue", "provision"]), "ready\n");
    for payload in ["a", "b", "c"] {
        ok(url, &["queue", "add", "mail", payload]);
    }
    assert_eq!(outside.number(count).await, 3);
    assert!(ok(url, &["queue", "stats"]).contains("mail"));
    let done = ok(url, &["queue", "work", "mail", "--until-empty", "--", "cat"]);
    assert_eq!(done.matches(['a', 'b', 'c']).count(), 3, "each once: {done}");
    assert_eq!(outside.number(count).await, 0);
    ok(url, &["queue", "add", "mail", "bad", "--max-attempts", "1"]);
    let failed = hierlock(&["queue", "work", "mail", "--url", url, "--until-empty", "--", "false"]);
    let _ = { failed }.output().unwrap();
    let dead = "SELECT COUNT(*) FROM hier_jobs WHERE last_error IS NOT NULL";
    assert_eq!(outside.number(dead).await, 1);
    assert!(ok(url, &["queue", "dead", "mail"]).contains("bad"));
    ok(url, &["queue", "retry-dead", "mail", "--all"]);
    ok(url, &["queue", "work", "mail", "--until-empty", "--", "true"]);
    assert_eq!(outside.number(count).await, 0);
}

/// The expectations below hold with the default settings of a server.
const SCENARIO: &str = "\
# A session begins with what the server is shipped with

setup:
  create table numbers (id int primary key, value int not null);
  insert into numbers values (1, 30);

A> update numbers set value = 31 where id = 1
 = changed 1
B> select value from numbers where id = 1
 | 31
A> begin
A> select value from numbers where id = 1 for update
 | 31
B> update numbers set value = 32 where id = 1
 = blocked by A
A> commit
B< = changed 1
A> select value from numbers where id = 1
 | 32
";

fn lab(place: &TestDatabase, scenario: &Path) {
    let engine = place.engine.name();
    let file = scenario.to_str().unwrap();
    let printed =
        ok(&place.url, &["lab", "run", file, "--engine", engine, "--strict", "--jobs", "1"]);
    assert!(printed.contains(engine), "{printed}");
}
