//! Exit codes, the help texts that list them, and the failures that cause them.

use crate::output::print_message;
use std::fmt::Display;

// `HELP` describes them.
pub(crate) const SUCCESS: u8 = 0;
pub(crate) const DISAGREEMENT: u8 = 1;
pub(crate) const USAGE: u8 = 64;
pub(crate) const INCOMPLETE: u8 = 65;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const NOT_ACQUIRED: u8 = 75;
pub(crate) const LOST: u8 = 76;
pub(crate) const CANNOT_START: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the exit code that a shell reports for a process that a signal ended.
pub(crate) fn of_signal(signal: i32) -> u8 {
    // Signal numbers are below 128.
    128 + signal as u8
}

/// The end of `hierlock --help`.
pub(crate) const HELP: &str = "\
Exit codes (`hierlock COMMAND --help` lists those of a command):
  0      success; `run`: the exit code of its command
  1      `lab`: a scenario does not agree with what was observed
  64     the call was wrong: an option, a path, a URL
  65     `provision --check`: rows are missing, or there are too many; `doctor`: there is a problem;
         `deadlocks`: a text is of no known kind
  69     the file, the server or the database cannot be used
  75     the lock is not free, or another owner has the lease
  76     the lock or the lease was lost; `locks kill`: the session is gone
  126    the command to run could not be started
  127    the command to run was not found
  128+n  signal n ended it";

/// The exit codes of each command, for its `--help`.
const CODES: [(&str, &str); 15] = [
    (
        "run",
        "  that of the command, or 128+n if signal n ended it
  64   the call was wrong          126  the command could not be started
  69   the lock cannot be used     127  the command was not found
  75   the lock was not free (in time)
       After these (64, 69, 75, 126, 127) the command did not run
  76   the command ran, and the lock was lost meanwhile: the command was ended, or had
       ended on its own when the release could not be confirmed",
    ),
    (
        "plan",
        "  0    success                     64   the call was wrong
  69   the server cannot be used: not reached, or not provisioned",
    ),
    (
        "provision",
        "  0    ready, or the check found nothing wrong
  64   the call was wrong          65   the check found rows missing, or too many
  69   the server cannot be used, or its table is for other clients",
    ),
    (
        "size",
        "  0    success                     64   the call was wrong
  69   the file for the plot cannot be written",
    ),
    (
        "locks",
        "  0    success                     64   the call was wrong, or not confirmed
  69   the server cannot be used; `kill`: not permitted
  76   `kill`: there is no such session any more, or another has its number",
    ),
    (
        "doctor",
        "  0    no problem was found; there may be warnings
  64   the call was wrong          65   there is a problem (with --strict: or a warning)
  69   the server cannot be reached, or failed meanwhile",
    ),
    (
        "top",
        "  0    success                     64   the call was wrong, or there is no terminal
  69   the server cannot be used: at the start, or with --once
  128+n  signal n ended it",
    ),
    (
        "hot",
        "  0    success, also after Ctrl-C  64   the call was wrong
  69   the server cannot be used, or went away: what was seen before is printed",
    ),
    (
        "lease",
        "  0    success                     64   the call was wrong
  69   the database cannot be used, or has no tables yet
  75   `acquire`: another owner has a lease that excludes it
  76   `renew`, `force-release`: there is no such lease any more",
    ),
    (
        "queue",
        "  0    success; `work`: stopped, or the queue is empty
  64   the call was wrong
  69   the database cannot be used or has no table yet; `work`: a result could not be recorded
  126  `work`: the command could not be started
  127  `work`: the command was not found
  128+n  `work`: a second signal, n, ended the commands",
    ),
    (
        "lab",
        "  0    every scenario agrees       1    one does not; `fmt --check`: a file would change
  64   the call was wrong, or a scenario file
  69   no server is available (with --strict: one of them is not)
  128+n  signal n ended it: the report is partial",
    ),
    (
        "deadlocks",
        "  0    deadlocks were printed, or there is none (--json: an empty list)
  64   the call was wrong          65   a text is neither of InnoDB nor a log of PostgreSQL,
                                        or has too little of the deadlock for --svg
  69   a file cannot be read, or the server cannot be asked
  128+n  signal n ended it",
    ),
    (
        "sandbox",
        "  0    the server was ended, or runs on (--keep)
  64   the call was wrong          69   the server is not installed, or did not start
  128+n  signal n came before the server was ready",
    ),
    ("completions", "  0    success                     64   the call was wrong"),
    ("man", "  0    success                     64   there is no such command"),
];

/// Adds the exit codes to the help of every command.
pub(crate) fn add_exit_codes(command_line: clap::Command) -> clap::Command {
    CODES.iter().fold(command_line, |command_line, (name, codes)| {
        command_line.mut_subcommand(name, |command| add_to_help(command, codes))
    })
}

fn add_to_help(command: clap::Command, codes: &str) -> clap::Command {
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command.mut_subcommands(|command| add_to_help(command, codes));
    command.after_help(format!("{examples}\n\nExit codes:\n{codes}"))
}

/// The reason why a command failed: an exit code, and a message for standard error.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) code: u8,
    /// Empty after a signal, which needs no message.
    pub(crate) message: String,
}

/// The result of a command or of a part of it, by default an exit code; or the failure of the command.
pub(crate) type CommandResult<T = u8> = Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(code: u8, message: impl ToString) -> Self {
        Self { code, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn unavailable(message: impl ToString) -> Self {
        Self::new(UNAVAILABLE, message)
    }

    /// Returns a function for `map_err`. The message is `cannot WHAT: ERROR`.
    pub(crate) fn cannot<E: Display>(what: impl Display) -> impl Fn(E) -> Self {
        move |error| Self::unavailable(format!("cannot {what}: {error}"))
    }

    pub(crate) fn signal(signal: i32) -> Self {
        Self::new(of_signal(signal), "")
    }

    /// Prints the message on standard error; returns the exit code.
    pub(crate) fn print(self) -> u8 {
        if !self.message.is_empty() {
            print_message(self.message);
        }
        self.code
    }
}

impl From<hierlock::Error> for CommandError {
    fn from(error: hierlock::Error) -> Self {
        let code = match &error {
            error if error.is_usage() => USAGE,
            error if error.is_lost() => LOST,
            error if error.is_retryable() => NOT_ACQUIRED,
            _ => UNAVAILABLE,
        };
        Self::new(code, error)
    }
}
