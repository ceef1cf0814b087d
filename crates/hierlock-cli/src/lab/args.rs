//! The command line of `hierlock lab`.

use clap::{Args, Subcommand, value_parser};
use hierlock::ServerUrl;
use hierlock_lab::{Engine, TreeSize};
use std::path::PathBuf;

/// Prove on real servers what blocks, what deadlocks, and which anomaly shows
///
/// Scenarios are transcripts of two or more terminals, with the expected result of each step. The lab runs them on
/// MySQL, MariaDB and PostgreSQL, and scenarios that lock nodes of a tree also in memory and on a file. It
/// observes each step in the server and reports where the scenario does not agree.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(super) command: LabCommand,
}

const EXAMPLES: &str = "\
Examples:
  hierlock lab list
  hierlock lab run                                     # all built-in scenarios, wherever they can run
  hierlock lab run deadlock                            # those of one topic
  hierlock lab run deadlock/cycle --verbose            # one of them, step by step
  hierlock lab run mine.lab --engine postgres --locks  # one of your own, with the locks after each step
  hierlock lab run --html report.html                  # one page to share
  hierlock lab matrix --engine memory
  hierlock lab anomalies --engine postgres

Servers come from --url, from HIERLOCK_MYSQL_URL, HIERLOCK_MARIADB_URL and HIERLOCK_POSTGRES_URL, or are started.";

#[derive(Debug, Subcommand)]
pub(super) enum LabCommand {
    List(ListScenariosArgs),
    Run(RunScenariosArgs),
    Matrix(MatrixArgs),
    Anomalies(AnomaliesArgs),
    Fmt(FmtArgs),
    /// Begin a scenario of your own
    #[command(after_help = "Example:\n  hierlock lab new mine.lab && hierlock lab run mine.lab")]
    New {
        /// The file to make; it must not exist yet
        file: PathBuf,
        /// Write steps that lock nodes of a tree, instead of SQL
        #[arg(long)]
        tree: bool,
    },
    /// Write the built-in scenarios as one page of Markdown to standard output
    #[command(after_help = "Example:\n  hierlock lab docs > scenarios.md")]
    Docs,
}

/// List the built-in scenarios
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hierlock lab list\n  hierlock lab list --topic deadlock --json"
)]
pub(super) struct ListScenariosArgs {
    /// Only these topics
    #[arg(long, value_name = "TOPIC")]
    pub(super) topic: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Run scenarios and report where they do not agree with what was observed
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(super) struct RunScenariosArgs {
    /// Files, directories, built-in scenarios (deadlock/cycle), topics (deadlock) or patterns of them ('deadlock/c*'); by
    /// default all built-in scenarios
    #[arg(value_name = "SCENARIO")]
    pub(super) scenarios: Vec<String>,
    /// Only these topics of the built-in scenarios
    #[arg(long, value_name = "TOPIC", conflicts_with = "scenarios")]
    pub(super) topic: Vec<String>,
    #[command(flatten)]
    pub(super) runner: RunnerArgs,
    /// Run everything N times, and report which results vary
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
    pub(super) repeat: u32,
    /// Record the locks of all sessions after each step
    #[arg(long)]
    pub(super) locks: bool,
    /// Print every scenario, and every step of every run
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Write the observed results into the files, where they differ
    #[arg(long, requires = "scenarios", conflicts_with = "repeat")]
    pub(super) bless: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "mermaid")]
    pub(super) json: bool,
    /// Print a Mermaid sequence diagram of each run
    #[arg(long)]
    pub(super) mermaid: bool,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  hierlock lab run                                  # exit code 0 only if all of them agree
  hierlock lab run deadlock 'locks/nowait*'         # a topic, and what a pattern matches
  hierlock lab run mine/                            # all *.lab files of a directory
  hierlock lab run deadlock --locks --html deadlocks.html
  hierlock lab run --repeat 10 --jobs 4             # does anything vary?
  hierlock lab run mine.lab --bless                 # write what was observed into the file
  hierlock lab run mine.lab --url mysql://root@127.0.0.1:3306/test";

/// Hold each node of a small tree, request every other, and print what waits for what
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hierlock lab matrix\n  hierlock lab matrix --size 3x3x3 --engine mysql --svg matrix.svg"
)]
pub(super) struct MatrixArgs {
    /// How many users, accounts of each, and resources of each account
    #[arg(long, value_name = "KxMxN", default_value = "2x2x2")]
    pub(super) size: TreeSize,
    /// Shared, update and exclusive, held and requested: nine boards instead of one
    #[arg(long)]
    pub(super) modes: bool,
    /// Stripe over so few buckets that nodes share them: false contention shows as disagreement
    #[arg(long, value_name = "N")]
    pub(super) buckets: Option<u32>,
    #[command(flatten)]
    pub(super) runner: RunnerArgs,
    /// Write a heat map
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Print which anomaly shows at which isolation level, as observed
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hierlock lab anomalies\n  hierlock lab anomalies --engine postgres --markdown\n  hierlock lab anomalies --html anomalies.html"
)]
pub(super) struct AnomaliesArgs {
    #[command(flatten)]
    pub(super) runner: RunnerArgs,
    /// Print the table as Markdown
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write a self-contained HTML page in which each cell leads to its transcript
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// Format scenario files
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hierlock lab fmt mine.lab\n  hierlock lab fmt --check scenarios/*/*.lab   # exit code 1: something would change"
)]
pub(super) struct FmtArgs {
    /// Files; `-` reads standard input and writes to standard output
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Change nothing; print the files that would change
    #[arg(long)]
    pub(super) check: bool,
}

/// Where cases run, and how many at a time.
#[derive(Debug, Args)]
pub(super) struct RunnerArgs {
    /// Only these: mysql, mariadb, postgres, memory, file
    #[arg(long = "engine", value_name = "ENGINE", value_delimiter = ',')]
    pub(super) engines: Vec<Engine>,
    /// A server to use: mysql://…, mariadb://…, postgres://…; the lab makes databases of its own there
    #[arg(long = "url", value_name = "URL")]
    pub(super) urls: Vec<ServerUrl>,
    /// Fail if one of the engines is not available
    #[arg(long)]
    pub(super) strict: bool,
    /// How many cases run at a time
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = value_parser!(u16).range(1..=64))]
    pub(super) jobs: u16,
}
