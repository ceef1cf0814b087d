//! A command that we run: a process group of its own, which does not outlive us. It has the terminal, if we
//! have one, or pipes to us.

#![expect(unsafe_code, reason = "what happens between fork and exec has no safe interface")]

use crate::exit::{self, Exit};
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getppid, tcgetpgrp, tcsetpgrp};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long a command may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) code: u8,
    pub(crate) signal: Option<i32>,
}

pub(crate) struct Child {
    /// Also the number of its process group.
    pid: Pid,
    changes: tokio::signal::unix::Signal,
    terminal: Option<Terminal>,
    ended: Option<Ended>,
}

/// Our ends of the pipes of a command.
pub(crate) struct Pipes {
    pub(crate) input: Option<ChildStdin>,
    pub(crate) errors: Option<ChildStderr>,
}

impl Child {
    /// Starts a command on our standard input and output, and lends it the terminal; the exit code for it if
    /// that fails.
    pub(crate) fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Self, (io::Error, Exit)> {
        let terminal = Terminal::if_ours();
        let (_, mut child) = Self::spawn(command, |command| _ = command.envs(variables))?;
        child.terminal = terminal;
        child.lend_terminal();
        Ok(child)
    }

    /// Starts one that reads its standard input from us, and whose standard error we read.
    pub(crate) fn start_piped(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<(Self, Pipes), (io::Error, Exit)> {
        let (mut process, child) = Self::spawn(command, |command| {
            command.envs(variables).stdin(Stdio::piped()).stderr(Stdio::piped());
        })?;
        Ok((child, Pipes { input: process.stdin.take(), errors: process.stderr.take() }))
    }

    fn spawn(
        command: &[OsString],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<(std::process::Child, Self), (io::Error, Exit)> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| (io::Error::other("there is no command"), exit::USAGE))?;
        // Before the start, so that no change is missed.
        let changes = signal(SignalKind::child()).map_err(|error| (error, exit::UNAVAILABLE))?;
        let us = Pid::this();
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        prepare(&mut command);
        // SAFETY: prctl, getppid and _exit are async-signal-safe, and nothing allocates.
        unsafe {
            command.pre_exec(move || {
                // Were we killed outright, what we hold would be free: then the command must not go on.
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                if getppid() != us {
                    // We were gone before that took effect. An error could be reported to nobody, and the standard
                    // library aborts with "fatal runtime error" when it tries.
                    libc::_exit(exit::CANNOT_START.0.into());
                }
                Ok(())
            });
        }
        let process = command.spawn().map_err(|error| {
            let exit = match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::CANNOT_START,
            };
            let name = program.to_string_lossy();
            (io::Error::new(error.kind(), format!("`{name}`: {error}")), exit)
        })?;
        // A process number always fits.
        let pid = Pid::from_raw(process.id() as i32);
        Ok((process, Self { pid, changes, terminal: None, ended: None }))
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub(crate) async fn ended(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.ended {
                return ended;
            }
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    // Exit codes have eight bits.
                    self.ended = Some(Ended { code: code as u8, signal: None });
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    let signal = signal as i32;
                    self.ended =
                        Some(Ended { code: exit::of_signal(signal), signal: Some(signal) });
                }
                Ok(WaitStatus::Stopped(_, signal)) => self.stopped(signal),
                // It is still running, or something was interrupted: look again when told to.
                _ => _ = self.changes.recv().await,
            }
        }
    }

    /// Passes a signal on to the whole group.
    pub(crate) fn signal(&self, number: i32) {
        if let Ok(signal) = Signal::try_from(number) {
            // A group that has just ended cannot be told.
            let _ = killpg(self.pid, signal);
        }
    }

    /// Asks the group to end, and ends it if it does not.
    pub(crate) async fn end(&mut self) {
        self.signal(Signal::SIGTERM as i32);
        // A stopped process does not hear the request.
        self.signal(Signal::SIGCONT as i32);
        if tokio::time::timeout(GRACE, self.ended()).await.is_err() {
            self.signal(Signal::SIGKILL as i32);
            self.ended().await;
        }
        // Those whom the command left behind.
        self.signal(Signal::SIGKILL as i32);
    }

    /// At a terminal we stop with the command (Ctrl-Z), and go on with it.
    fn stopped(&self, by: Signal) {
        let Some(terminal) = &self.terminal else { return };
        let touched_it_early = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if !touched_it_early {
            terminal.give_to(getpgrp());
            // Until the shell continues us.
            let _ = raise(Signal::SIGSTOP);
        }
        self.lend_terminal();
        self.signal(Signal::SIGCONT as i32);
    }

    fn lend_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give_to(self.pid);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Whoever started it has gone away.
            self.signal(Signal::SIGKILL as i32);
        }
        if let Some(terminal) = &self.terminal {
            terminal.give_to(getpgrp());
        }
    }
}

/// Standard input, if it is a terminal and we are in its foreground.
struct Terminal;

impl Terminal {
    fn if_ours() -> Option<Self> {
        let foreground = tcgetpgrp(io::stdin()).ok()?;
        if foreground != getpgrp() {
            return None;
        }
        // Taking the terminal back from the command would otherwise stop us.
        let mut set = SigSet::empty();
        set.add(Signal::SIGTTOU);
        set.thread_block().ok()?;
        Some(Self)
    }

    fn give_to(&self, group: Pid) {
        // A terminal that has gone away needs no owner.
        let _ = tcsetpgrp(io::stdin(), group);
    }
}
