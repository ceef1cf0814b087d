//! The command line of `hierlock lease`.

use crate::args::{ListArgs, TreeArgs};
use crate::database::{DatabaseArgs, ProvisionTablesArgs};
use clap::{ArgGroup, Args, Subcommand};
use hierlock::{Target, parse_duration};
use std::time::Duration;

/// Edit locks that outlive a transaction, stored in a database
///
/// While an owner has a lease on a node, no other owner gets one on it, above it or below it. It ends when it
/// is released, when it expires by the database's clock, or when an administrator ends it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LeaseArgs {
    #[command(flatten)]
    pub(super) database: DatabaseArgs,
    #[command(subcommand)]
    pub(super) command: LeaseCommand,
}

const EXAMPLES: &str = "\
Examples:
  hierlock lease acquire u1/a1 --owner ada --reason 'edits the address'
  hierlock lease list u1
  hierlock lease renew 17
  hierlock lease release 17
  hierlock lease force-release 17 --actor root --reason 'ada is on holiday'

SQLite makes its tables when they are first used; on a server run `hierlock lease provision` once.";

#[derive(Debug, Subcommand)]
pub(super) enum LeaseCommand {
    /// Make the tables of leases
    #[command(after_help = "Examples:\n  hierlock lease provision --url postgres://app@db/app\n  \
                        hierlock lease provision --url mysql://… --print-sql   # for someone else to run")]
    Provision(ProvisionTablesArgs),
    Acquire(AcquireArgs),
    /// Extend a lease: its whole duration starts again now
    ///
    /// If the lease is gone, prints the reason: released, expired, or taken away, by whom and why (exit code 76).
    #[command(
        after_help = "Examples:\n  hierlock lease renew 17\n  hierlock lease renew 17 --json"
    )]
    Renew {
        /// The number that `acquire` printed
        token: i64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    Release(ReleaseArgs),
    List(ListLeasesArgs),
    /// Take a lease away from its owner, as an administrator
    ///
    /// The actor and the reason are recorded (`hierlock lease audit`). The next renew of the owner fails with them, and so
    /// does a write that checks the lease.
    #[command(
        after_help = "Example:\n  hierlock lease force-release 17 --actor root --reason 'ada is on holiday'"
    )]
    ForceRelease {
        /// The number that `hierlock lease list` prints
        token: i64,
        /// Who ends it
        #[arg(long, value_name = "NAME")]
        actor: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// List the leases that were ended by force, latest first
    #[command(after_help = "Example:\n  hierlock lease audit --limit 10")]
    Audit(ListArgs),
    /// Delete expired leases
    ///
    /// Expired leases exclude nobody; deleting them only frees their space.
    #[command(after_help = "Example:\n  hierlock lease sweep")]
    Sweep,
}

/// Take a lease on a node
///
/// If another owner has a lease on the node, above it or below it, prints who, since when, until when and why (exit
/// code 75).
#[derive(Debug, Args)]
#[command(after_help = ACQUIRE_EXAMPLES)]
pub(super) struct AcquireArgs {
    /// The node: u1, u1/a1, u1/a1/r1. Inside an ID write / as %2F and % as %25
    #[arg(value_name = "PATH")]
    pub(super) target: Target,
    /// Who has the lease; leases of one owner do not exclude each other
    #[arg(long, value_name = "NAME")]
    pub(super) owner: String,
    /// The login, tab or process that the lease belongs to
    #[arg(long)]
    pub(super) session: Option<String>,
    /// What the lease is for; shown to others who want the node
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// How long the lease lasts unless it is renewed
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub(super) ttl: Duration,
    /// If the node is not free, keep trying for this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) wait: Option<Duration>,
    #[command(flatten)]
    pub(super) tree: TreeArgs,
    /// Print JSON
    #[arg(long, conflicts_with = "print_token")]
    pub(super) json: bool,
    /// Print only the token
    #[arg(long)]
    pub(super) print_token: bool,
}

const ACQUIRE_EXAMPLES: &str = "\
Examples:
  hierlock lease acquire u1/a1 --owner ada --session tab-7 --reason 'edits the address'
  hierlock lease acquire u1/a1 --owner ada --ttl 30s --wait 10s
  TOKEN=$(hierlock lease acquire u1/a1 --owner ada --print-token) || exit";

/// Release a lease, or all leases of a session or of an owner
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true),
          after_help = "Examples:\n  hierlock lease release 17\n  \
                        hierlock lease release --session tab-7   # at logout")]
pub(super) struct ReleaseArgs {
    /// The number that `acquire` printed
    #[arg(group = "which")]
    pub(super) token: Option<i64>,
    /// Release all leases of this session
    #[arg(long, group = "which")]
    pub(super) session: Option<String>,
    /// Release all leases of this owner
    #[arg(long, value_name = "NAME", group = "which")]
    pub(super) owner: Option<String>,
}

/// List leases
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hierlock lease list\n  hierlock lease list u1/a1 --owner ada\n  \
                        hierlock lease list --expired --json"
)]
pub(super) struct ListLeasesArgs {
    /// Only leases on this node and below
    #[arg(value_name = "PATH")]
    pub(super) target: Option<Target>,
    /// Only leases of this owner
    #[arg(long, value_name = "NAME")]
    pub(super) owner: Option<String>,
    /// Only leases of this session
    #[arg(long)]
    pub(super) session: Option<String>,
    /// Also list expired leases that are not deleted yet
    #[arg(long)]
    pub(super) expired: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}
