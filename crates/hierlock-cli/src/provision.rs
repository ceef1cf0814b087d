//! `hierlock provision`: inserts the rows that the clients of a server lock.
//!
//! ```text
//!   connect ──► print the expected size ──► fill, with progress ──► the result
//!           ├─► --check: missing rows ──► --repair: insert them
//!           ├─► --rebucket: another number of buckets, while clients lock
//!           └─► --print-sql: the same as SQL
//! ```

use crate::args::{TreeArgs, buckets, with};
use crate::exit::{self, CommandResult};
use crate::output::{json_line, print, print_message};
use crate::progress::bar;
use crate::signals::block_on;
use crate::time::millis;
use hierlock::sql::{
    Prediction, Provision, ProvisionPhase, ProvisionProgress, ProvisionReport, TableCheck,
};
use hierlock::{Buckets, ServerUrl, Target};
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval between two lines of progress if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
const MAX_PRINTED_RANGES: usize = 20;

/// Insert the rows that clients of a server lock
///
/// Fills the lock table of a database, in small transactions. If it is stopped or killed, run it again: it continues
/// where it stopped. Clients can connect when it has finished. On PostgreSQL it is needed only for ?strategy=striped or
/// per-id: advisory keys need no rows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProvisionArgs {
    /// The server: mysql://…, mariadb://… or postgres://…, with ?strategy= and &table= as for clients
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    url: ServerUrl,
    /// How many buckets a level has; 10000000, or as many as the table has already
    #[arg(long, value_name = "N", value_parser = buckets)]
    buckets: Option<Buckets>,
    #[command(flatten)]
    tree: TreeArgs,
    /// How many connections fill and count rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    connections: Option<u16>,
    /// Write at most N rows per second, to limit the load on the server
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_rows_per_second: Option<u64>,
    /// Change nothing; count the rows and print which are missing
    #[arg(long, conflicts_with_all = ["print_sql", "rebucket", "paths"])]
    check: bool,
    /// Insert the rows that the check finds missing
    #[arg(long, requires = "check")]
    repair: bool,
    /// Change nothing; print the SQL that does the same
    #[arg(long, conflicts_with_all = ["rebucket", "paths", "json"])]
    print_sql: bool,
    /// Change the number of buckets a level has, while clients lock
    #[arg(long, value_name = "N", value_parser = buckets, conflicts_with = "paths")]
    rebucket: Option<Buckets>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Nodes to add rows for, with their ancestors; only for ?strategy=per-id
    #[arg(value_name = "PATH")]
    paths: Vec<Target>,
}

const EXAMPLES: &str = "\
Examples:
  hierlock provision --url mysql://root@127.0.0.1/app                # 10000000 buckets a level
  hierlock provision --url mysql://… --buckets 100000
  hierlock provision --url mysql://… --max-rows-per-second 20000     # beside others
  hierlock provision --url mysql://… --check                         # exit code 65: something is missing
  hierlock provision --url mysql://… --check --repair
  hierlock provision --url mysql://… --rebucket 20000000             # clients go on meanwhile
  hierlock provision --url mysql://… --print-sql | mysql app         # by someone else
  hierlock provision --url 'mysql://…?strategy=per-id' u1/a1/r1      # u1, u1/a1 and u1/a1/r1";

pub(crate) fn provision(args: &ProvisionArgs) -> CommandResult {
    block_on(args.run())
}

impl ProvisionArgs {
    async fn run(&self) -> CommandResult {
        let provision = Provision::connect(&self.url(), self.tree.levels.clone()).await?;
        let provision = provision.max_rows_per_second(self.max_rows_per_second);
        let provision = with(provision, self.connections.map(usize::from), Provision::connections);
        provision.warnings().iter().for_each(print_message);
        if self.print_sql {
            return print(provision.print_sql());
        }
        let progress = ProgressDisplay::new(self.json);
        let update = |now| progress.update(now);
        let report = if self.check {
            let check = provision.check(update).await?;
            progress.bar.finish_and_clear();
            let is_repairable = check.missing_rows > 0 || !check.is_ready;
            if !self.repair || !is_repairable {
                print(if self.json { check_json(&check) } else { check_text(&check) })?;
                return Ok(if check.is_clean() { exit::SUCCESS } else { exit::INCOMPLETE });
            }
            progress.print_message(check_text(&check).trim_end());
            provision.repair(update).await?
        } else if let Some(buckets) = self.rebucket {
            provision.rebucket(buckets, update).await?
        } else {
            let Prediction { rows, bytes, .. } = provision.prediction();
            progress.print_message(&match rows {
                0 => "rows come with the nodes".to_owned(),
                rows => format!("{} rows, about {}", HumanCount(rows), HumanBytes(bytes)),
            });
            let mut report = provision.run(update).await?;
            if !self.paths.is_empty() {
                report.inserted += provision.add(&self.paths).await?;
            }
            report
        };
        progress.bar.finish_and_clear();
        print(if self.json { report_json(&report) } else { report_text(&report) })
    }

