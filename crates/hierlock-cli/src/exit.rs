//! What the exit codes mean: one place for them, listed in `--help` and in the docs.

use crate::show::say;
use std::process::ExitCode;

/// An exit code that hierlock itself chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

/// The call was wrong: an option, a path, a URL.
pub(crate) const USAGE: Exit = Exit(64);
/// A check found rows missing, or too many.
pub(crate) const INCOMPLETE: Exit = Exit(65);
/// The backend could not be used: a file that cannot be opened or locked, a server that is not there.
pub(crate) const UNAVAILABLE: Exit = Exit(69);
/// The lock was not free (in time), or somebody else has a lease.
pub(crate) const NOT_ACQUIRED: Exit = Exit(75);
/// The lock was lost while the command ran, or nobody can tell; or a lease is no longer there.
pub(crate) const LOST: Exit = Exit(76);
/// The command was found but could not be started.
pub(crate) const CANNOT_START: Exit = Exit(126);
/// The command was not found.
pub(crate) const NOT_FOUND: Exit = Exit(127);

/// As a shell says it of a process that a signal ended.
pub(crate) fn of_signal(signal: i32) -> u8 {
    // Signals are below 128.
    128 + signal as u8
}

/// For `--help`.
pub(crate) const HELP: &str = "\
Exit codes of `run`:
  that of the command, or 128+n if signal n ended it
  64   the call was wrong          126  the command could not be started
  69   the lock cannot be used     127  the command was not found
  75   the lock was not free (in time)
       After these (64, 69, 75, 126, 127) the command did not run
  76   the command ran, and the lock was lost meanwhile: the command was ended, or had
       ended by itself when the release could not be confirmed

Exit codes of `plan`:
  0    done                        64   the call was wrong
  69   the server cannot be used: not reached, or not provisioned

Exit codes of `provision`:
  0    ready, or the check found nothing wrong
  64   the call was wrong          65   the check found rows missing, or too many
  69   the server cannot be used, or its table is for other clients

Exit codes of `lease`:
  0    done                        64   the call was wrong
  69   the database cannot be used, or has no tables yet
  75   somebody else has it        76   it is no longer there: why is said

Exit codes of `queue`:
  0    done; `work`: stopped, or the queue is empty
  64   the call was wrong
  69   the database cannot be used, has no table yet, or could not be told what became of a job
  126  the command could not be started
  127  the command was not found
  128+n  a second signal, n, ended the commands of `work`

Exit codes of `lab`:
  0    every verdict agrees        1    one does not
  64   the call was wrong, or a scenario file
  69   no server for it (with --strict: for any of it)
  128+n  signal n ended it: what was run by then is reported, as partial";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.0)
    }
}

impl From<&hierlock::Error> for Exit {
    fn from(error: &hierlock::Error) -> Self {
        match error {
            error if error.is_usage() => USAGE,
            error if error.is_lost() => LOST,
            error if error.is_retryable() => NOT_ACQUIRED,
            _ => UNAVAILABLE,
        }
    }
}

/// Says what went wrong, and gives the exit code for it.
pub(crate) fn fail(error: &hierlock::Error) -> ExitCode {
    say(error);
    Exit::from(error).into()
}

/// Why a command of ours ends before it has done what it was asked.
pub(crate) struct Stop {
    code: Exit,
    why: String,
}

impl Stop {
    pub(crate) fn new(code: Exit, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }

    /// The call was wrong, or a file.
    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Self::new(USAGE, why)
    }

    /// Something is not there.
    pub(crate) fn unavailable(why: impl ToString) -> Self {
        Self::new(UNAVAILABLE, why.to_string())
    }

    /// It was there, and is no more.
    pub(crate) fn lost(why: impl Into<String>) -> Self {
        Self::new(LOST, why)
    }

    /// With more to say.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.why = format!("{} ({more})", self.why);
        self
    }

    /// Says why.
    pub(crate) fn end(self) -> ExitCode {
        say(self.why);
        self.code.into()
    }
}

impl From<hierlock::Error> for Stop {
    fn from(error: hierlock::Error) -> Self {
        Self::new(Exit::from(&error), error.to_string())
    }
}
