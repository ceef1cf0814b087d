//! Runs the `hierlock` command, with a lock file for each test.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A lock file and commands that use it.
pub(crate) struct TestDirectory {
    pub(crate) directory: TempDir,
}

impl TestDirectory {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.directory.path().join("deep").join("locks")
    }

    /// Returns `hierlock run --url … ARGUMENTS`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Command {
        let mut command = hierlock(&["run", "--url"]);
        command.arg(format!("file:{}", self.lock_file().display())).args(arguments);
        command
    }

    /// Starts a process that holds a target until its input ends. The target is held when this returns.
    pub(crate) fn hold(&self, arguments: &[&str]) -> Holder {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--", "sh", "-c", "echo $$; exec cat"]);
        Holder::start(self.run(&arguments))
    }

    pub(crate) fn is_free(&self, target: &str) -> bool {
        let status = self.run(&["--try", "--quiet", target, "--", "true"]).status().unwrap();
        match status.code() {
            Some(0) => true,
            Some(75) => false,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the command with default signal handlers. Otherwise it would inherit ignored signals from this process: a shell
/// ignores some signals for background jobs.
pub(crate) fn hierlock(arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_hierlock")]);
    command.args(arguments);
    for variable in ["HIERLOCK_URL", "HIERLOCK_TARGETS", "HIERLOCK_DATABASE_URL"] {
        command.env_remove(variable);
    }
    command
}

pub(crate) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A `hierlock run` whose command has started.
pub(crate) struct Holder {
    pub(crate) process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The process id of the command, which is its first line of output.
    pub(crate) command: i32,
}

impl Holder {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let command =
            line.trim().parse().unwrap_or_else(|_| panic!("the command did not start: {line:?}"));
        Self { process, input, output, command }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    pub(crate) fn write_input(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Closes the input of the command, which ends it; returns the exit code and standard error of hierlock.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        self.input = None;
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> (Option<i32>, String) {
        let code = self.process.wait().unwrap().code();
        let mut printed = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        (code, printed)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until `condition` holds. Panics with `what` after 30 seconds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process has ended; it may still be a zombie.
pub(crate) fn is_gone(process: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
        Err(_) => true,
    }
}
