//! The command line of `hierlock queue`, as data.

use crate::args::{Latest, duration, several};
use crate::store::{Provision, Store};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::time::Duration;

/// Jobs in a database, and workers that never take the same one
///
/// A job is a text. Each is done at least once: one whose worker dies comes back when its lease ends, one
/// that fails is tried again later, and after too many attempts it is kept as dead.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Queue {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hierlock queue add mail '{\"to\":\"ada\"}'
  hierlock queue work mail --concurrency 4 -- ./send-mail     # the payload is its standard input
  hierlock queue stats
  hierlock queue dead mail
  hierlock queue retry-dead mail --all

A file of SQLite has its table when it is first used; on a server run `hierlock queue provision` once.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the table that jobs are kept in
    #[command(after_help = "Examples:\n  hierlock queue provision --url postgres://app@db/app\n  \
                        hierlock queue provision --url mysql://… --print-sql   # for someone else to run")]
    Provision(Provision),
    Add(Add),
    Stats(Stats),
    Dead(Dead),
    RetryDead(RetryDead),
    Work(Work),
}

/// Add a job, or one for each line of standard input
#[derive(Debug, Parser)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct Add {
    /// The name of the queue
    pub(crate) queue: String,
    /// The job, as its worker gets it; `-` reads all of standard input
    #[arg(required_unless_present = "lines")]
    pub(crate) payload: Option<String>,
    /// Lower goes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i64>,
    /// Not before so long from now
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) run_in: Option<Duration>,
    /// Only if no unfinished job of the queue has this key
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    pub(crate) unique: Option<String>,
    /// After so many failures it is dead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_attempts: Option<u32>,
    /// A job for each line of standard input that is not empty; all of them or none
    #[arg(long, conflicts_with = "payload")]
    pub(crate) lines: bool,
    /// Print what was added as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ADD_EXAMPLES: &str = "\
Examples:
  hierlock queue add mail '{\"to\":\"ada\"}'
  hierlock queue add mail --run-in 5m --max-attempts 3 - < letter.txt
  hierlock queue add thumbnails --unique a1.jpg a1.jpg        # not a second time while it waits
  find . -name '*.jpg' | hierlock queue add thumbnails --lines";

/// Count the jobs of each queue
#[derive(Debug, Parser)]
pub(crate) struct Stats {
    /// Only this one
    pub(crate) queue: Option<String>,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// List jobs that failed too often
#[derive(Debug, Parser)]
pub(crate) struct Dead {
    /// The name of the queue
    pub(crate) queue: String,
    #[command(flatten)]
    pub(crate) show: Latest,
}

/// Let dead jobs be tried again, as if they had never failed
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  hierlock queue retry-dead mail 17 18\n  hierlock queue retry-dead mail --all"
)]
pub(crate) struct RetryDead {
    /// The name of the queue
    pub(crate) queue: String,
    /// These; the numbers that `hierlock queue dead` shows
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<i64>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

/// Run a command for each job
///
/// The payload is the command's standard input. Exit code 0: the job is done. Anything else: it failed and
/// is tried again later, and the end of what the command wrote to standard error is kept with it. There is
/// no shell in between. The first Ctrl-C (or SIGTERM) lets what runs come to its end, a second one ends it;
/// jobs that did not come to their end go back.
#[derive(Debug, Parser)]
#[command(after_help = WORK_EXAMPLES)]
pub(crate) struct Work {
    /// The name of the queue
    pub(crate) queue: String,
    /// How many commands run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = several)]
    pub(crate) concurrency: usize,
    /// How many jobs are taken at a time; as many as run at a time unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) batch: Option<u32>,
    /// So long after this worker has died its jobs go back
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,
    /// How often to look for jobs
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) poll: Duration,
    /// End when no job is left that could run now, or is running
    #[arg(long)]
    pub(crate) until_empty: bool,
    /// Tell what happens as lines of JSON on standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const WORK_EXAMPLES: &str = "\
Examples:
  hierlock queue work mail -- ./send-mail
  hierlock queue work thumbnails --concurrency 4 --batch 20 -- ./thumbnail
  hierlock queue work mail --until-empty -- sh -c 'jq -r .to'

The command sees HIERLOCK_QUEUE, HIERLOCK_JOB (its number) and HIERLOCK_ATTEMPT (1 the first time).";
