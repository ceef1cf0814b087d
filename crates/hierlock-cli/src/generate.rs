//! Shell completions and man pages, made from the command line's own description.

use crate::args::Args;
use crate::exit;
use crate::mistake::shown;
use crate::show::say;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "hierlock", &mut text);
    print(&text)
}

pub(crate) fn man(names: &[String]) -> ExitCode {
    let mut command = Args::command();
    command.build();
    for name in names {
        let Some(found) = command.find_subcommand(name) else {
            let known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            let name = shown(name);
            say(format!("there is no command `{name}`; there are {}", known.join(", ")));
            return exit::USAGE.into();
        };
        // The page of `run` is called hierlock-run, as with git.
        let page = format!("{}-{name}", command.get_name());
        command = found.clone().name(page.leak() as &str);
    }
    let mut page = Vec::new();
    match clap_mangen::Man::new(command).render(&mut page) {
        Ok(()) => print(&page),
        Err(error) => failed(&error),
    }
}

/// To standard output; a reader that has seen enough is no mistake.
pub(crate) fn print(text: &[u8]) -> ExitCode {
    match write(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => failed(&error),
        _ => ExitCode::SUCCESS,
    }
}

/// To standard output, for those whom it concerns that nobody could read it.
pub(crate) fn write(text: &[u8]) -> io::Result<()> {
    io::stdout().write_all(text).and_then(|()| io::stdout().flush())
}

fn failed(error: &io::Error) -> ExitCode {
    say(format!("cannot write to standard output: {error}"));
    exit::UNAVAILABLE.into()
}
