//! Colour, for those who can see it. Whether that is so is not asked here.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default();
pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Each session has a colour of its own, as long as there are enough.
const SESSIONS: [AnsiColor; 4] =
    [AnsiColor::Cyan, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::Green];

/// Paints, or leaves plain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    pub(crate) colour: bool,
}

impl Paint {
    pub(crate) fn with(self, style: Style, text: impl Display) -> String {
        match self.colour {
            true => format!("{style}{text}{style:#}"),
            false => text.to_string(),
        }
    }

    /// The style of the nth session.
    pub(crate) fn session(self, nth: usize) -> Style {
        SESSIONS[nth % SESSIONS.len()].on_default().bold()
    }
}
