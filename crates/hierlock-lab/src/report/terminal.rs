//! Text for a terminal, with or without colours.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;

pub(crate) const SUCCESS: Style = AnsiColor::Green.on_default();
pub(crate) const FAILURE: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// The colours of the sessions, which repeat.
pub(crate) const SESSIONS: [Style; 4] = [
    AnsiColor::Cyan.on_default().bold(),
    AnsiColor::Magenta.on_default().bold(),
    AnsiColor::Blue.on_default().bold(),
    AnsiColor::Green.on_default().bold(),
];

/// A text that grows line by line.
#[derive(Debug, Default)]
pub(crate) struct TerminalText {
    pub(crate) text: String,
    /// Whether [`TerminalText::styled`] adds escape codes.
    pub(crate) colour: bool,
}

impl TerminalText {
    pub(crate) fn styled(&self, style: Style, text: impl Display) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    pub(crate) fn push(&mut self, text: impl AsRef<str>) {
        self.text += text.as_ref();
    }

    pub(crate) fn push_styled(&mut self, style: Style, text: impl Display) {
        self.text += &self.styled(style, text);
    }

    /// Adds a text and ends the line, without blanks at its end.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.push(text);
        self.text.truncate(self.text.trim_end_matches(' ').len());
        self.text.push('\n');
    }
}
