//! Tests of `hierlock queue`, which run the command.

use crate::support::{Holder, code, is_gone, stderr, stdout, until};
use crate::test_database::TestDatabase;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output};

fn signal(process: i32, signal: Signal) {
    kill(Pid::from_raw(process), signal).unwrap();
}

/// `hierlock queue work mail … -- sh -c SCRIPT`.
fn work(store: &TestDatabase, options: &[&str], script: &str) -> Command {
    let mut command = store.command(&["queue", "work", "mail"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

fn work_all(store: &TestDatabase, options: &[&str], script: &str) -> Output {
    let output = work(store, &[options, &["--until-empty"]].concat(), script).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    output
}

/// Starts a worker, and returns when its command has begun and waits.
fn start_busy_worker(store: &TestDatabase, options: &[&str]) -> Holder {
    Holder::start(work(store, options, "echo $$; exec sleep 1000"))
}

/// Sends two signals and returns standard error.
fn signal_twice(holder: &mut Holder) -> String {
    let mut lines = BufReader::new(holder.process.stderr.take().unwrap()).lines();
    let mut said = String::new();
    signal(holder.pid(), Signal::SIGTERM);
    // Otherwise the second signal may be seen first.
    while !said.contains("stopping") {
        said += &lines.next().unwrap().unwrap();
    }
    signal(holder.pid(), Signal::SIGINT);
    said.extend(lines.map_while(Result::ok));
    assert_eq!(holder.process.wait().unwrap().code(), Some(130), "{said}");
    said
}

fn counts(store: &TestDatabase) -> [u64; 4] {
    let stats = store.json(&["queue", "stats", "mail"]);
    ["ready", "scheduled", "claimed", "dead"].map(|state| stats[0][state].as_u64().unwrap())
}

fn events(output: &Output) -> Vec<Value> {
    stderr(output).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Jobs are added and run; one becomes dead, and is retried.
pub(crate) fn added_worked_dead_and_retried(store: &TestDatabase) {
    assert_eq!(store.ok(&["queue", "add", "mail", "good"]), "added job 1\n");
    store.ok(&["queue", "add", "mail", "bad", "--max-attempts", "1"]);
    let lines = store.fed(&["queue", "add", "mail", "--lines"], b"one\n\ntwo\n");
    assert_eq!(stdout(&lines), "added 2 jobs\n", "{}", stderr(&lines));
    assert_eq!(counts(store), [4, 0, 0, 0]);

    let script = "read payload; echo $HIERLOCK_QUEUE $HIERLOCK_ATTEMPT $payload
                  [ $payload != bad ] || { echo no >&2; exit 3; }";
    let output = work_all(store, &[], script);
    let mut done: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    done.sort();
    assert_eq!(done, ["mail 1 bad", "mail 1 good", "mail 1 one", "mail 1 two"]);
    let said = stderr(&output);
    assert!(said.contains("no\n") && said.contains("attempt 1 of 1: exit code 3; dead"), "{said}");
    assert!(said.ends_with("hierlock: 3 done, 1 failed\n"), "{said}");
    assert_eq!(counts(store), [0, 0, 0, 1]);

    let dead = store.json(&["queue", "dead", "mail"]);
    assert_eq!((&dead[0]["payload"], &dead[0]["attempts"]), (&"bad".into(), &1.into()));
    assert_eq!(dead[0]["last_error"], "exit code 3\nno");
    let shown = store.ok(&["queue", "dead", "mail"]);
    assert!(shown.contains("exit code 3\\nno"), "{shown}");
    let id = dead[0]["id"].to_string();
    let said = store.ok(&["queue", "retry-dead", "mail", &id, "99999"]);
    assert_eq!(said, "1 job to be tried again; 1 other not dead\n");
    assert_eq!(counts(store), [1, 0, 0, 0]);
    work_all(store, &[], "grep -qx bad");
    assert_eq!(store.ok(&["queue", "stats"]), "no jobs\n");
    assert_eq!(store.ok(&["queue", "retry-dead", "mail", "--all"]), "0 jobs to be tried again\n");
}

/// Without the database nobody knows who owns the job: another worker may reach the database and claim it.
pub(crate) fn a_database_that_goes_away_is_reported_and_ends_the_commands(
    store: &mut TestDatabase,
) {
    store.ok(&["queue", "add", "mail", ""]);
    let mut holder = start_busy_worker(store, &["--lease", "3s", "--poll", "100ms"]);
    store.shut_down();
    until("the command is ended", || is_gone(holder.command));
    let said = signal_twice(&mut holder);
    assert!(said.contains("hierlock: warning: ") && said.contains("job 5 is no longer"), "{said}");
}

#[test]
fn jobs_are_added_worked_and_retried_on_a_file() {
    added_worked_dead_and_retried(&TestDatabase::file());
}

#[test]
fn add_and_stats_print_json() {
    let store = TestDatabase::file();
    let add = ["queue", "add", "mail", "x", "--unique", "k"];
    assert_eq!(store.json(&add), json!({"result": "added", "id": 1}));
    let again = store.json(&add);
    assert_eq!((&again["result"], &again["id"]), (&"duplicate".into(), &1.into()));
    assert_eq!(store.ok(&add), "job 1 is there already\n");
    let lines = store.fed(&["queue", "add", "other", "--lines", "--json"], b"a\nb");
    let added: Value = serde_json::from_slice(&lines.stdout).unwrap();
    assert_eq!(added.as_array().unwrap().len(), 2);
    assert_eq!(added[1]["result"], "added");
    let stats = store.json(&["queue", "stats"]);
    assert_eq!((&stats[0]["queue"], &stats[1]["queue"]), (&"mail".into(), &"other".into()));
    let fields: Vec<&String> = stats[0].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["claimed", "dead", "oldest_ready_ms", "queue", "ready", "scheduled"]);
}

/// A payload with bytes that a shell would change, and longer than a pipe buffer.
#[test]
fn a_payload_arrives_unchanged() {
    let store = TestDatabase::file();
    let payload = "$HOME 'ü' \\ \n\n\ttwo lines\r\n".repeat(10_000);
    let added = store.fed(&["queue", "add", "mail", "-"], payload.as_bytes());
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
    let output = work_all(&store, &[], "cat");
    assert!(stdout(&output) == payload, "it has changed");
}

#[test]
fn a_command_need_not_read_its_payload() {
    let store = TestDatabase::file();
    store.fed(&["queue", "add", "mail", "-"], &b"x".repeat(1_000_000));
    work_all(&store, &[], "exit 0");
    assert_eq!(counts(&store), [0, 0, 0, 0]);
}

#[test]
fn arguments_are_passed_without_a_shell() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", ""]);
    let words = ["a b", "$HOME", "; exit 3", "*", "", "'\""];
    let mut arguments = vec!["queue", "work", "mail", "--until-empty", "--", "printf", "%s\n"];
    arguments.extend(words);
    assert_eq!(store.ok(&arguments), words.join("\n") + "\n");
}

#[test]
fn jobs_run_by_priority_and_due_time() {
    let store = TestDatabase::file();
    for (payload, priority) in [("last", "200"), ("first", "-5"), ("middle", "100")] {
        store.ok(&["queue", "add", "mail", payload, "--priority", priority]);
    }
    store.ok(&["queue", "add", "mail", "later", "--run-in", "1h"]);
    assert_eq!(counts(&store), [3, 1, 0, 0]);
    assert_eq!(stdout(&work_all(&store, &[], "cat; echo")), "first\nmiddle\nlast\n");
    assert_eq!(counts(&store), [0, 1, 0, 0]);
}

#[test]
fn events_are_printed_as_json_lines() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", "0"]);
    store.ok(&["queue", "add", "mail", "7"]);
    let output = work_all(&store, &["--json"], "read code; exit $code");
    let events = events(&output);
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["started", "done", "started", "failed", "ended"]);
    assert_eq!((&events[1]["job"], &events[1]["attempt"]), (&1.into(), &1.into()));
    assert_eq!((&events[3]["error"], &events[3]["dead"]), (&"exit code 7".into(), &false.into()));
    assert!(events[3]["again_in_ms"].is_u64());
    assert_eq!((&events[4]["done"], &events[4]["failed"]), (&1.into(), &1.into()));
    assert_eq!(counts(&store), [0, 1, 0, 0]);
}

