//! The log of killed sessions.

use crate::database::state_directory;
use crate::exit::CommandError;
use crate::output::cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Returns the name of the user, or of the user who runs sudo.
pub(crate) fn user_name() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("SUDO_USER").or_else(|| variable("USER")).or_else(|| variable("LOGNAME"));
    name.unwrap_or_else(|| format!("user {}", nix::unistd::getuid()))
}

/// Where a line of the log is written in addition to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEcho {
    StandardError,
    /// Only to the file, because `hierlock top` draws on the terminal.
    None,
}

/// The open log of killed sessions.
#[derive(Debug)]
pub(crate) struct KillLog {
    path: PathBuf,
    file: File,
    echo: LogEcho,
}

impl KillLog {
    /// Opens the log at `path`, by default in the state directory.
    pub(crate) fn open(path: Option<&Path>, echo: LogEcho) -> Result<Self, CommandError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => state_directory("the log", "--log")?.join("kills.log"),
        };
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let file = file.map_err(|error| {
            let path = cell(&path.display().to_string(), 400);
            CommandError::unavailable(format!(
                "cannot open the log `{path}`: {error}; nothing was ended"
            ))
        })?;
        Ok(Self { path, file, echo })
    }

    pub(super) fn write(mut self, line: &str) -> Result<(), CommandError> {
        if self.echo == LogEcho::StandardError {
            let _ = io::stderr().write_all(line.as_bytes());
        }
        self.file.write_all(line.as_bytes()).map_err(|error| {
            let path = self.path.display();
            CommandError::unavailable(format!(
                "the session was ended, and `{path}` cannot be written: {error}"
            ))
        })
    }
}
