//! The `hierlock` command.

mod args;
mod child;
mod exit;
mod generate;
mod lab;
mod lease;
mod mistake;
mod plan;
mod provision;
mod queue;
mod report;
mod run;
mod runtime;
mod sandbox;
mod show;
mod signals;
mod store;
mod time;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return mistake::print(&error),
    };
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::plan(&args),
        Command::Provision(args) => provision::provision(&args),
        Command::Lease(args) => lease::lease(&args),
        Command::Queue(args) => queue::queue(args),
        Command::Lab(args) => lab::lab(&args),
        Command::Sandbox(args) => sandbox::sandbox(&args),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { command } => generate::man(&command),
    }
}
