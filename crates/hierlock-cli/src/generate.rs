//! `hierlock completions` and `hierlock man`, generated from the command line's own description.

use crate::command_line;
use crate::exit::{CommandResult, Failure};
use crate::output::print;
use crate::usage::redact_argument;
use clap_complete::Shell;

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
            return Err(Failure::usage(format!("there is no command `{name}`; there are {known}")));
        };
        // The page of `run` is called hierlock-run, as with git.
        let page = format!("{}-{name}", command.get_name());
        command = found.clone().name(page.leak() as &str);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::unavailable)?;
    print(String::from_utf8_lossy(&page))
}
