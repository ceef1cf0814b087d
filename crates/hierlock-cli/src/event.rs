//! Events of a command that runs under a lock or for a job. They go to standard error, because standard output belongs to
//! the command.

use crate::output::{json_line, print_message};
use serde::Serialize;
use std::io::{self, Write};

pub(crate) trait Event: Serialize {
    /// Returns the event as text; `None` if it is printed only as JSON.
    fn text(&self) -> Option<String>;

    /// Returns whether the event is printed even with `--quiet`.
    fn is_error(&self) -> bool {
        true
    }
}

pub(crate) enum Reporter {
    Text,
    Json,
    Quiet,
}

impl Reporter {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Json,
            (_, true) => Self::Quiet,
            _ => Self::Text,
        }
    }

    pub(crate) fn report(&self, event: &impl Event) {
        match self {
            // If standard error cannot be written, the exit code still reports the result.
            Self::Json => _ = io::stderr().write_all(json_line(event).as_bytes()),
            Self::Quiet if !event.is_error() => {}
            Self::Text | Self::Quiet => event.text().into_iter().for_each(print_message),
        }
    }
}

/// Returns every event as JSON and as text, for snapshots.
#[cfg(test)]
pub(crate) fn snapshot(events: &[impl Event]) -> String {
    let lines = events.iter().map(|event| {
        let text = event.text().unwrap_or_else(|| "(nothing)".into());
        format!("{}  {text}", json_line(event))
    });
    lines.collect::<Vec<_>>().join("\n")
}
