//! Stopping `hierlock queue work` while its server is down. The failure this prevents: it took up to a minute, or it
//! never ended.

use crate::support::{Holder, code, is_gone, stdout, until};
use crate::test_database::TestDatabase;
use hierlock_sandbox::Engine;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

/// Less than the connect timeout, and more than a slow machine needs.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// A worker without jobs.
struct IdleWorker {
    process: Child,
    stderr_lines: Lines<BufReader<ChildStderr>>,
}

impl IdleWorker {
    /// Starts a worker, and waits until it has done a job.
    fn start(database: &TestDatabase) -> Self {
        database.ok(&["queue", "add", "idle", "x"]);
        let arguments = ["queue", "work", "idle", "--json", "--poll", "10ms", "--", "true"];
        let mut process = database.command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let stderr_lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut idle = Self { process, stderr_lines };
        idle.wait_for_line(r#""event":"done""#);
        idle
    }

    fn wait_for_line(&mut self, what: &str) {
        let is_printed = self.stderr_lines.by_ref().any(|line| line.unwrap().contains(what));
        assert!(is_printed, "the worker never printed {what}");
    }

    /// Sends one signal and checks that the worker ends in time.
    fn assert_ends_soon(mut self) {
        let pid = Pid::from_raw(self.process.id() as i32);
        kill(pid, Signal::SIGTERM).unwrap();
        let started = Instant::now();
        until("the worker ends", || is_gone(pid.as_raw()) || started.elapsed() > STOP_TIMEOUT);
        println!("{:?} after the signal", started.elapsed());
        assert!(is_gone(pid.as_raw()), "the worker did not end within the limit");
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        self.wait_for_line(r#""event":"ended""#);
    }
}

impl Drop for IdleWorker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns whether the process that listens on this port has unread input.
fn is_unread(port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let port = format!(":{port:04X}");
    fs::read_to_string("/proc/net/tcp").unwrap().lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_server_socket = fields[1].ends_with(&port) && fields[3] == ESTABLISHED;
        is_server_socket && !fields[4].ends_with(":00000000")
    })
}

#[test]
fn a_silent_server_does_not_delay_an_idle_worker() {
    let Some(database) = TestDatabase::server(Engine::Mariadb) else { return };
    database.ok(&["queue", "provision"]);
    let idle = IdleWorker::start(&database);
    let (_, address) = database.url.rsplit_once('@').unwrap();
    let (_, port) = address.split_once('/').unwrap().0.rsplit_once(':').unwrap();
    let port = port.parse().unwrap();
    // If the server stops after it has read a request, the worker sends no other one: then it continues and stops again.
    let mut checks = 0;
    until("a request waits for a response", || {
        if checks % 400 == 0 {
            database.signal_server(Signal::SIGCONT);
            database.signal_server(Signal::SIGSTOP);
        }
        checks += 1;
        is_unread(port)
    });
    idle.assert_ends_soon();
}

/// An idle worker ends at once. A busy worker lets its command finish, tries to record the result, and reports that it
/// cannot. The job is not lost.
#[test]
fn a_killed_server_does_not_delay_a_stop() {
    // Commits must survive the kill.
    let durable = ["-c", "synchronous_commit=on"];
    let Some(mut database) = TestDatabase::server_with(Engine::Postgres, &durable) else { return };
    database.ok(&["queue", "provision"]);
    let mut idle = IdleWorker::start(&database);
    database.ok(&["queue", "add", "mail", "precious"]);
    let go = database.path("go");
    let script = format!("echo $$; while ! [ -e {go} ]; do sleep 0.01; done; echo ended");
    let mut busy = database.command(&["queue", "work", "mail", "--lease", "5m", "--"]);
    busy.args(["sh", "-c", &script]);
    let mut busy = Holder::start(busy);

    database.signal_server(Signal::SIGKILL);
    idle.wait_for_line("tries again");
    idle.assert_ends_soon();
    kill(Pid::from_raw(busy.pid()), Signal::SIGTERM).unwrap();
    let mut errors = BufReader::new(busy.process.stderr.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("stopping") {
        assert!(errors.read_line(&mut printed).unwrap() > 0, "{printed}");
    }
    assert!(!is_gone(busy.command), "the command was ended: {printed}");
    fs::write(go, "").unwrap();
    assert_eq!(busy.line(), "ended");
    errors.read_to_string(&mut printed).unwrap();
    assert_eq!(busy.process.wait().unwrap().code(), Some(69), "{printed}");
    let sentence =
        "has ended, and that could not be recorded: it will come back when its lease ends";
    assert!(printed.contains(sentence) && printed.contains("1 not recorded"), "{printed}");

    database.restart();
    database.run("UPDATE hier_jobs SET due_ms = 0 WHERE state = 2");
    let script = "read payload; echo $payload $HIERLOCK_ATTEMPT; kill -TERM $PPID";
    let mut again = database.command(&["queue", "work", "mail", "--poll", "50ms", "--"]);
    let output = again.args(["sh", "-c", script]).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (Some(0), "precious 2\n".to_owned()));
}