/// Two commands that wait for each other.
#[test]
fn several_commands_run_at_a_time() {
    let store = TestDatabase::file();
    for payload in ["one two", "two one"] {
        store.ok(&["queue", "add", "mail", payload]);
    }
    let script = "read ours theirs; : > \"$1/$ours\"
                  for try in $(seq 3000); do ! [ -e \"$1/$theirs\" ] || exit 0; sleep 0.01; done; exit 1";
    let mut command = work(&store, &["--concurrency", "2", "--until-empty"], script);
    command.args(["sh", store.directory.path().to_str().unwrap()]);
    assert_eq!(code(&command.output().unwrap()), Some(0));
    assert_eq!(counts(&store), [0, 0, 0, 0]);
}

#[test]
fn the_last_lines_of_standard_error_are_kept() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", "", "--max-attempts", "1"]);
    let output = work_all(&store, &[], "seq 100000 >&2; kill -9 $$");
    assert!(
        stderr(&output).contains("\n99999\n100000\nhierlock: job 1 failed"),
        "all is passed on"
    );
    let dead = store.json(&["queue", "dead", "mail"]);
    let error = dead[0]["last_error"].as_str().unwrap();
    assert!(error.starts_with("signal 9\n9") && error.ends_with("\n100000"), "{error}");
    assert!(error.len() < 2100, "{}", error.len());
}

