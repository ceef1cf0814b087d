//! A database for leases and queues, and commands that use it.

use crate::support::{code, hierlock, stderr, stdout};
use hierlock::database::Database;
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) struct TestDatabase {
    pub(crate) url: String,
    /// The directory of the SQLite file and of other files of the test.
    pub(crate) directory: TempDir,
    server: Option<Sandbox>,
}

impl TestDatabase {
    /// Returns a SQLite file that does not exist yet.
    pub(crate) fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("toolbox.db").display());
        Self { url, directory, server: None }
    }

    /// Starts a server without tables of hierlock. Returns `None` if it is not installed, except in CI.
    pub(crate) fn server(engine: Engine) -> Option<Self> {
        Self::server_with(engine, &[])
    }

    /// Starts such a server with these options on its command line.
    pub(crate) fn server_with(engine: Engine, options: &[&str]) -> Option<Self> {
        let server = Sandbox::for_tests_with(engine, options)?;
        let directory = tempfile::tempdir().unwrap();
        Some(Self { url: server.url().to_owned(), directory, server: Some(server) })
    }

    /// Shuts the server down, if there is one.
    pub(crate) fn shut_down(&mut self) {
        self.server = None;
    }

    /// Sends a signal to the server process.
    pub(crate) fn signal_server(&self, signal: Signal) {
        let pid = self.server.as_ref().and_then(Sandbox::pid).unwrap();
        kill(Pid::from_raw(pid as i32), signal).unwrap();
    }

    /// Starts a killed server again.
    pub(crate) fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = hierlock(arguments);
        command.env("HIERLOCK_DATABASE_URL", &self.url);
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command, which must succeed; returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(code(&output), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Runs a command with `--json`, which must succeed; returns its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.json_with(0, arguments)
    }

    /// Runs a command with `--json`, which must exit with this code; returns its JSON.
    pub(crate) fn json_with(&self, exit: i32, arguments: &[&str]) -> Value {
        let output = self.output(&[arguments, &["--json"]].concat());
        assert_eq!(code(&output), Some(exit), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{arguments:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a command, which must fail with this code and an empty standard output; returns its message.
    pub(crate) fn fails(&self, exit: i32, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(code(&output), Some(exit), "{arguments:?}: {output:?}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
        stderr(&output)
    }

    /// Runs SQL directly in the database.
    pub(crate) fn run(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut tx = Database::connect(&self.url).await.unwrap().begin().await.unwrap();
            tx.run(sql).await.unwrap();
            tx.commit().await.unwrap();
        });
    }

    /// Runs a command with `input` on its standard input.
    pub(crate) fn output_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        process.wait_with_output().unwrap()
    }
}
