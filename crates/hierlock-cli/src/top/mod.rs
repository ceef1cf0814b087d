//! `hierlock top`: a live view of holders and waiters.
//!
//! ```text
//!   observer (a task): snapshot and deadlock count, every interval ─┐
//!   keys (a thread) ─────────────────────────────────────────────┐  │
//!                                                                ▼  ▼
//!   history: figures and slots ──► state: rows, dialogs ──► draw, dialog, explain      (pure)
//!                                    └─ actions: quit, or end a session (locks::kill)
//! ```

mod args;
mod dialog;
mod draw;
mod explain;
mod history;
mod live;
mod once;
mod rows;
mod state;
mod terminal;
#[cfg(test)]
mod tests;

pub(crate) use args::{BackendArgs, TopArgs, interval};

use crate::exit::{CommandError, CommandResult};
use crate::signals::{Signals, block_on, block_on_until_signal};
use std::io::{self, IsTerminal};

pub(crate) fn top(args: &TopArgs) -> CommandResult {
    if args.once {
        return block_on_until_signal(once::once(args));
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CommandError::usage(
            "there is no terminal to draw on; --once prints what is seen",
        ));
    }
    block_on(async { live::watch(args, &mut Signals::listen()?).await })
}