/// A background process of the command still has its standard error open: the job is done anyway.
#[test]
fn a_process_left_behind_does_not_delay_the_job() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", ""]);
    let output = work_all(&store, &[], "sleep 60 > /dev/null & echo $!");
    let left: i32 = stdout(&output).trim().parse().unwrap();
    assert!(!is_gone(left));
    signal(left, Signal::SIGKILL);
    assert_eq!(counts(&store), [0, 0, 0, 0]);
}

#[test]
fn the_first_signal_lets_commands_finish() {
    for stop in [Signal::SIGTERM, Signal::SIGINT] {
        let store = TestDatabase::file();
        for payload in ["one", "two", "three"] {
            store.ok(&["queue", "add", "mail", payload]);
        }
        let go = store.path("go");
        let script = format!("echo $$; while ! [ -e {go} ]; do sleep 0.01; done; echo done");
        let mut holder = Holder::start(work(&store, &["--batch", "3"], &script));
        assert_eq!(counts(&store), [0, 0, 3, 0]);
        signal(holder.pid(), stop);
        until("the other jobs are returned", || counts(&store) == [2, 0, 1, 0]);
        fs::write(go, "").unwrap();
        let (code, said) = holder.wait();
        assert_eq!((code, holder.line()), (Some(0), "done".to_owned()), "{said}");
        assert!(
            said.contains("stopping") && said.contains("1 done, 0 failed, 2 given back"),
            "{said}"
        );
        assert_eq!(counts(&store), [2, 0, 0, 0]);
    }
}

#[test]
fn the_second_signal_ends_commands_and_returns_jobs() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", "one", "--max-attempts", "1"]);
    let script = "sleep 1000 & echo $$; echo $!; wait";
    let mut holder = Holder::start(work(&store, &["--json"], script));
    let grandchild: i32 = holder.line().parse().unwrap();
    let said = signal_twice(&mut holder);
    assert!(said.contains(r#""event":"given-back","job":1"#), "{said}");
    assert!(is_gone(holder.command));
    until("the grandchild is ended", || is_gone(grandchild));
    assert_eq!(counts(&store), [1, 0, 0, 0], "not an attempt");
}

/// The kernel ends its command at once; another worker gets the job when the lease expires.
#[test]
fn the_job_of_a_killed_worker_is_run_again() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", "precious"]);
    let mut holder = start_busy_worker(&store, &["--lease", "3s"]);
    signal(holder.pid(), Signal::SIGKILL);
    holder.process.wait().unwrap();
    until("the command is ended", || is_gone(holder.command));
    assert_eq!(counts(&store), [0, 0, 1, 0]);
    let script = "read payload; echo $payload $HIERLOCK_ATTEMPT; kill -TERM $PPID";
    let output = work(&store, &["--poll", "50ms"], script).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (Some(0), "precious 2\n".to_owned()));
    assert_eq!(counts(&store), [0, 0, 0, 0]);
}

