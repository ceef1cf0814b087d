//! The command line, as data.

use crate::exit;
use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use hierlock::{Buckets, Hierarchy, Mode, ServerUrl, Target};
use hierlock_sandbox::Engine;
use std::ffi::OsString;
use std::time::Duration;

/// Locks on a tree: users own accounts, accounts own resources. Locking a node takes every ancestor
/// shared and the node itself exclusive.
#[derive(Debug, Parser)]
#[command(version, name = "hierlock", after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Plan(Plan),
    Provision(Provision),
    Lease(crate::lease::args::Lease),
    Queue(crate::queue::args::Queue),
    Lab(crate::lab::args::Lab),
    Sandbox(Sandbox),
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
        /// The page of one command; without it, that of all of them
        command: Vec<String>,
    },
}

/// Hold a lock while a command runs
///
/// Waits until the targets are free, runs the command, and releases when it ends. There is no shell
/// in between, the exit code is that of the command, and signals are forwarded to it. Two shells that
/// run it on the same target take turns; on two resources of one account they run side by side.
#[derive(Debug, Parser)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// Where the lock is: file:PATH, mysql://…, mariadb://… or postgres://…; by default a file in your runtime or state
    /// directory
    // It may hold a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    pub(crate) url: Option<ServerUrl>,
    /// Let the command see the password of the URL in HIERLOCK_URL
    #[arg(long)]
    pub(crate) keep_password: bool,
    /// Wait no longer than this, such as 300ms, 5s, 2m, 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) within: Option<Duration>,
    /// Do not wait at all
    #[arg(long = "try", conflicts_with = "within")]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) what: What,
    /// Tell what happens as lines of JSON on standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing of waiting and of not getting the lock; the exit code tells
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  hierlock run u1/a1 -- ./rebuild-index a1        # one at a time per account
  hierlock run --within 5s u1/a1/r1 -- make       # give up after 5 seconds (exit code 75)
  hierlock run --try nightly -- backup.sh         # skip if it is still running
  hierlock run --mode shared u1 -- report u1      # beside other readers of u1
  hierlock run u1/a1/r1 u7 -- ./move r1 u7        # several together, never a deadlock

The command sees HIERLOCK_TARGETS (one path a line) and HIERLOCK_URL, without its password unless
--keep-password is given.";

/// Show what a lock would take, without touching anything
///
/// Prints the slots in the order in which they are taken, with their modes: of a client of the URL, and the SQL that
/// its server would be sent; without a URL, buckets, and the SQL for each database.
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  hierlock plan u1/a1/r1\n  hierlock plan --json u1/a1/r1 u7\n  \
                        hierlock plan --url postgres://… u1/a1/r1            # its advisory keys\n  \
                        hierlock plan --levels org,team,doc acme/search/d1"
)]
pub(crate) struct Plan {
    /// Whose slots to show: file:PATH, mysql://…, mariadb://… or postgres://…, which is asked how its clients lock
    // It may hold a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    pub(crate) url: Option<ServerUrl>,
    #[command(flatten)]
    pub(crate) what: What,
    /// How many buckets a level has, if there is no URL [default: 10000000]
    #[arg(long, value_name = "N", value_parser = buckets)]
    pub(crate) buckets: Option<Buckets>,
    /// Print the slots as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make the rows that clients of a server lock
///
/// Fills the lock table of a database, in small transactions; stopped or killed, it goes on where it was
/// when run again. Clients can connect when it is done. On PostgreSQL only for ?strategy=striped or
/// per-id: its advisory keys need nothing.
#[derive(Debug, Parser)]
#[command(after_help = PROVISION_EXAMPLES)]
pub(crate) struct Provision {
    /// The server: mysql://…, mariadb://… or postgres://…, with ?strategy= and &table= as for clients
    // It may hold a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    pub(crate) url: ServerUrl,
    /// How many buckets a level has; 10000000, or as many as the table has already
    #[arg(long, value_name = "N", value_parser = buckets)]
    pub(crate) buckets: Option<Buckets>,
    /// The levels of the tree, root first
    #[arg(long, value_name = "NAMES", default_value = "user,account,resource",
          value_parser = levels)]
    pub(crate) levels: Hierarchy,
    /// On how many connections rows are filled and counted
    #[arg(long, value_name = "N", value_parser = several)]
    pub(crate) connections: Option<usize>,
    /// Write no faster than this, to leave the server to others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_rows_per_second: Option<u64>,
    /// Change nothing; count the rows and name those that are missing
    #[arg(long, conflicts_with_all = ["print_sql", "rebucket", "paths"])]
    pub(crate) check: bool,
    /// Fill what the check finds missing
    #[arg(long, requires = "check")]
    pub(crate) repair: bool,
    /// Change nothing; print the SQL that does the same
    #[arg(long, conflicts_with_all = ["rebucket", "paths", "json"])]
    pub(crate) print_sql: bool,
    /// Change how many buckets a level has, while clients lock
    #[arg(long, value_name = "N", value_parser = buckets, conflicts_with = "paths")]
    pub(crate) rebucket: Option<Buckets>,
    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Nodes to add rows for, with all above them; only for ?strategy=per-id
    #[arg(value_name = "PATH", value_parser = target)]
    pub(crate) paths: Vec<Target>,
}

