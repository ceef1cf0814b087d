//! `hierlock lab`: runs scenarios on the servers that are available.
//!
//! ```text
//!   args ──► select: files and built-in scenarios ──► LabServers ──► Lab::run, with a bar
//!                                                                       │
//!        text, JSON, Mermaid, JUnit, HTML, --bless ◄────────────────────┘
//! ```
//!
//! A signal ends the run early: the finished cases are reported, and the databases of the lab are removed from the servers.

mod args;
mod bless;
mod files;
mod interrupt;
mod matrix;
mod run;
mod select;
mod servers;

pub(crate) use args::LabArgs;

use crate::exit::{self, CommandError, CommandResult};
use crate::output::{json_list, print};
use args::{LabCommand, ListScenariosArgs};
use hierlock_lab::{Diagnostic, Scenario};
use interrupt::run_interruptible;
use serde_json::json;

pub(crate) fn lab(args: &LabArgs) -> CommandResult {
    match &args.command {
        LabCommand::List(args) => list(args),
        LabCommand::Fmt(args) => files::fmt(args),
        LabCommand::New { file, tree } => files::new(file, *tree),
        LabCommand::Docs => print(Scenario::markdown(&Scenario::builtin().map_err(invalid)?)),
        LabCommand::Run(args) => run_interruptible(|interrupt| run::run(args, interrupt)),
        LabCommand::Matrix(args) => run_interruptible(|interrupt| matrix::matrix(args, interrupt)),
        LabCommand::Anomalies(args) => {
            run_interruptible(|interrupt| run::anomalies(args, interrupt))
        }
    }
}

fn list(args: &ListScenariosArgs) -> CommandResult {
    let scenarios = select::by_topic(&args.topic)?;
    if !args.json {
        let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
        let lines = scenarios.iter().map(|s| format!("{:width$}  {}\n", s.name, s.title));
        return print(lines.collect::<String>());
    }
    let mut list = Vec::new();
    for scenario in &scenarios {
        let cases = select::cases(std::slice::from_ref(scenario), &[])?;
        list.push(json!({
            "name": scenario.name,
            "title": scenario.title,
            "seeds": scenario.seeds,
            "engines": select::engines(&cases),
            "cases": cases.len(),
        }));
    }
    print(json_list(list))
}

/// Returns the failure of a scenario file with errors.
fn invalid(diagnostics: Vec<Diagnostic>) -> CommandError {
    let diagnostics: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    CommandError::usage(diagnostics.join("\n"))
}

/// Returns the exit code of a run that was not ended by a signal.
fn exit_code(agrees: bool, is_complete: bool) -> u8 {
    match (agrees, is_complete) {
        (false, _) => exit::DISAGREEMENT,
        (true, false) => exit::UNAVAILABLE,
        (true, true) => exit::SUCCESS,
    }
}
