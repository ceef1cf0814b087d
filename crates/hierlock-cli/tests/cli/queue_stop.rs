//! `hierlock queue work` is told to stop while its server is away: it once took up to a minute, or for ever.

use crate::support::{Holder, code, is_gone, stdout, until};
use crate::test_database::TestDatabase;
use hierlock_sandbox::Engine;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

/// Less than a connection is waited for, and more than a slow machine needs.
const SOON: Duration = Duration::from_secs(15);

/// A worker that has nothing to do.
struct Idle {
    process: Child,
    says: Lines<BufReader<ChildStderr>>,
}

impl Idle {
    /// It has done a job when this returns.
    fn start(store: &TestDatabase) -> Self {
        store.ok(&["queue", "add", "idle", "x"]);
        let arguments = ["queue", "work", "idle", "--json", "--poll", "10ms", "--", "true"];
        let mut process = store.command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut idle = Self { process, says };
        idle.until_it_says(r#""event":"done""#);
        idle
    }

    fn until_it_says(&mut self, what: &str) {
        let says_so = self.says.by_ref().any(|line| line.unwrap().contains(what));
        assert!(says_so, "it never says {what}");
    }

    /// At the first signal.
    fn ends_soon(mut self) {
        let pid = Pid::from_raw(self.process.id() as i32);
        kill(pid, Signal::SIGTERM).unwrap();
        let begun = Instant::now();
        until("it ends", || is_gone(pid.as_raw()) || begun.elapsed() > SOON);
        println!("{:?} after the signal", begun.elapsed());
        assert!(is_gone(pid.as_raw()), "it stays");
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        self.until_it_says(r#""event":"ended""#);
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is there something for whoever listens on this port that it has not read?
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
fn a_server_that_says_nothing_does_not_keep_an_idle_worker() {
    let Some(store) = TestDatabase::server(Engine::Mariadb) else { return };
    store.ok(&["queue", "provision"]);
    let idle = Idle::start(&store);
    store.signal_server(Signal::SIGSTOP);
    let (_, address) = store.url.rsplit_once('@').unwrap();
    let (_, port) = address.split_once('/').unwrap().0.rsplit_once(':').unwrap();
    let port = port.parse().unwrap();
    until("it asks in vain", || is_unread(port));
    idle.ends_soon();
}

/// An idle worker ends at once. Another one lets its command come to its end, tries to record that, and says
/// that it cannot; the job is not lost.
#[test]
fn a_server_that_was_killed() {
    // What is committed is to outlive it.
    let durable = ["-c", "synchronous_commit=on"];
    let Some(mut store) = TestDatabase::server_with(Engine::Postgres, &durable) else { return };
    store.ok(&["queue", "provision"]);
    let mut idle = Idle::start(&store);
    store.ok(&["queue", "add", "mail", "precious"]);
    let go = store.path("go");
    let script = format!("echo $$; while ! [ -e {go} ]; do sleep 0.01; done; echo ended");
    let mut busy = store.command(&["queue", "work", "mail", "--lease", "5m", "--"]);
    busy.args(["sh", "-c", &script]);
    let mut busy = Holder::start(busy);

    store.signal_server(Signal::SIGKILL);
    idle.until_it_says("tries again");
    idle.ends_soon();
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