    /// Returns the URL with `--buckets` as a parameter.
    fn url(&self) -> String {
        with(self.url.expose().to_owned(), self.buckets, |url, buckets| {
            let separator = if url.contains('?') { '&' } else { '?' };
            format!("{url}{separator}buckets={}", buckets.count())
        })
    }
}

/// Prints progress: a bar on a terminal, lines elsewhere, nothing with `--json`.
struct ProgressDisplay {
    bar: ProgressBar,
    prints_lines: bool,
    json: bool,
    last: Mutex<Option<(ProvisionPhase, Instant)>>,
}

impl ProgressDisplay {
    fn new(json: bool) -> Self {
        let template = "{msg} {wide_bar} {human_pos}/{human_len} rows, {per_sec}, {eta} left";
        let prints_lines = !json && !io::stderr().is_terminal();
        Self { bar: bar(template, json), prints_lines, json, last: Mutex::default() }
    }

    fn print_message(&self, text: &str) {
        if !self.json {
            self.bar.suspend(|| print_message(text));
        }
    }

    fn update(&self, ProvisionProgress { phase, done, total, .. }: ProvisionProgress) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let since = last.filter(|(before, _)| *before == phase).map(|(_, at)| at.elapsed());
        if since.is_none() {
            self.bar.set_message(phase.name());
            self.bar.reset();
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        if since.is_none_or(|since| since >= LINE_INTERVAL) {
            *last = Some((phase, Instant::now()));
            if self.prints_lines {
                print_message(match total {
                    0 => format!("{} …", phase.name()),
                    _ => format!("{}: {done} of {total} rows", phase.name()),
                });
            }
        }
    }
}

fn report_text(report: &ProvisionReport) -> String {
    let ProvisionReport { rows, inserted, deleted, elapsed, .. } = *report;
    let mut text = match rows {
        0 => format!("ready: {} rows added", HumanCount(inserted)),
        _ => format!("ready: {} rows, {} of them new", HumanCount(rows), HumanCount(inserted)),
    };
    if deleted > 0 {
        text += &format!(", {} deleted", HumanCount(deleted));
    }
    if rows > 0 && inserted > 0 {
        let seconds = elapsed.as_secs_f64();
        let rate = HumanCount((inserted as f64 / seconds.max(0.001)) as u64);
        text += &format!(", in {seconds:.1} s ({rate} rows/s)");
    }
    text + "\n"
}

fn report_json(report: &ProvisionReport) -> String {
    json_line(&json!({
        "result": "ready",
        "rows": report.rows,
        "inserted": report.inserted,
        "deleted": report.deleted,
        "elapsed_ms": millis(report.elapsed),
    }))
}

fn check_text(check: &TableCheck) -> String {
    let mut text = String::new();
    for (level, rows) in check.rows.iter().enumerate() {
        text += &format!("level {level}: {rows} of {} rows\n", check.buckets);
    }
    for range in check.missing.iter().take(MAX_PRINTED_RANGES) {
        text += &format!("missing: {range}\n");
    }
    if check.missing.len() > MAX_PRINTED_RANGES {
        text += &format!("missing: and more, {} rows in all\n", check.missing_rows);
    }
    if check.extra_rows > 0 {
        text += &format!("too many: {} rows that nobody locks\n", check.extra_rows);
    }
    text += match (check.is_clean(), check.is_ready, check.missing_rows) {
        (true, _, _) => "the table is complete\n",
        (_, false, _) => "provisioning has not finished; run `hierlock provision` again\n",
        (_, _, 1..) => "`hierlock provision --check --repair` inserts the missing rows\n",
        _ => {
            "`hierlock provision --rebucket` with the present number of buckets deletes the extra rows\n"
        }
    };
    text
}

fn check_json(check: &TableCheck) -> String {
    let missing = check
        .missing
        .iter()
        .map(|range| json!({ "level": range.level, "first": range.first, "last": range.last }));
    json_line(&json!({
        "result": "checked",
        "clean": check.is_clean(),
        "ready": check.is_ready,
        "rows": check.rows,
        "buckets": check.buckets,
        "missing_rows": check.missing_rows,
        "missing": missing.collect::<Value>(),
        "extra_rows": check.extra_rows,
    }))
}
