//! The command line of `hierlock deadlocks`.

use clap::{Args, ValueEnum};
use hierlock::ServerUrl;

/// Explain deadlocks of MySQL, MariaDB and PostgreSQL in plain words
///
/// Reads the last deadlock of a server, or deadlocks in text: SHOW ENGINE INNODB STATUS, error logs
/// (innodb_print_all_deadlocks), logs of PostgreSQL in any language, as lines, CSV or JSON. The text may be pasted: cut off,
/// quoted, with a prompt or line numbers in front. Changes nothing.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeadlocksArgs {
    /// Files, directories of files, or `-` for standard input; by default the server of --url, else standard input
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<String>,
    /// The server to ask: mysql://…, mariadb://… or postgres://…
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    pub(super) url: Option<ServerUrl>,
    /// How to print
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["format", "mermaid", "svg", "scenario"])]
    json: bool,
    /// Print a Mermaid sequence diagram of each deadlock, as the lab draws it
    #[arg(long, conflicts_with_all = ["format", "svg", "scenario"])]
    mermaid: bool,
    /// Print the wait-for graph of the last deadlock as an SVG picture
    #[arg(long, conflicts_with_all = ["format", "scenario"])]
    svg: bool,
    /// Print a scenario that repeats the last deadlock, for `hierlock lab run`; details that are not in the text are guessed
    #[arg(long, conflicts_with = "format")]
    scenario: bool,
    /// Print only the last N deadlocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) last: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  hierlock deadlocks --url mysql://root@127.0.0.1/shop         # the last one of the server
  hierlock deadlocks /var/log/mysql/error.log --last 3         # with innodb_print_all_deadlocks
  hierlock deadlocks - < /var/log/postgresql/postgresql-15-main.log
  hierlock deadlocks dumps/ --json
  hierlock deadlocks bug-report.txt --svg > deadlock.svg
  hierlock deadlocks bug-report.txt --scenario > mine.lab && hierlock lab run mine.lab";

/// The format in which deadlocks are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    Text,
    Json,
    Mermaid,
    Svg,
    Scenario,
}

impl DeadlocksArgs {
    pub(super) fn format(&self) -> OutputFormat {
        let flags = [
            (self.json, OutputFormat::Json),
            (self.mermaid, OutputFormat::Mermaid),
            (self.svg, OutputFormat::Svg),
            (self.scenario, OutputFormat::Scenario),
        ];
        flags.into_iter().find(|(is_set, _)| *is_set).map_or(self.format, |(_, format)| format)
    }
}
