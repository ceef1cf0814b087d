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

/// Returns `hierlock queue work mail … -- sh -c SCRIPT`.
fn work(database: &TestDatabase, options: &[&str], script: &str) -> Command {
    let mut command = database.command(&["queue", "work", "mail"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

fn work_all(database: &TestDatabase, options: &[&str], script: &str) -> Output {
    let output = work(database, &[options, &["--until-empty"]].concat(), script).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    output
}

/// Starts a worker with a command that sleeps; waits until the command has started.
fn start_busy_worker(database: &TestDatabase, options: &[&str]) -> Holder {
    Holder::start(work(database, options, "echo $$; exec sleep 1000"))
}

/// Sends two signals and returns standard error.
fn signal_twice(holder: &mut Holder) -> String {
    let mut lines = BufReader::new(holder.process.stderr.take().unwrap()).lines();
    let mut printed = String::new();
    signal(holder.pid(), Signal::SIGTERM);
    // Without this, the worker may handle the second signal first.
    while !printed.contains("stopping") {
        printed += &lines.next().unwrap().unwrap();
    }
    signal(holder.pid(), Signal::SIGINT);
    printed.extend(lines.map_while(Result::ok));
    assert_eq!(holder.process.wait().unwrap().code(), Some(130), "{printed}");
    printed
}

fn counts(database: &TestDatabase) -> [u64; 4] {
    let stats = database.json(&["queue", "stats", "mail"]);
    ["ready", "scheduled", "claimed", "dead"].map(|state| stats[0][state].as_u64().unwrap())
}

fn events(output: &Output) -> Vec<Value> {
    stderr(output).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Jobs are added and run. One of them becomes dead, and is retried.
pub(crate) fn jobs_are_run_and_dead_ones_retried(database: &TestDatabase) {
    assert_eq!(database.ok(&["queue", "add", "mail", "good"]), "added job 1\n");
    database.ok(&["queue", "add", "mail", "bad", "--max-attempts", "1"]);
    let lines = database.output_with_input(&["queue", "add", "mail", "--lines"], b"one\n\ntwo\n");
    assert_eq!(stdout(&lines), "added 2 jobs\n", "{}", stderr(&lines));
    assert_eq!(counts(database), [4, 0, 0, 0]);

    let script = "read payload; echo $HIERLOCK_QUEUE $HIERLOCK_ATTEMPT $payload
                  [ $payload != bad ] || { echo no >&2; exit 3; }";
    let output = work_all(database, &[], script);
    let mut done: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    done.sort();
    assert_eq!(done, ["mail 1 bad", "mail 1 good", "mail 1 one", "mail 1 two"]);
    let printed = stderr(&output);
    assert!(
        printed.contains("no\n") && printed.contains("attempt 1 of 1: exit code 3; dead"),
        "{printed}"
    );
    assert!(printed.ends_with("hierlock: 3 done, 1 failed\n"), "{printed}");
    assert_eq!(counts(database), [0, 0, 0, 1]);

    let dead = database.json(&["queue", "dead", "mail"]);
    assert_eq!((&dead[0]["payload"], &dead[0]["attempts"]), (&"bad".into(), &1.into()));
    assert_eq!(dead[0]["last_error"], "exit code 3\nno");
    let shown = database.ok(&["queue", "dead", "mail"]);
    assert!(shown.contains("exit code 3\\nno"), "{shown}");
    let id = dead[0]["id"].to_string();
    let printed = database.ok(&["queue", "retry-dead", "mail", &id, "99999"]);
    assert_eq!(printed, "1 job to be tried again; 1 other not dead\n");
    assert_eq!(counts(database), [1, 0, 0, 0]);
    work_all(database, &[], "grep -qx bad");
    assert_eq!(database.ok(&["queue", "stats"]), "no jobs\n");
    assert_eq!(
        database.ok(&["queue", "retry-dead", "mail", "--all"]),
        "0 jobs to be tried again\n"
    );
}

/// Without the database the worker cannot extend its lease, and another worker may claim the job.
pub(crate) fn a_database_that_goes_away_is_reported_and_ends_the_commands(
    database: &mut TestDatabase,
) {
    database.ok(&["queue", "add", "mail", ""]);
    let mut holder = start_busy_worker(database, &["--lease", "3s", "--poll", "100ms"]);
    database.shut_down();
    until("the command is ended", || is_gone(holder.command));
    let printed = signal_twice(&mut holder);
    assert!(
        printed.contains("hierlock: warning: ") && printed.contains("job 5 is no longer"),
        "{printed}"
    );
}

#[test]
fn jobs_in_a_file_are_run_and_dead_ones_retried() {
    jobs_are_run_and_dead_ones_retried(&TestDatabase::file());
}

#[test]
fn add_and_stats_print_json() {
    let database = TestDatabase::file();
    let add = ["queue", "add", "mail", "x", "--unique", "k"];
    assert_eq!(database.json(&add), json!({"result": "added", "id": 1}));
    let again = database.json(&add);
    assert_eq!((&again["result"], &again["id"]), (&"duplicate".into(), &1.into()));
    assert_eq!(database.ok(&add), "job 1 exists already\n");
    let lines =
        database.output_with_input(&["queue", "add", "other", "--lines", "--json"], b"a\nb");
    let added: Value = serde_json::from_slice(&lines.stdout).unwrap();
    assert_eq!(added.as_array().unwrap().len(), 2);
    assert_eq!(added[1]["result"], "added");
    let stats = database.json(&["queue", "stats"]);
    assert_eq!((&stats[0]["queue"], &stats[1]["queue"]), (&"mail".into(), &"other".into()));
    let fields: Vec<&String> = stats[0].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["queue", "ready", "scheduled", "claimed", "dead", "oldest_ready_ms"]);
}

/// A payload with bytes that a shell would change, and longer than a pipe buffer.
#[test]
fn a_payload_arrives_unchanged() {
    let database = TestDatabase::file();
    let payload = "$HOME 'ü' \\ \n\n\ttwo lines\r\n".repeat(10_000);
    let added = database.output_with_input(&["queue", "add", "mail", "-"], payload.as_bytes());
    assert_eq!(code(&added), Some(0), "{}", stderr(&added));
    let output = work_all(&database, &[], "cat");
    assert!(stdout(&output) == payload, "the payload has changed");
}

#[test]
fn a_command_need_not_read_its_payload() {
    let database = TestDatabase::file();
    database.output_with_input(&["queue", "add", "mail", "-"], &b"x".repeat(1_000_000));
    work_all(&database, &[], "exit 0");
    assert_eq!(counts(&database), [0, 0, 0, 0]);
}

#[test]
fn arguments_are_passed_without_a_shell() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", ""]);
    let words = ["a b", "$HOME", "; exit 3", "*", "", "'\""];
    let mut arguments = vec!["queue", "work", "mail", "--until-empty", "--", "printf", "%s\n"];
    arguments.extend(words);
    assert_eq!(database.ok(&arguments), words.join("\n") + "\n");
}

#[test]
fn jobs_run_by_priority_and_due_time() {
    let database = TestDatabase::file();
    for (payload, priority) in [("last", "200"), ("first", "-5"), ("middle", "100")] {
        database.ok(&["queue", "add", "mail", payload, "--priority", priority]);
    }
    database.ok(&["queue", "add", "mail", "later", "--run-in", "1h"]);
    assert_eq!(counts(&database), [3, 1, 0, 0]);
    assert_eq!(stdout(&work_all(&database, &[], "cat; echo")), "first\nmiddle\nlast\n");
    assert_eq!(counts(&database), [0, 1, 0, 0]);
}

#[test]
fn events_are_printed_as_json_lines() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", "0"]);
    database.ok(&["queue", "add", "mail", "7"]);
    let output = work_all(&database, &["--json"], "read code; exit $code");
    let events = events(&output);
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["started", "done", "started", "failed", "ended"]);
    assert_eq!((&events[1]["job"], &events[1]["attempt"]), (&1.into(), &1.into()));
    assert_eq!((&events[3]["error"], &events[3]["dead"]), (&"exit code 7".into(), &false.into()));
    assert!(events[3]["again_in_ms"].is_u64());
    assert_eq!((&events[4]["done"], &events[4]["failed"]), (&1.into(), &1.into()));
    assert_eq!(counts(&database), [0, 1, 0, 0]);
}

