//! The command line of `hierlock lease`, as data.

use crate::args::{Latest, duration, levels, target};
use crate::store::{Provision, Store};
use clap::{ArgGroup, Parser, Subcommand};
use hierlock::{Hierarchy, Target};
use std::time::Duration;

/// Edit locks that outlive a transaction, kept in a database
///
/// While somebody has a lease on a node, nobody else gets one on it, above it or below it. It ends when it
/// is released, when its time is over by the database's clock, or when an administrator takes it away.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Lease {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hierlock lease acquire u1/a1 --owner ada --reason 'edits the address'
  hierlock lease list u1
  hierlock lease renew 17
  hierlock lease release 17
  hierlock lease force-release 17 --actor root --reason 'ada is on holiday'

A file of SQLite has its tables when it is first used; on a server run `hierlock lease provision` once.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the tables that leases are kept in
    #[command(after_help = "Examples:\n  hierlock lease provision --url postgres://app@db/app\n  \
                        hierlock lease provision --url mysql://… --print-sql   # for someone else to run")]
    Provision(Provision),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    List(List),
    ForceRelease(ForceRelease),
    Audit(Audit),
    /// Delete leases whose time is over
    ///
    /// Nobody heeds them any more; this only frees their space.
    Sweep,
}

/// Take a lease on a node
///
/// If somebody else has one on the node, above it or below it, this says who, since when, until when and
/// why (exit code 75).
#[derive(Debug, Parser)]
#[command(after_help = ACQUIRE_EXAMPLES)]
pub(crate) struct Acquire {
    /// The node: u1, u1/a1, u1/a1/r1. Inside an ID write / as %2F and % as %25
    #[arg(value_name = "PATH", value_parser = target)]
    pub(crate) target: Target,
    /// Whose it is; leases of one owner do not exclude each other
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: String,
    /// The login, tab or process that it belongs to
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// What it is for; others are told
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How long it lasts unless it is renewed
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// If it is not free, try again for so long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// The levels of the tree, root first
    #[arg(long, value_name = "NAMES", default_value = "user,account,resource",
          value_parser = levels)]
    pub(crate) levels: Hierarchy,
    /// Print it as JSON
    #[arg(long, conflicts_with = "print_token")]
    pub(crate) json: bool,
    /// Print the token alone
    #[arg(long)]
    pub(crate) print_token: bool,
}

const ACQUIRE_EXAMPLES: &str = "\
Examples:
  hierlock lease acquire u1/a1 --owner ada --session tab-7 --reason 'edits the address'
  hierlock lease acquire u1/a1 --owner ada --ttl 30s --wait 10s
  TOKEN=$(hierlock lease acquire u1/a1 --owner ada --print-token) || exit";

/// Let a lease last for its time from now on
///
/// If it is gone, this says why: released, its time was over, or taken away by whom and why (exit code 76).
#[derive(Debug, Parser)]
pub(crate) struct Renew {
    /// The number that `acquire` gave
    pub(crate) token: i64,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Give back a lease, or all of a session or of an owner
#[derive(Debug, Parser)]
#[command(group = ArgGroup::new("which").required(true),
          after_help = "Examples:\n  hierlock lease release 17\n  \
                        hierlock lease release --session tab-7   # at logout")]
pub(crate) struct Release {
    /// The number that `acquire` gave
    #[arg(group = "which")]
    pub(crate) token: Option<i64>,
    /// All of this session
    #[arg(long, group = "which")]
    pub(crate) session: Option<String>,
    /// All of this owner
    #[arg(long, value_name = "NAME", group = "which")]
    pub(crate) owner: Option<String>,
}

/// List leases
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  hierlock lease list\n  hierlock lease list u1/a1 --owner ada\n  \
                        hierlock lease list --expired --json"
)]
pub(crate) struct List {
    /// Only those on this node and below
    #[arg(value_name = "PATH", value_parser = target)]
    pub(crate) target: Option<Target>,
    /// Only those of this owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Only those of this session
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// Also those whose time is over, as long as nobody has swept them
    #[arg(long)]
    pub(crate) expired: bool,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take a lease away from its owner, as an administrator
///
/// Who did it and why is kept (`hierlock lease audit`); the owner is told at the next renew, and a write
/// that checks the lease fails.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example:\n  hierlock lease force-release 17 --actor root --reason 'ada is on holiday'"
)]
pub(crate) struct ForceRelease {
    /// The number that `hierlock lease list` shows
    pub(crate) token: i64,
    /// Who takes it away
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

/// List the leases that were taken away, latest first
#[derive(Debug, Parser)]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) show: Latest,
}
