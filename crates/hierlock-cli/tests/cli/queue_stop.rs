//! Stopping `hierlock queue work` while its server is down. The failure this prevents: it took up to a minute, or
//! for ever.

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
    says: Lines<BufReader<ChildStderr>>,
}

impl IdleWorker {
    /// Returns when it has done a job.
    fn start(store: &TestDatabase) -> Self {
        store.ok(&["queue", "add", "idle", "x"]);
        let arguments = ["queue", "work", "idle", "--json", "--poll", "10ms", "--", "true"];
        let mut process = store.command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut idle = Self { process, says };
        idle.wait_for_line(r#""event":"done""#);
        idle
    }

    fn wait_for_line(&mut self, what: &str) {
        let says_so = self.says.by_ref().any(|line| line.unwrap().contains(what));
        assert!(says_so, "it never says {what}");
    }

    /// Sends one signal and checks that the worker ends in time.
    fn assert_ends_soon(mut self) {
        let pid = Pid::from_raw(self.process.id() as i32);
        kill(pid, Signal::SIGTERM).unwrap();
        let begun = Instant::now();
        until("the worker ends", || is_gone(pid.as_raw()) || begun.elapsed() > STOP_TIMEOUT);
        println!("{:?} after the signal", begun.elapsed());
        assert!(is_gone(pid.as_raw()), "it stays");
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
        let is_theirs = fields[1].ends_with(&port) && fields[3] == ESTABLISHED;
        is_theirs && !fields[4].ends_with(":00000000")
    })
}

#[test]
fn a_silent_server_does_not_delay_an_idle_worker() {
    let Some(store) = TestDatabase::server(Engine::Mariadb) else { return };
    store.ok(&["queue", "provision"]);
    let idle = IdleWorker::start(&store);
    store.signal_server(Signal::SIGSTOP);
    let (_, address) = store.url.rsplit_once('@').unwrap();
    let (_, port) = address.split_once('/').unwrap().0.rsplit_once(':').unwrap();
    let port = port.parse().unwrap();
    until("a request waits for a response", || is_unread(port));
    idle.assert_ends_soon();
}

/// An idle worker ends at once. A busy one lets its command finish, tries to record that, and reports that it
/// cannot. The job is not lost.
#[test]
fn a_killed_server_does_not_delay_a_stop() {
    // Commits must survive the kill.
    let durable = ["-c", "synchronous_commit=on"];
    let Some(mut store) = TestDatabase::server_with(Engine::Postgres, &durable) else { return };
    store.ok(&["queue", "provision"]);
    let mut idle = IdleWorker::start(&store);
    store.ok(&["queue", "add", "mail", "precious"]);
    let go = store.path("go");
    let script = format!("echo $$; while ! [ -e {go} ]; do sleep 0.01; done; echo ended");
    let mut busy = store.command(&["queue", "work", "mail", "--lease", "5m", "--"]);
    busy.args(["sh", "-c", &script]);
    let mut busy = Holder::start(busy);

    store.signal_server(Signal::SIGKILL);
    idle.wait_for_line("tries again");
    idle.assert_ends_soon();
    kill(Pid::from_raw(busy.pid()), Signal::SIGTERM).unwrap();
    let mut errors = BufReader::new(busy.process.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("stopping") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert!(!is_gone(busy.command), "the command was ended: {said}");
    fs::write(go, "").unwrap();
    assert_eq!(busy.line(), "ended");
    errors.read_to_string(&mut said).unwrap();
    assert_eq!(busy.process.wait().unwrap().code(), Some(69), "{said}");
    let sentence =
        "has ended, and that could not be recorded: it will come back when its lease ends";
    assert!(said.contains(sentence) && said.contains("1 not recorded"), "{said}");

    store.restart();
    store.run("UPDATE hier_jobs SET due_ms = 0 WHERE state = 2");
    let script = "read payload; echo $payload $HIERLOCK_ATTEMPT; kill -TERM $PPID";
    let mut again = store.command(&["queue", "work", "mail", "--poll", "50ms", "--"]);
    let output = again.args(["sh", "-c", script]).output().unwrap();
    assert_eq!((code(&output), stdout(&output)), (Some(0), "precious 2\n".to_owned()));
}
