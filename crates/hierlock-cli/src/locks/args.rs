//! The command line of `hierlock locks`.

use hierlock::{ServerUrl, Target};
use std::path::PathBuf;

/// Show who holds and who waits, as a tree by root blocker
///
/// Lists the locks of all programs on a server: rows, tables, metadata, advisory keys, locks by name. Locks of hierlock are
/// shown by path, if the session reports its path and the slot proves it. Changes nothing. Without PATH it shows the waiting
/// sessions, their blockers, and the locks of hierlock.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct LocksArgs {
    #[command(subcommand)]
    pub(super) command: Option<LocksCommand>,
    /// Where the locks are: file:PATH, mysql://…, mariadb://… or postgres://…; by default the lock file of `hierlock run`
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true, global = true)]
    pub(super) url: Option<ServerUrl>,
    /// Show every session that holds a lock
    #[arg(long)]
    pub(super) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show who holds or waits for this node, its ancestors or descendants
    pub(super) path: Option<Target>,
}

const EXAMPLES: &str = "\
Examples:
  hierlock locks --url mysql://…                    # who waits for whom
  hierlock locks u1/a1/r1                           # who holds u1/a1/r1, or waits for it
  hierlock locks --all --json | jq '.sessions[]'
  hierlock locks kill 812 --reason 'blocks the nightly run'";

#[derive(Debug, clap::Subcommand)]
pub(super) enum LocksCommand {
    Kill(KillArgs),
}

/// End a session on the server, with everything that it holds
///
/// Shows what the session holds and who waits for it, and asks for confirmation. The session is ended only if its number has
/// not been reused for another session in the meantime. The kill is logged on standard error and in a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    hierlock locks kill 812 --reason 'blocks the nightly run'\n  \
    hierlock locks kill 812 --reason 'ticket 4711' --by ada --yes      # from a script")]
pub(super) struct KillArgs {
    /// The number of the session, as `hierlock locks` shows it
    pub(super) id: i64,
    /// The reason, for the log
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    /// Who has decided it, for the log [default: the user]
    #[arg(long, value_name = "NAME")]
    pub(super) by: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(super) yes: bool,
    /// The file of the log [default: hierlock/kills.log in your state directory]
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
}
