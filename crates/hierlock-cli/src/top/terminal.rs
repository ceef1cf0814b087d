//! The terminal of `hierlock top`: its screen and its keys.

use crate::exit::CommandError;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often the thread that reads keys checks whether its receiver was dropped.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// A terminal in raw mode, on the alternate screen. It is restored on drop, and before a panic is printed.
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
}

impl Screen {
    pub(super) fn open() -> Result<Self, CommandError> {
        let failed = |error| CommandError::unavailable(format!("cannot use the terminal: {error}"));
        ratatui::try_init().map(|terminal| Self { terminal }).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

/// Starts a thread that reads keys and resize events, until the receiver is dropped or the terminal is gone.
pub(super) fn read_events() -> UnboundedReceiver<io::Result<Event>> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || send_events(&sender));
    receiver
}

fn send_events(sender: &UnboundedSender<io::Result<Event>>) {
    while !sender.is_closed() {
        let event = match event::poll(KEY_WAIT) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let is_end = event.is_err();
        if sender.send(event).is_err() || is_end {
            return;
        }
    }
}
