//! `hierlock lab`: scenarios, run on what is there.
//!
//! ```text
//!   args ──► select: files and built-in ones ──► equip: servers ──► Lab::run, with a bar
//!                                                                       │
//!        text, JSON, Mermaid, JUnit, HTML, --bless ◄────────────────────┘
//! ```

mod anomalies;
pub(crate) mod args;
mod fmt;
mod list;
mod matrix;
mod new;
mod run;
mod select;
mod servers;
mod show;

use crate::exit::{self, Stop};
use crate::generate::print;
use crate::runtime;
use crate::show::message;
use crate::signals::Signals;
use args::Command;
use hierlock_lab::scenario::Mistake;
use std::future::Future;
use std::process::ExitCode;

/// Reality does not agree.
pub(super) const DISAGREES: u8 = 1;

pub(crate) fn lab(args: &args::Lab) -> ExitCode {
    match &args.command {
        Command::List(args) => list::list(args),
        Command::Fmt(args) => fmt::fmt(args),
        Command::New(args) => new::new(args),
        Command::Docs => match hierlock_lab::builtin::all() {
            Ok(scenarios) => print(hierlock_lab::book::book(&scenarios).as_bytes()),
            Err(mistakes) => mistaken(&mistakes),
        },
        Command::Run(args) => until_interrupted(run::run(args)),
        Command::Matrix(args) => until_interrupted(matrix::matrix(args)),
        Command::Anomalies(args) => until_interrupted(anomalies::anomalies(args)),
    }
}

/// Runs it, unless a signal comes first; then what was begun is undone before this returns.
fn until_interrupted(work: impl Future<Output = Result<ExitCode, Stop>>) -> ExitCode {
    let runtime = match runtime::of_threads() {
        Ok(runtime) => runtime,
        Err(stop) => return stop.end(),
    };
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(Stop::unavailable)?;
        tokio::select! {
            ended = work => ended,
            signal = signals.next() => Ok(ExitCode::from(exit::of_signal(signal))),
        }
    });
    runtime.shutdown_background();
    ended.unwrap_or_else(Stop::end)
}

/// Mistakes in files, one after the other.
pub(super) fn told(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn mistaken(mistakes: &[Mistake]) -> ExitCode {
    eprintln!("{}", message(&told(mistakes)));
    exit::USAGE.into()
}
