//! `hierlock lab anomalies`.

use super::run::{exit_code, run_all, write};
use super::{args, select};
use crate::exit::Stop;
use crate::generate::print;
use crate::show::say;
use hierlock_lab::lab::How;
use hierlock_lab::report::{self, Anomalies};
use std::process::ExitCode;

pub(super) async fn anomalies(args: &args::Anomalies) -> Result<ExitCode, Stop> {
    let mut scenarios = select::of_topics(&[])?;
    scenarios.retain(|scenario| scenario.anomaly.is_some());
    let how = How { jobs: args.how.jobs, rounds: 1, locks: false };
    let quiet = args.json || args.markdown;
    let (report, stories) = run_all(&scenarios, &args.servers, how, quiet).await?;
    if let Some(file) = &args.html {
        write(file, &report::html(&report, &stories))?;
    }
    let table = Anomalies::of(&report, &stories);
    let shown = match (args.json, args.markdown) {
        (true, _) => table.json(),
        (_, true) => table.markdown(),
        _ => table.text(),
    };
    print(shown.as_bytes());
    for missing in &report.missing {
        say(format!("not on {}: {}", missing.engine, missing.why));
    }
    Ok(exit_code(&report, &args.servers))
}
