//! The `hierlock` command.

mod args;
mod child;
mod database;
mod deadlocks;
mod doctor;
mod event;
mod exit;
mod hot;
mod lab;
mod lease;
mod locks;
mod output;
mod plan;
mod progress;
mod provision;
mod queue;
mod run;
mod sandbox;
mod signals;
mod size;
mod time;
mod top;
mod usage;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use exit::CommandError;
use std::process::ExitCode;

/// Locks on a tree: users own accounts, accounts own resources. Locking a node takes every ancestor
/// shared and the node itself exclusive.
#[derive(Debug, Parser)]
#[command(version, name = "hierlock", after_help = exit::HELP, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Plan(plan::PlanArgs),
    Provision(provision::ProvisionArgs),
    Size(size::SizeArgs),
    Doctor(doctor::DoctorArgs),
    Locks(locks::LocksArgs),
    Top(top::TopArgs),
    Hot(hot::HotArgs),
    Deadlocks(deadlocks::DeadlocksArgs),
    Lease(lease::LeaseArgs),
    Queue(queue::QueueArgs),
    Lab(lab::LabArgs),
    Sandbox(sandbox::SandboxArgs),
    /// Write shell completions to standard output
    #[command(after_help = "Example:\n  hierlock completions bash > \
                            ~/.local/share/bash-completion/completions/hierlock")]
    Completions {
        shell: Shell,
    },
    /// Write a man page to standard output
    #[command(
        after_help = "Examples:\n  hierlock man run | man -l -\n  hierlock man lease acquire | man -l -"
    )]
    Man {
        /// The command to describe; by default `hierlock` itself
        command: Vec<String>,
    },
}

/// Returns the command line for clap. The help of every command lists its exit codes.
fn command_line() -> clap::Command {
    exit::add_exit_codes(Args::command())
}

fn main() -> ExitCode {
    let matches = command_line().try_get_matches();
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return ExitCode::from(usage::print_error(&error)),
    };
    let result = match args.command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::plan(&args),
        Command::Provision(args) => provision::provision(&args),
        Command::Size(args) => size::size(&args),
        Command::Locks(args) => locks::locks(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Top(args) => top::top(&args),
        Command::Hot(args) => hot::hot(&args),
        Command::Lease(args) => lease::lease(&args),
        Command::Queue(args) => queue::queue(args),
        Command::Lab(args) => lab::lab(&args),
        Command::Deadlocks(args) => deadlocks::deadlocks(&args),
        Command::Sandbox(args) => sandbox::sandbox(&args),
        Command::Completions { shell } => usage::completions(shell),
        Command::Man { command } => usage::man(&command),
    };
    ExitCode::from(result.unwrap_or_else(CommandError::print))
}

#[cfg(test)]
mod tests {
    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        super::command_line().debug_assert();
    }
}