const PROVISION_EXAMPLES: &str = "\
Examples:
  hierlock provision --url mysql://root@127.0.0.1/app                # 10000000 buckets a level
  hierlock provision --url mysql://… --buckets 100000
  hierlock provision --url mysql://… --max-rows-per-second 20000     # beside others
  hierlock provision --url mysql://… --check                         # exit code 65: something is missing
  hierlock provision --url mysql://… --check --repair
  hierlock provision --url mysql://… --rebucket 20000000             # clients go on meanwhile
  hierlock provision --url mysql://… --print-sql | mysql app         # by someone else
  hierlock provision --url 'mysql://…?strategy=per-id' u1/a1/r1      # u1, u1/a1 and u1/a1/r1";

/// Start a throw-away database server
///
/// A real server in a temporary directory, on a loopback port, as an administrator without a
/// password. It ends with this command, and everything it wrote is removed.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  hierlock sandbox postgres                # until Ctrl-C\n  \
                        URL=$(hierlock sandbox mysql --keep --print-url)\n\n\
                        Servers are installed with ./scripts/install-servers.")]
pub(crate) struct Sandbox {
    /// mysql, mariadb or postgres
    pub(crate) engine: Engine,
    /// Let it run on after this command has ended
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print the URL alone
    #[arg(long)]
    pub(crate) print_url: bool,
}

/// What to lock, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct What {
    /// How to lock
    #[arg(long, default_value = "exclusive",
          value_parser = PossibleValuesParser::new(["shared", "update", "exclusive"]))]
    mode: String,
    /// The levels of the tree, root first
    #[arg(long, value_name = "NAMES", default_value = "user,account,resource",
          value_parser = levels)]
    pub(crate) levels: Hierarchy,
    /// Nodes of the tree: u1, u1/a1, u1/a1/r1. Inside an ID write / as %2F and % as %25
    #[arg(required = true, value_name = "TARGET", value_parser = target)]
    pub(crate) targets: Vec<Target>,
}

impl What {
    pub(crate) fn mode(&self) -> Mode {
        // clap lets only the three names through.
        self.mode.parse().unwrap_or_default()
    }
}

/// How much of a list is shown, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Latest {
    /// No more than so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn target(text: &str) -> Result<Target, hierlock::Error> {
    text.parse()
}

pub(crate) fn levels(text: &str) -> Result<Hierarchy, hierlock::Error> {
    Hierarchy::new(text.split(','))
}

fn buckets(text: &str) -> Result<Buckets, String> {
    let count = text.parse().map_err(|_| format!("`{text}` is not a whole number"))?;
    Buckets::new(count).map_err(|error| error.to_string())
}

pub(crate) fn several(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a number from 1 to 100");
    text.parse().ok().filter(|number| (1..=100).contains(number)).ok_or_else(wrong)
}

/// `300ms`, `5s`, `1.5m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write it as 300ms, 5s, 2m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn times() {
        for (text, millis) in
            [("300ms", 300), ("5s", 5000), ("0s", 0), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "5 s", "5d", "1e3s", "1.2.3s", "99999999999999999999h"] {
            assert!(duration(text).unwrap_err().contains("300ms"), "{text}");
        }
    }
}
