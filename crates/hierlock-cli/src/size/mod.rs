//! `hierlock size`: recommends a number of buckets for a lock table.
//!
//! ```text
//!   numbers by level ─► SizeReport ─► text with a chart, JSON, SVG
//! ```

mod format;
mod level_counts;
mod report;
mod svg;
mod text;

use crate::args::{TreeArgs, buckets, count};
use crate::exit::{CommandError, CommandResult};
use crate::output::{json_line, print, write_file};
use hierlock::Buckets;
use hierlock::sizing::{LevelLoad, Workload};
use hierlock::sql::Dialect;
use level_counts::LevelCounts;
use report::SizeReport;
use std::path::PathBuf;

/// Show how many buckets a lock table needs
///
/// Different nodes may share a bucket of a lock table, and then wait for each other without need. Prints how often that
/// happens, how large the table is and how long it takes to fill, for several numbers of buckets, and which number to
/// choose. Does not connect to a server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SizeArgs {
    /// How many nodes a level has at most; or a number for each level, root first: 1e4,1e5,5e6
    #[arg(long, value_name = "N", value_parser = level_counts::parse)]
    ids: LevelCounts,
    /// How many locks are held or waited for at a time, on leaves; or on nodes of each level, root first: 1,5,200
    #[arg(long, value_name = "N", value_parser = level_counts::parse)]
    held: LevelCounts,
    /// How many buckets a level has; by default as many as are recommended
    #[arg(long, value_name = "N", value_parser = buckets)]
    buckets: Option<Buckets>,
    /// How often an acquire may meet false contention, for the recommendation: 0.1% or 0.001
    #[arg(long, value_name = "CHANCE", default_value = "0.1%", value_parser = format::parse_chance)]
    target_chance: f64,
    #[command(flatten)]
    tree: TreeArgs,
    /// The server, for the size of the table: mysql, mariadb or postgres
    #[arg(long, default_value_t = Dialect::Mysql)]
    engine: Dialect,
    /// How fast the server inserts rows, as printed by `hierlock provision`; by default as measured on two cores
    #[arg(long, value_name = "N", value_parser = rate)]
    rows_per_second: Option<u64>,
    /// Write the chart as SVG to a file; - for standard output, and nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hierlock size --ids 5e6 --held 200                      # recommends a number of buckets
  hierlock size --ids 5e6 --held 200 --buckets 1e7        # what to expect of ten million
  hierlock size --ids 1e4,1e5,5M --held 1,5,200           # users, accounts and resources
  hierlock size --ids 5e6 --held 200 --target-chance 1% --engine postgres
  hierlock size --ids 5e6 --held 200 --svg buckets.svg";

pub(crate) fn size(args: &SizeArgs) -> CommandResult {
    let report = SizeReport::new(args, args.workload()?);
    if args.json {
        return print(json_line(&report));
    }
    match args.svg.as_deref() {
        Some(file) if file.as_os_str() == "-" => return print(report.svg()),
        file => write_file(file, || report.svg())?,
    };
    print(report.text())
}

impl SizeArgs {
    /// Returns the nodes and the held locks of each level.
    fn workload(&self) -> Result<Workload, CommandError> {
        let levels = &self.tree.levels;
        let nodes = self.ids.by_level("--ids", levels, |ids| vec![ids; levels.len()])?;
        let held = self.held.by_level("--held", levels, |held| {
            let leaves = [held];
            std::iter::repeat_n(0, levels.len() - 1).chain(leaves).collect()
        })?;
        let load = nodes.into_iter().zip(held).map(|(nodes, held)| LevelLoad { nodes, held });
        Ok(Workload { levels: load.collect() })
    }
}

fn rate(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("at 0 rows a second the table is never filled".to_owned()),
        rate => Ok(rate),
    }
}