/// Two commands that wait for each other.
#[test]
fn several_commands_run_at_a_time() {
    let database = TestDatabase::file();
    for payload in ["one two", "two one"] {
        database.ok(&["queue", "add", "mail", payload]);
    }
    let script = "read ours theirs; : > \"$1/$ours\"
                  for try in $(seq 3000); do ! [ -e \"$1/$theirs\" ] || exit 0; sleep 0.01; done; exit 1";
    let mut command = work(&database, &["--concurrency", "2", "--until-empty"], script);
    command.args(["sh", database.directory.path().to_str().unwrap()]);
    assert_eq!(code(&command.output().unwrap()), Some(0));
    assert_eq!(counts(&database), [0, 0, 0, 0]);
}

#[test]
fn the_last_lines_of_standard_error_are_kept() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", "", "--max-attempts", "1"]);
    let output = work_all(&database, &[], "seq 100000 >&2; kill -9 $$");
    assert!(
        stderr(&output).contains("\n99999\n100000\nhierlock: job 1 failed"),
        "standard error is not forwarded"
    );
    let dead = database.json(&["queue", "dead", "mail"]);
    let error = dead[0]["last_error"].as_str().unwrap();
    assert!(error.starts_with("signal 9\n9") && error.ends_with("\n100000"), "{error}");
    assert!(error.len() < 2100, "{}", error.len());
}

