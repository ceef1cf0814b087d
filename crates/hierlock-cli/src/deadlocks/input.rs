//! Reads deadlocks from files, directories and standard input.

use crate::exit::CommandError;
use crate::output::print_message;
use crate::usage::redact_argument;
use hierlock_engine::introspection::{DeadlockDump, is_server_text, read_deadlocks};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The deadlocks of all inputs.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) deadlocks: Vec<DeadlockDump>,
    /// The number of texts of a known kind, with or without a deadlock.
    pub(super) known_texts: usize,
    /// The number of texts of an unknown kind that were named on the command line.
    pub(super) unknown_texts: usize,
}

impl Input {
    pub(super) fn read(names: &[String]) -> Result<Self, CommandError> {
        let mut input = Self::default();
        for name in names {
            if name == "-" {
                let mut bytes = Vec::new();
                let read = io::stdin().read_to_end(&mut bytes);
                read.map_err(|error| cannot_read("standard input", &error))?;
                input.add("standard input", &bytes, true);
            } else if Path::new(name).is_dir() {
                for file in files_of(Path::new(name))? {
                    input.add_file(&file, false)?;
                }
            } else {
                input.add_file(Path::new(name), true)?;
            }
        }
        Ok(input)
    }

    fn add_file(&mut self, file: &Path, is_named: bool) -> Result<(), CommandError> {
        // The argument may be a URL with a password, by mistake.
        let name = redact_argument(&file.display().to_string());
        let bytes = fs::read(file).map_err(|error| cannot_read(&name, &error))?;
        self.add(&name, &bytes, is_named);
        Ok(())
    }

    fn add(&mut self, name: &str, bytes: &[u8], is_named: bool) {
        // Keys and statements may have any character set.
        let text = String::from_utf8_lossy(bytes);
        let deadlocks = read_deadlocks(&text);
        if !deadlocks.is_empty() || is_server_text(&text) {
            self.known_texts += 1;
            self.deadlocks.extend(deadlocks);
        } else {
            self.unknown_texts += usize::from(is_named);
            print_message(format!(
                "{name} is neither of InnoDB nor a log of PostgreSQL; paste the section LATEST DETECTED DEADLOCK, or \
                 the lines from `deadlock detected` on"
            ));
        }
    }
}

fn cannot_read(name: &str, error: &io::Error) -> CommandError {
    let hint = if name.contains("://") { "; give the URL of a server with --url" } else { "" };
    CommandError::unavailable(format!("cannot read {name}: {error}{hint}"))
}

/// Returns the files of a directory, ordered by name, without hidden files.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let failed = |error: io::Error| cannot_read(&directory.display().to_string(), &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_file() && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
