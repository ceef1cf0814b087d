//! The command that `hierlock` runs, in its own process group. It does not outlive `hierlock`.

#![expect(unsafe_code, reason = "code between fork and exec has no safe interface")]

use crate::exit::{self, CommandError};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getppid, tcgetpgrp, tcsetpgrp};
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

/// The environment variables of a command, in addition to those of `hierlock`.
type Variables = [(&'static str, String)];

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ChildExit {
    pub(crate) code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
}

pub(crate) struct Child {
    /// The process id, which is also the id of the process group.
    pid: Pid,
    state_changes: tokio::signal::unix::Signal,
    has_terminal: bool,
    exit: Option<ChildExit>,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stderr: Option<ChildStderr>,
}

impl Child {
    /// Starts a command that inherits standard input and error, and makes it the foreground process group.
    pub(crate) fn start(command: &[OsString], variables: &Variables) -> Result<Self, CommandError> {
        let has_terminal = may_give_terminal();
        let mut child = Self::spawn(command, variables, Stdio::inherit)?;
        child.has_terminal = has_terminal;
        child.give_terminal_to(child.pid);
        Ok(child)
    }

    /// Starts a command. `stdio` makes its standard input and its standard error.
    pub(crate) fn spawn(
        command: &[OsString],
        variables: &Variables,
        stdio: fn() -> Stdio,
    ) -> Result<Self, CommandError> {
        let failed = |code, error: &dyn std::fmt::Display| {
            CommandError::new(code, format!("cannot run the command: {error}"))
        };
        let (program, arguments) =
            command.split_first().ok_or_else(|| failed(exit::USAGE, &"there is no command"))?;
        // Registered before the start, so that no SIGCHLD is missed.
        let state_changes =
            signal(SignalKind::child()).map_err(|error| failed(exit::UNAVAILABLE, &error))?;
        let parent = Pid::this();
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().cloned()).process_group(0);
        command.stdin(stdio()).stderr(stdio());
        // SAFETY: prctl, getppid and _exit are async-signal-safe, and nothing allocates.
        unsafe {
            command.pre_exec(move || {
                // If `hierlock` is killed, its locks become free, so the command must end too.
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                if getppid() != parent {
                    // `hierlock` ended before the signal was set. No process is left to receive an error.
                    libc::_exit(exit::CANNOT_START.into());
                }
                Ok(())
            });
        }
        let mut process = command.spawn().map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::CANNOT_START,
            };
            failed(code, &format!("`{}`: {error}", program.to_string_lossy()))
        })?;
        Ok(Self {
            // Process ids fit into an i32.
            pid: Pid::from_raw(process.id() as i32),
            state_changes,
            has_terminal: false,
            exit: None,
            stdin: process.stdin.take(),
            stderr: process.stderr.take(),
        })
    }

    /// Waits until the command has ended.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub(crate) async fn wait(&mut self) -> ChildExit {
        loop {
            if let Some(exit) = self.exit {
                return exit;
            }
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    // Exit codes have eight bits.
                    self.exit = Some(ChildExit { code: code as u8, signal: None });
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    let (code, signal) = (exit::of_signal(signal as i32), Some(signal as i32));
                    self.exit = Some(ChildExit { code, signal });
                }
                Ok(WaitStatus::Stopped(_, signal)) => self.stop_with_command(signal),
                // The command still runs, or the call was interrupted: check again after the next SIGCHLD.
                _ => _ = self.state_changes.recv().await,
            }
        }
    }

    /// Forwards a signal to the whole process group.
    pub(crate) fn signal(&self, number: i32) {
        if let Ok(signal) = Signal::try_from(number) {
            // Fails only if the group has ended.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Sends SIGTERM to the process group, and SIGKILL if the command has not ended after [`TERMINATION_GRACE`].
    pub(crate) async fn terminate(&mut self) {
        self.signal(Signal::SIGTERM as i32);
        // A stopped process does not handle SIGTERM.
        self.signal(Signal::SIGCONT as i32);
        if tokio::time::timeout(TERMINATION_GRACE, self.wait()).await.is_err() {
            self.signal(Signal::SIGKILL as i32);
            self.wait().await;
        }
        // Ends processes that the command left behind.
        self.signal(Signal::SIGKILL as i32);
    }

    /// At a terminal, stops `hierlock` together with the command (Ctrl-Z), and continues it together with the command.
    fn stop_with_command(&self, signal: Signal) {
        if !self.has_terminal {
            return;
        }
        // SIGTTIN and SIGTTOU: the command used the terminal before it was in the foreground.
        if !matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU) {
            self.give_terminal_to(getpgrp());
            // Returns when the shell continues `hierlock`.
            let _ = raise(Signal::SIGSTOP);
        }
        self.give_terminal_to(self.pid);
        self.signal(Signal::SIGCONT as i32);
    }

    fn give_terminal_to(&self, group: Pid) {
        if self.has_terminal {
            // Fails only if the terminal is gone.
            let _ = tcsetpgrp(io::stdin(), group);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.signal(Signal::SIGKILL as i32);
        }
        self.give_terminal_to(getpgrp());
    }
}

/// Returns whether this process is in the foreground of the terminal of standard input.
fn may_give_terminal() -> bool {
    // Without this, taking the terminal back from the command would stop this process.
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    tcgetpgrp(io::stdin()) == Ok(getpgrp()) && set.thread_block().is_ok()
}
