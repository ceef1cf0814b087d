//! `hierlock deadlocks`: explains deadlocks.
//!
//! ```text
//!   files, directories, standard input ──► read_deadlocks ──┐
//!   --url: the last deadlock of the server ─────────────────┴─► text, JSON, Mermaid, SVG, scenario
//! ```

mod advice;
mod args;
mod input;
mod json;
mod server;
mod text;

pub(crate) use args::DeadlocksArgs;

use crate::exit::{self, CommandError, CommandResult};
use crate::output::{escape_controls, json_list, print, print_message};
use crate::signals::block_on_until_signal;
use args::OutputFormat;
use hierlock_engine::introspection::DeadlockDump;
use hierlock_lab::DeadlockSkeleton;
use input::Input;
use server::ServerAnswer;
use std::io::{self, IsTerminal};

pub(crate) fn deadlocks(args: &DeadlocksArgs) -> CommandResult {
    match (&args.url, args.files.is_empty()) {
        (_, false) => explain_texts(args, &args.files),
        (Some(url), true) => match block_on_until_signal(server::ask(url))? {
            ServerAnswer::Last(Some(last)) => print_deadlocks(args, vec![*last]),
            ServerAnswer::Last(None) => {
                print_none(args, "the server has seen no deadlock since it was started")
            }
            ServerAnswer::OnlyInLog(instructions) => match args.format() {
                OutputFormat::Text => print(escape_controls(&instructions)),
                _ => print_none(args, instructions.trim_end()),
            },
        },
        (None, true) if io::stdin().is_terminal() => Err(CommandError::usage(
            "nothing to read: name files, pipe a log, or name a server with --url or HIERLOCK_URL",
        )),
        (None, true) => explain_texts(args, &["-".to_owned()]),
    }
}

fn explain_texts(args: &DeadlocksArgs, names: &[String]) -> CommandResult {
    let input = Input::read(names)?;
    let is_known = input.unknown_texts == 0 && input.known_texts > 0;
    if !input.deadlocks.is_empty() {
        print_deadlocks(args, input.deadlocks)?;
    } else if is_known {
        print_none(args, "there is no deadlock in the text")?;
    }
    Ok(if is_known { exit::SUCCESS } else { exit::INCOMPLETE })
}

/// Prints why there is no deadlock. JSON is an empty list; there is no diagram and no scenario.
fn print_none(args: &DeadlocksArgs, why: &str) -> CommandResult {
    let format = args.format();
    if format == OutputFormat::Text {
        return print(format!("{why}\n"));
    }
    print_message(why);
    if format == OutputFormat::Json { print("[]\n") } else { Ok(exit::SUCCESS) }
}

fn print_deadlocks(args: &DeadlocksArgs, mut deadlocks: Vec<DeadlockDump>) -> CommandResult {
    if let Some(last) = args.last {
        deadlocks.drain(..deadlocks.len().saturating_sub(last as usize));
    }
    for deadlock in &mut deadlocks {
        hierlock_lab::guess_columns(deadlock);
    }
    print(match args.format() {
        OutputFormat::Text => text::deadlocks(&deadlocks),
        OutputFormat::Json => json_list(deadlocks.iter().map(json::deadlock_json)),
        OutputFormat::Mermaid => deadlocks
            .iter()
            .map(|deadlock| DeadlockSkeleton::new(deadlock).record().mermaid())
            .collect::<Vec<_>>()
            .join("\n"),
        OutputFormat::Svg => match last_of(&deadlocks).svg() {
            Some(svg) => svg,
            None => {
                let why = "the text does not contain the whole cycle, so there is no graph to draw";
                return Err(CommandError::new(exit::INCOMPLETE, why));
            }
        },
        OutputFormat::Scenario => escape_controls(&last_of(&deadlocks).text()),
    })
}

/// Returns the last deadlock, and says so if there are others.
fn last_of(deadlocks: &[DeadlockDump]) -> DeadlockSkeleton<'_> {
    let count = deadlocks.len();
    if count > 1 {
        print_message(format!("this is the last of {count} deadlocks"));
    }
    DeadlockSkeleton::new(&deadlocks[count - 1])
}