/// A command that runs for longer than the lease keeps its job.
#[test]
fn a_lease_is_extended_while_the_command_runs() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", ""]);
    let output =
        work_all(&store, &["--lease", "3s", "--poll", "50ms"], "sleep 5; echo $HIERLOCK_ATTEMPT");
    assert_eq!(stdout(&output), "1\n");
    assert_eq!(counts(&store), [0, 0, 0, 0]);
}

/// A command must not continue when another worker has its job.
#[test]
fn a_lost_job_ends_its_command() {
    let store = TestDatabase::file();
    store.ok(&["queue", "add", "mail", ""]);
    let mut holder = start_busy_worker(&store, &["--lease", "300ms", "--json"]);
    store.run("UPDATE hier_jobs SET claim = claim + 1");
    until("the command is ended", || is_gone(holder.command));
    signal(holder.pid(), Signal::SIGTERM);
    let (code, said) = holder.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(r#""event":"lost","job":1"#) && said.contains(r#""lost":1"#), "{said}");
    assert_eq!(counts(&store), [0, 0, 1, 0], "the other one has it still");
}

/// It would fail for every job, so no attempt is counted and the worker ends.
#[test]
fn a_command_that_cannot_be_run_fails_no_job() {
    let store = TestDatabase::file();
    for payload in ["one", "two"] {
        store.ok(&["queue", "add", "mail", payload, "--max-attempts", "1"]);
    }
    for (program, exit) in [("no-such-command", 127), (store.path("toolbox.db").as_str(), 126)] {
        let said = store.fails(exit, &["queue", "work", "mail", "--batch", "2", "--", program]);
        assert!(said.contains(program), "{said}");
        assert_eq!(counts(&store), [2, 0, 0, 0]);
    }
}

#[test]
fn a_usage_error_exits_with_64_and_changes_nothing() {
    let store = TestDatabase::file();
    let long = "k".repeat(256);
    for (arguments, says) in [
        (&["add", "mail"][..], "<PAYLOAD"),
        (&["add", "two words", "x"], "cannot name a queue"),
        (&["add", "mail", "x", "--unique", &long], "256 characters"),
        (&["add", "mail", "x", "--max-attempts", "0"], "0"),
        (&["add", "mail", "x", "--run-in", "soon"], "300ms, 5s, 2m or 1h"),
        (&["add", "mail", "x", "--run-in", "99999999h"], "ten years"),
        (&["add", "mail", "--lines", "--unique", "k"], "cannot be used with"),
        (&["add", "mail", "x", "--lines"], "cannot be used with"),
        (&["retry-dead", "mail"], "<ID>"),
        (&["retry-dead", "mail", "--all", "3"], "cannot be used with"),
        (&["work", "mail"], "<COMMAND>"),
        (&["work", "mail", "--concurrency", "0", "--", "true"], "1..=100"),
        (&["work", "mail", "--lease", "99ms", "--", "true"], "at least 100ms"),
        (&["work", "mail", "--poll", "0s", "--", "true"], "poll"),
        (&["work", "two words", "--", "true"], "cannot name a queue"),
        (&["stats", "--url", "file:/tmp/x"], "is no database"),
    ] {
        let said = store.fails(64, &[&["queue"], arguments].concat());
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    for (arguments, input, says) in [
        (&["queue", "add", "mail", "-"][..], &b"a\xffb"[..], "byte 1"),
        (&["queue", "add", "mail", "--lines"], b"good\nbad\0\n", "zero byte"),
    ] {
        let output = store.fed(arguments, input);
        assert_eq!(code(&output), Some(64));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
    assert_eq!(store.ok(&["queue", "stats"]), "no jobs\n", "not one of two lines either");
}

#[test]
fn print_sql_changes_nothing() {
    let store = TestDatabase::file();
    let sql = store.ok(&["queue", "provision", "--print-sql"]);
    assert!(sql.contains("CREATE TABLE") && sql.contains("hier_jobs"), "{sql}");
    assert!(fs::metadata(store.path("toolbox.db")).unwrap().len() <= 4096);
    assert_eq!(store.ok(&["queue", "provision"]), "ready\n");
}
