//! The terminal of `hierlock top`: its screen and its keys.

use crate::exit::CommandError;
use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Frame};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How often the thread that reads keys checks whether its receiver was dropped.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// A terminal in raw mode, on the alternate screen. It is restored on drop, and before a panic is printed.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    pub(super) fn open() -> Result<Self, CommandError> {
        ratatui::try_init().map(Self).map_err(CommandError::cannot("use the terminal"))
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> Result<(), CommandError> {
        self.0.draw(render).map(|_| ()).map_err(CommandError::cannot("use the terminal"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

/// Starts a thread that reads keys and resize events, until the receiver is dropped or the terminal is gone.
pub(super) fn read_events() -> UnboundedReceiver<Result<Event, CommandError>> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            let is_end = event.is_err();
            let event = event.map_err(CommandError::cannot("use the terminal"));
            if sender.send(event).is_err() || is_end {
                return;
            }
        }
    });
    receiver
}
