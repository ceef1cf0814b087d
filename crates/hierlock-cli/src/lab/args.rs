//! The command line of `hierlock lab`, as data.

use clap::{Parser, Subcommand};
use hierlock::ServerUrl;
use hierlock_lab::{Engine, TreeSize};
use std::path::PathBuf;

/// Prove on real servers what blocks, what deadlocks, and which anomaly shows
///
/// Scenarios are transcripts of two terminals with what must be seen at each step. The lab runs them on
/// MySQL, MariaDB and PostgreSQL, and what locks nodes of a tree also in memory and on a file; it
/// observes each step in the server and says whether reality agrees.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hierlock lab list
  hierlock lab run                                     # all built-in scenarios, wherever they can run
  hierlock lab run deadlock/cycle --verbose            # one of them, told step by step
  hierlock lab run mine.lab --engine postgres --locks  # one of your own, with the locks after each step
  hierlock lab run --html report.html                  # a page to show each other
  hierlock lab matrix --engine memory
  hierlock lab anomalies --engine postgres

Servers come from --url, from HIERLOCK_MYSQL_URL and its kin, or are started on the spot.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(List),
    Run(Run),
    Matrix(Matrix),
    Anomalies(Anomalies),
    Fmt(Fmt),
    New(New),
    /// Write the built-in scenarios as one page of Markdown to standard output
    Docs,
}

/// List the built-in scenarios
#[derive(Debug, Parser)]
pub(crate) struct List {
    /// Only these topics
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run scenarios and say whether reality agrees
#[derive(Debug, Parser)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// Files, or names of built-in scenarios such as deadlock/cycle; without any, all built-in ones
    #[arg(value_name = "FILE|NAME")]
    pub(crate) what: Vec<String>,
    /// Only these topics of the built-in ones
    #[arg(long, value_name = "TOPIC", conflicts_with = "what")]
    pub(crate) topic: Vec<String>,
    #[command(flatten)]
    pub(crate) servers: Servers,
    #[command(flatten)]
    pub(crate) how: How,
    /// Run everything so many times, and tell what varied
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Record the locks of all sessions after each step
    #[arg(long)]
    pub(crate) locks: bool,
    /// Tell every step of every run
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Write what was observed into the files, where it differs
    #[arg(long, requires = "what", conflicts_with = "repeat")]
    pub(crate) bless: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "mermaid")]
    pub(crate) json: bool,
    /// Print a Mermaid sequence diagram of each run
    #[arg(long)]
    pub(crate) mermaid: bool,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write a self-contained page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  hierlock lab run                                  # exit code 0 only if every verdict agrees
  hierlock lab run --topic deadlock --locks --html deadlocks.html
  hierlock lab run --repeat 10 --jobs 4             # does anything vary?
  hierlock lab run mine.lab --bless                 # write what was observed into the file
  hierlock lab run mine.lab --url mysql://root@127.0.0.1:3306/test";

/// Every ordered pair of nodes of a small tree: held and requested
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  hierlock lab matrix\n  hierlock lab matrix --size 3x3x3 --engine mysql --svg matrix.svg"
)]
pub(crate) struct Matrix {
    /// How many users, accounts of each, and resources of each account
    #[arg(long, value_name = "KxMxN", default_value = "2x2x2")]
    pub(crate) size: TreeSize,
    /// Shared, update and exclusive, held and requested: nine boards instead of one
    #[arg(long)]
    pub(crate) modes: bool,
    /// Stripe over so few buckets that nodes share them: false contention shows as disagreement
    #[arg(long, value_name = "N")]
    pub(crate) buckets: Option<u32>,
    #[command(flatten)]
    pub(crate) servers: Servers,
    #[command(flatten)]
    pub(crate) how: How,
    /// Write a heat map
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which anomaly shows at which isolation level, observed
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  hierlock lab anomalies\n  hierlock lab anomalies --engine postgres --markdown\n  hierlock lab anomalies --html anomalies.html"
)]
pub(crate) struct Anomalies {
    #[command(flatten)]
    pub(crate) servers: Servers,
    #[command(flatten)]
    pub(crate) how: How,
    /// Print the table as Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a self-contained page in which each cell leads to its transcript
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Lay out scenario files in the usual way
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  hierlock lab fmt mine.lab\n  hierlock lab fmt --check scenarios/*/*.lab   # exit code 1: something would change"
)]
pub(crate) struct Fmt {
    /// Files; `-` reads standard input and writes to standard output
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; name the files that would change
    #[arg(long)]
    pub(crate) check: bool,
}

/// Begin a scenario of your own
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  hierlock lab new mine.lab && hierlock lab run mine.lab")]
pub(crate) struct New {
    /// The file to make; it must not be there yet
    pub(crate) file: PathBuf,
    /// With steps that lock nodes of a tree instead of SQL
    #[arg(long)]
    pub(crate) tree: bool,
}

/// Where the servers come from.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Servers {
    /// Only these: mysql, mariadb, postgres, memory, file
    #[arg(long = "engine", value_name = "ENGINE", value_delimiter = ',')]
    pub(crate) engines: Vec<Engine>,
    /// A server to use: mysql://…, mariadb://…, postgres://…; the lab makes databases of its own there
    #[arg(long = "url", value_name = "URL")]
    pub(crate) urls: Vec<ServerUrl>,
    /// Fail if an engine that is wanted is not there
    #[arg(long)]
    pub(crate) strict: bool,
}

/// How scenarios are run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// How many at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = jobs)]
    pub(crate) jobs: usize,
}

fn jobs(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a number from 1 to 64");
    text.parse().ok().filter(|number| (1..=64).contains(number)).ok_or_else(wrong)
}