/// A background process keeps the standard error of the command open. The job is done anyway.
#[test]
fn a_process_left_behind_does_not_delay_the_job() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", ""]);
    let output = work_all(&database, &[], "sleep 60 > /dev/null & echo $!");
    let background: i32 = stdout(&output).trim().parse().unwrap();
    assert!(!is_gone(background));
    signal(background, Signal::SIGKILL);
    assert_eq!(counts(&database), [0, 0, 0, 0]);
}

#[test]
fn the_first_signal_lets_commands_finish() {
    for stop in [Signal::SIGTERM, Signal::SIGINT] {
        let database = TestDatabase::file();
        for payload in ["one", "two", "three"] {
            database.ok(&["queue", "add", "mail", payload]);
        }
        let go = database.path("go");
        let script = format!("echo $$; while ! [ -e {go} ]; do sleep 0.01; done; echo done");
        let mut holder = Holder::start(work(&database, &["--batch", "3"], &script));
        assert_eq!(counts(&database), [0, 0, 3, 0]);
        signal(holder.pid(), stop);
        until("the other jobs are returned", || counts(&database) == [2, 0, 1, 0]);
        fs::write(go, "").unwrap();
        let (code, printed) = holder.wait();
        assert_eq!((code, holder.line()), (Some(0), "done".to_owned()), "{printed}");
        assert!(
            printed.contains("stopping") && printed.contains("1 done, 0 failed, 2 given back"),
            "{printed}"
        );
        assert_eq!(counts(&database), [2, 0, 0, 0]);
    }
}

#[test]
fn the_second_signal_ends_commands_and_returns_jobs() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", "one", "--max-attempts", "1"]);
    let script = "sleep 1000 & echo $$; echo $!; wait";
    let mut holder = Holder::start(work(&database, &["--json"], script));
    let grandchild: i32 = holder.line().parse().unwrap();
    let printed = signal_twice(&mut holder);
    assert!(printed.contains(r#""event":"given-back","job":1"#), "{printed}");
    assert!(is_gone(holder.command));
    until("the grandchild is ended", || is_gone(grandchild));
    assert_eq!(counts(&database), [1, 0, 0, 0], "the run must not count as an attempt");
}

/// The kernel ends the command of a killed worker at once. Another worker gets the job when the lease expires.
#[test]
fn the_job_of_a_killed_worker_is_run_again() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", "precious"]);
    let mut holder = start_busy_worker(&database, &["--lease", "3s"]);
    signal(holder.pid(), Signal::SIGKILL);
    holder.process.wait().unwrap();
    until("the command is ended", || is_gone(holder.command));
    assert_eq!(counts(&database), [0, 0, 1, 0]);
    let script = "read payload; echo $payload $HIERLOCK_ATTEMPT; kill -TERM $PPID";
    let output = work(&database, &["--poll", "50ms"], script).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (Some(0), "precious 2\n".to_owned()));
    assert_eq!(counts(&database), [0, 0, 0, 0]);
}

