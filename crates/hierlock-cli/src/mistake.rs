//! What clap says of a wrong call, without what must not be shown: it quotes arguments as they are.

use crate::exit;
use crate::show::message;
use hierlock::ServerUrl;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Prints help, or what is wrong; returns the exit code for it.
pub(crate) fn print(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help: nobody's arguments are in it.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let is_colourful = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    // With the colours: without them, clap leaves out parts of what it quotes, which is then not found.
    let text = clean(error.render().ansi().to_string(), arguments);
    let text = if is_colourful { text } else { message(&without_colours(&text)) };
    // If nobody can read it, the exit code still tells.
    let _ = io::stderr().write_all(text.as_bytes());
    exit::USAGE.into()
}

/// Replaces arguments that may hold a password, or would do something to a terminal.
fn clean(mut text: String, arguments: impl Iterator<Item = String>) -> String {
    for argument in arguments {
        let value = argument.split_once('=').filter(|_| argument.starts_with('-'));
        let value = value.map_or(&*argument, |(_, value)| value);
        let shown = shown(value);
        if shown != value {
            // A message of ours within clap's has escaped it already.
            text = text.replace(value, &shown).replace(&message(value), &shown);
        }
    }
    text
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').map_or(part, |(_, rest)| rest);
    }
    plain
}

/// An argument as it may be quoted.
pub(crate) fn shown(value: &str) -> String {
    let has_login = value.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
    let has_password = value.to_ascii_lowercase().contains("password");
    if has_login || has_password || value.contains("://") {
        ServerUrl::new(value).to_string()
    } else {
        message(value).replace('\n', "\\n")
    }
}
