//! Messages of clap, completions and man pages. Messages quote arguments, so passwords and control characters are
//! replaced in them.

use crate::command_line;
use crate::exit::{self, CommandError, CommandResult};
use crate::output::{escape_controls, print};
use clap_complete::Shell;
use hierlock::ServerUrl;
use std::io::{self, IsTerminal, Write};

/// Prints help or a usage error; returns the exit code.
pub(crate) fn print_error(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        // Help quotes no arguments.
        let _ = error.print();
        return exit::SUCCESS;
    }
    let has_colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    // Rendered with colours: without them clap leaves out parts of quoted arguments, which `redact`
    // would then not find.
    let text = redact(error.render().ansi().to_string(), arguments);
    let text = if has_colour { text } else { escape_controls(&without_colours(&text)) };
    // If standard error cannot be written, the exit code still reports the result.
    let _ = io::stderr().write_all(text.as_bytes());
    exit::USAGE
}

/// Replaces arguments that may contain a password or control characters.
fn redact(mut text: String, arguments: impl Iterator<Item = String>) -> String {
    for argument in arguments {
        let value = argument.split_once('=').filter(|_| argument.starts_with('-'));
        let value = value.map_or(&*argument, |(_, value)| value);
        let redacted = redact_argument(value);
        if redacted != value {
            // Our own messages within clap's message quote the argument with escapes.
            text = text.replace(value, &redacted).replace(&escape_controls(value), &redacted);
        }
    }
    text
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let plain = parts.next().unwrap_or_default().to_owned();
    parts.fold(plain, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

pub(crate) fn redact_argument(value: &str) -> String {
    let has_login = value.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
    let has_password = value.to_ascii_lowercase().contains("password");
    if has_login || has_password || value.contains("://") {
        ServerUrl::new(value).to_string()
    } else {
        hierlock_engine::printable(value).into_owned()
    }
}

pub(crate) fn completions(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "hierlock", &mut script);
    print(String::from_utf8_lossy(&script))
}

pub(crate) fn man(names: &[String]) -> CommandResult {
    let mut command = command_line();
    command.build();
    for name in names {
        let Some(found) = command.find_subcommand(name) else {
            let known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            let (name, known) = (redact_argument(name), known.join(", "));
            return Err(CommandError::usage(format!(
                "there is no command `{name}`; there are {known}"
            )));
        };
        // The page of `run` is named hierlock-run, as git does.
        let page = format!("{}-{name}", command.get_name());
        command = found.clone().name(page.leak() as &str);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(CommandError::unavailable)?;
    print(String::from_utf8_lossy(&page))
}