/// A command that runs for longer than the lease keeps its job.
#[test]
fn a_lease_is_extended_while_the_command_runs() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", ""]);
    let output = work_all(
        &database,
        &["--lease", "3s", "--poll", "50ms"],
        "sleep 5; echo $HIERLOCK_ATTEMPT",
    );
    assert_eq!(stdout(&output), "1\n");
    assert_eq!(counts(&database), [0, 0, 0, 0]);
}

/// A command must not continue when another worker has its job.
#[test]
fn a_lost_job_ends_its_command() {
    let database = TestDatabase::file();
    database.ok(&["queue", "add", "mail", ""]);
    let mut holder = start_busy_worker(&database, &["--lease", "300ms", "--json"]);
    database.run("UPDATE hier_jobs SET claim = claim + 1");
    until("the command is ended", || is_gone(holder.command));
    signal(holder.pid(), Signal::SIGTERM);
    let (code, printed) = holder.wait();
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains(r#""event":"lost","job":1"#) && printed.contains(r#""lost":1"#),
        "{printed}"
    );
    assert_eq!(counts(&database), [0, 0, 1, 0], "the other worker still has the job");
}

/// The command would fail for every job, so no attempt is counted and the worker ends.
#[test]
fn a_command_that_cannot_be_run_fails_no_job() {
    let database = TestDatabase::file();
    for payload in ["one", "two"] {
        database.ok(&["queue", "add", "mail", payload, "--max-attempts", "1"]);
    }
    for (program, exit) in [("no-such-command", 127), (database.path("toolbox.db").as_str(), 126)] {
        let printed =
            database.fails(exit, &["queue", "work", "mail", "--batch", "2", "--", program]);
        assert!(printed.contains(program), "{printed}");
        assert_eq!(counts(&database), [2, 0, 0, 0]);
    }
}

#[test]
fn a_usage_error_exits_with_64_and_changes_nothing() {
    let database = TestDatabase::file();
    let long = "k".repeat(256);
    for (arguments, message) in [
        (&["add", "mail"][..], "<PAYLOAD"),
        (&["add", "two words", "x"], "cannot be the name of a queue"),
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
        (&["work", "two words", "--", "true"], "cannot be the name of a queue"),
        (&["stats", "--url", "file:/tmp/x"], "is not a database"),
    ] {
        let printed = database.fails(64, &[&["queue"], arguments].concat());
        assert!(printed.contains(message), "{arguments:?}: {printed}");
    }
    for (arguments, input, message) in [
        (&["queue", "add", "mail", "-"][..], &b"a\xffb"[..], "byte 1"),
        (&["queue", "add", "mail", "--lines"], b"good\nbad\0\n", "zero byte"),
    ] {
        let output = database.output_with_input(arguments, input);
        assert_eq!(code(&output), Some(64));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    assert_eq!(database.ok(&["queue", "stats"]), "no jobs\n", "a job was added");
}

#[test]
fn print_sql_changes_nothing() {
    let database = TestDatabase::file();
    let sql = database.ok(&["queue", "provision", "--print-sql"]);
    assert!(sql.contains("CREATE TABLE") && sql.contains("hier_jobs"), "{sql}");
    assert!(fs::metadata(database.path("toolbox.db")).unwrap().len() <= 4096);
    assert_eq!(database.ok(&["queue", "provision"]), "ready\n");
}
