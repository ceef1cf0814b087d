//! `hierlock lab anomalies`.

use super::interrupt::Interrupt;
use super::run::{Ran, exit_code, run_all, write};
use super::{args, select};
use crate::exit::Stop;
use crate::generate::print;
use crate::show::say;
use hierlock_lab::{Anomalies, RunOptions};
use std::process::ExitCode;

pub(super) async fn anomalies(
    args: &args::Anomalies,
    interrupt: Interrupt,
) -> Result<ExitCode, Stop> {
    let mut scenarios = select::of_topics(&[])?;
    scenarios.retain(|scenario| scenario.anomaly.is_some());
    let how = RunOptions { jobs: args.how.jobs, rounds: 1, locks: false };
    let quiet = args.json || args.markdown;
    let ran = run_all(&scenarios, &args.servers, how, quiet, &interrupt).await?;
    let Ran { report, stories, equipped } = match ran {
        Ok(ran) => ran,
        Err(interrupted) => return Ok(interrupted.exit_code()),
    };
    let written = match &args.html {
        Some(file) => write(file, &report.html(&stories)),
        None => Ok(()),
    };
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
    interrupt.close(equipped).await;
    written?;
    Ok(interrupt.exit_code().unwrap_or_else(|| exit_code(&report, &args.servers)))
}
