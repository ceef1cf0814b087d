//! Asks the user for confirmation.

use crate::exit::CommandError;
use std::io::{self, IsTerminal, Write};

/// Asks on the terminal. Fails if the answer is not `yes`, or if there is no terminal.
///
/// # Cancel safety
/// If the future is dropped, a thread stays that reads one line.
pub(super) async fn confirm(question: &str) -> Result<(), CommandError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CommandError::usage(
            "there is no terminal to ask on; add --yes to end the session",
        ));
    }
    let _ = io::stderr().write_all(format!("{question} [yes/no] ").as_bytes());
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    match answer.await {
        Ok(Ok(line)) if line.trim() == "yes" => Ok(()),
        _ => Err(CommandError::usage("not confirmed; nothing was ended")),
    }
}
