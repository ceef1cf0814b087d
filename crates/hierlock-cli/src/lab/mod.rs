//! `hierlock lab`: scenarios, run on what is there.
//!
//! ```text
//!   args ──► select: files and built-in ones ──► equip: servers ──► Lab::run, with a bar
//!                                                                       │
//!        text, JSON, Mermaid, JUnit, HTML, --bless ◄────────────────────┘
//! ```
//!
//! A signal ends the run early; what was run by then is reported, and what was made on the servers removed.

mod anomalies;
pub(crate) mod args;
mod bless;
mod fmt;
mod interrupt;
mod list;
mod matrix;
mod new;
mod run;
mod select;
mod servers;
mod show;

use crate::exit;
use crate::generate::print;
use crate::show::message;
use args::Command;
use hierlock_lab::Mistake;
use interrupt::with_interrupt;
use std::process::ExitCode;

/// Reality does not agree.
pub(super) const DISAGREES: u8 = 1;

pub(crate) fn lab(args: &args::Lab) -> ExitCode {
    match &args.command {
        Command::List(args) => list::list(args),
        Command::Fmt(args) => fmt::fmt(args),
        Command::New(args) => new::new(args),
        Command::Docs => match hierlock_lab::Scenario::builtin() {
            Ok(scenarios) => print(hierlock_lab::Scenario::book(&scenarios).as_bytes()),
            Err(mistakes) => mistaken(&mistakes),
        },
        Command::Run(args) => with_interrupt(|interrupt| run::run(args, interrupt)),
        Command::Matrix(args) => with_interrupt(|interrupt| matrix::matrix(args, interrupt)),
        Command::Anomalies(args) => {
            with_interrupt(|interrupt| anomalies::anomalies(args, interrupt))
        }
    }
}

/// Mistakes in files, one after the other.
pub(super) fn told(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn mistaken(mistakes: &[Mistake]) -> ExitCode {
    eprintln!("{}", message(&told(mistakes)));
    exit::USAGE.into()
}
