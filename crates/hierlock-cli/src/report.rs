//! Events in, text or JSON out. Everything goes to standard error: standard output is the command's.

use crate::show::message;
use serde::Serialize;
use std::io::{self, Write};

/// Something that happens while a command of somebody else runs.
pub(crate) trait Event: Serialize {
    /// As a person reads it; nothing if it is not worth a word.
    fn text(&self) -> Option<String>;

    /// Is it told to those who want to hear nothing, too?
    fn is_grave(&self) -> bool;
}

pub(crate) struct Reporter {
    style: Style,
}

enum Style {
    Text,
    Json,
    Quiet,
}

impl Reporter {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let style = match (json, quiet) {
            (true, _) => Style::Json,
            (_, true) => Style::Quiet,
            _ => Style::Text,
        };
        Self { style }
    }

    pub(crate) fn tell(&self, event: &impl Event) {
        let line = match self.style {
            Style::Json => serde_json::to_string(event).ok(),
            Style::Quiet if !event.is_grave() => None,
            Style::Text | Style::Quiet => {
                event.text().map(|text| format!("hierlock: {}", message(&text)))
            }
        };
        if let Some(line) = line {
            // If nobody can read it, the exit code still tells.
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    }
}
