//! Interrupting `hierlock lab`. The failure this prevents: all records were lost, and no report was written.

use crate::support::{TestDirectory, hierlock, until};
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const QUICK: &str = "# Quick\nengines: postgres\nA> select 1\n = rows 1\n";
const LONG: &str = "# Long\nlimit: 10m\nengines: postgres\nA> select pg_sleep(600)\n";

/// Counts running statements of [`LONG`].
const COUNT_RUNNING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' \
                    AND pid <> pg_backend_pid() AND state = 'active'";
/// Counts schemas and databases of the lab.
const COUNT_CREATED: &str = "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'hierlock_lab%') \
                    + (SELECT count(*) FROM pg_database WHERE datname LIKE 'hierlock_lab%')";

fn count(server: &Sandbox, sql: &str) -> i64 {
    let output = Command::new("psql").args([server.url(), "-Atqc", sql]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// A run of a quick scenario and of one that never ends.
struct Run {
    place: TestDirectory,
    process: Child,
}

impl Run {
    /// Starts the run; waits until the second scenario is running.
    fn start(server: &Sandbox, options: &[&str]) -> Self {
        let place = TestDirectory::new();
        let mut command = hierlock(&["lab", "run", "--jobs", "1", "--url", server.url()]);
        for (name, text) in [("quick.lab", QUICK), ("long.lab", LONG)] {
            let path = place.directory.path().join(name);
            fs::write(&path, text).unwrap();
            command.arg(path);
        }
        command.args(options).current_dir(place.directory.path());
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let run = Self { place, process };
        until("the second scenario has started", || count(server, COUNT_RUNNING) > 0);
        run
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
    }

    /// Waits for the end; returns the exit code, standard output, and the directory with the reports.
    fn end(mut self) -> (Option<i32>, String, TestDirectory) {
        let mut printed = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (self.process.wait().unwrap().code(), printed, self.place)
    }
}

fn read(place: &TestDirectory, file: &str) -> String {
    let path: PathBuf = place.directory.path().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file} was not written: {error}"))
}

#[test]
fn ctrl_c_keeps_finished_records_in_every_report() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let run = Run::start(&server, &["--json", "--html", "r.html", "--junit", "r.xml"]);
    run.signal(Signal::SIGINT);
    let (code, printed, place) = run.end();
    assert_eq!(code, Some(130), "{printed}");
    assert_eq!(count(&server, COUNT_CREATED), 0);
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["interruption"], serde_json::json!({"finished": 1, "planned": 2}));
    assert_eq!((&report["agrees"], &report["tally"]["agreed"]), (&false.into(), &1.into()));
    assert_eq!(report["records"][0]["title"], "Quick");
    let html = read(&place, "r.html");
    assert!(html.contains("This report is partial.") && html.contains("Quick"), "{html}");
    let junit = read(&place, "r.xml");
    assert!(junit.contains("1 of 2 cases were run") && junit.contains("<error"), "{junit}");

    let run = Run::start(&server, &[]);
    run.signal(Signal::SIGTERM);
    let (code, printed, _) = run.end();
    assert_eq!(code, Some(143), "{printed}");
    assert!(
        printed.contains("interrupted: 1 of 2 cases were run; this report is partial"),
        "{printed}"
    );
    assert!(printed.contains("1 agreed"), "{printed}");
    assert_eq!(count(&server, COUNT_CREATED), 0);
    until("no statement runs", || count(&server, COUNT_RUNNING) == 0);
}

/// Blessing a file after only some of its cases have run would write expectations for cases that were not observed.
#[test]
fn ctrl_c_with_bless_changes_no_file() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let run = Run::start(&server, &["--bless"]);
    run.signal(Signal::SIGINT);
    let (code, _, place) = run.end();
    assert_eq!((code, read(&place, "quick.lab").as_str()), (Some(130), QUICK));
}

/// A server whose processes are all stopped: it does not respond, not even on open connections.
struct StoppedServer(Vec<Pid>);

impl StoppedServer {
    fn new(server: &Sandbox) -> Self {
        let postmaster = server.pid().unwrap() as i32;
        let mut stopped = Self(vec![Pid::from_raw(postmaster)]);
        // The postmaster is stopped first, so that it starts no other process.
        kill(stopped.0[0], Signal::SIGSTOP).unwrap();
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
        for child in children.unwrap().split_whitespace() {
            let child = Pid::from_raw(child.parse().unwrap());
            // The process may have ended already.
            if kill(child, Signal::SIGSTOP).is_ok() {
                stopped.0.push(child);
            }
        }
        stopped
    }
}

impl Drop for StoppedServer {
    fn drop(&mut self) {
        for pid in &self.0 {
            _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// While the server does not respond, the lab cannot clean up there. A second signal ends the run anyway.
#[test]
fn a_second_signal_ends_the_run_at_once() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let mut run = Run::start(&server, &[]);
    let stopped = StoppedServer::new(&server);
    run.signal(Signal::SIGINT);
    let mut lines = BufReader::new(run.process.stderr.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().contains("interrupted: ")),
        "the interrupt is not reported"
    );
    run.signal(Signal::SIGTERM);
    let (code, ..) = run.end();
    drop(stopped);
    assert_eq!(code, Some(143), "the exit code is that of the second signal");
}

#[test]
fn an_interrupted_matrix_prints_the_results_so_far() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let arguments = ["lab", "matrix", "--engine", "memory,postgres", "--size", "5x5x5", "--modes"];
    let mut command = hierlock(&arguments);
    command.args(["--json", "--jobs", "8", "--url", server.url()]);
    let process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("the matrix has started", || count(&server, COUNT_CREATED) > 0);
    kill(Pid::from_raw(process.id() as i32), Signal::SIGINT).unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let unusable = report["unusable"].as_array().unwrap();
    assert!(!unusable.is_empty(), "{unusable:?}");
    assert!(unusable.iter().all(|place| place["why"].as_str().unwrap().contains("partial")));
    assert_eq!(count(&server, COUNT_CREATED), 0);
}
