//! The command line of `hierlock queue`.

use crate::args::ListArgs;
use crate::database::{DatabaseArgs, ProvisionTablesArgs};
use clap::{Args, Subcommand, value_parser};
use hierlock::parse_duration;
use std::ffi::OsString;
use std::time::Duration;

/// Jobs in a database, and workers that never take the same one
///
/// A job is a text. Each job is done at least once. If its worker dies, the job comes back when its lease ends. A job
/// that fails is tried again later; after too many attempts it is dead: kept, but not tried again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    pub(super) database: DatabaseArgs,
    #[command(subcommand)]
    pub(super) command: QueueCommand,
}

const EXAMPLES: &str = "\
Examples:
  hierlock queue add mail '{\"to\":\"ada\"}'
  hierlock queue work mail --concurrency 4 -- ./send-mail     # the payload is its standard input
  hierlock queue stats
  hierlock queue dead mail
  hierlock queue retry-dead mail --all

SQLite makes its table when it is first used; on a server run `hierlock queue provision` once.";

#[derive(Debug, Subcommand)]
pub(super) enum QueueCommand {
    /// Create the table of jobs
    #[command(after_help = "Examples:\n  hierlock queue provision --url postgres://app@db/app\n  \
                        hierlock queue provision --url mysql://… --print-sql   # for someone else to run")]
    Provision(ProvisionTablesArgs),
    Add(AddArgs),
    /// Count the jobs of each queue
    #[command(after_help = "Examples:\n  hierlock queue stats\n  hierlock queue stats mail --json")]
    Stats {
        /// Only this queue
        queue: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List jobs that failed too often
    #[command(after_help = "Example:\n  hierlock queue dead mail --limit 10")]
    Dead {
        /// The name of the queue
        queue: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Let dead jobs be tried again, as if they had never failed
    #[command(
        after_help = "Examples:\n  hierlock queue retry-dead mail 17 18\n  hierlock queue retry-dead mail --all"
    )]
    RetryDead {
        /// The name of the queue
        queue: String,
        /// These jobs: the numbers that `hierlock queue dead` prints
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<i64>,
        /// All dead jobs of the queue
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
    Work(WorkArgs),
}

/// Add a job, or one for each line of standard input
#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(super) struct AddArgs {
    /// The name of the queue
    pub(super) queue: String,
    /// The text of the job, as its worker gets it; `-` reads all of standard input
    #[arg(required_unless_present = "lines")]
    pub(super) payload: Option<String>,
    /// The priority; jobs with a lower number run first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) priority: Option<i64>,
    /// Run the job no earlier than this long from now
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) run_in: Option<Duration>,
    /// Add the job only if no unfinished job of the queue has this key
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    pub(super) unique: Option<String>,
    /// After N failures the job is dead
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(super) max_attempts: Option<u32>,
    /// Add a job for each line of standard input that is not empty; all of them or none
    #[arg(long, conflicts_with = "payload")]
    pub(super) lines: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

const ADD_EXAMPLES: &str = "\
Examples:
  hierlock queue add mail '{\"to\":\"ada\"}'
  hierlock queue add mail --run-in 5m --max-attempts 3 - < letter.txt
  hierlock queue add thumbnails --unique a1.jpg a1.jpg        # not a second time while it waits
  find . -name '*.jpg' | hierlock queue add thumbnails --lines";

/// Run a command for each job
///
/// The payload is the command's standard input. Exit code 0: the job is done. Anything else: it failed and
/// is tried again later, and the end of what the command wrote to standard error is kept with it. There is
/// no shell in between. After the first Ctrl-C (or SIGTERM) running commands finish, a second one ends them;
/// unfinished jobs go back to the queue.
#[derive(Debug, Args)]
#[command(after_help = WORK_EXAMPLES)]
pub(super) struct WorkArgs {
    /// The name of the queue
    pub(super) queue: String,
    /// How many commands run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=100))]
    pub(super) concurrency: u16,
    /// How many jobs are claimed at a time; by default as many as run at a time
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1000))]
    pub(super) batch: Option<u16>,
    /// If this worker dies, its jobs go back to the queue after this time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(super) lease: Duration,
    /// How often to look for jobs
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(super) poll: Duration,
    /// End when no job is ready or running
    #[arg(long)]
    pub(super) until_empty: bool,
    /// Report what happens as lines of JSON on standard error
    #[arg(long)]
    pub(super) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

const WORK_EXAMPLES: &str = "\
Examples:
  hierlock queue work mail -- ./send-mail
  hierlock queue work thumbnails --concurrency 4 --batch 20 -- ./thumbnail
  hierlock queue work mail --until-empty -- sh -c 'jq -r .to'

The command sees HIERLOCK_QUEUE, HIERLOCK_JOB (its number) and HIERLOCK_ATTEMPT (1 the first time).";
