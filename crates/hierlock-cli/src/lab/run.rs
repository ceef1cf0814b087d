//! `hierlock lab run`.

use super::bless::write_back;
use super::interrupt::{Interrupt, InterruptSignal};
use super::servers::{Equipped, Unequipped, equip};
use super::show::{Shown, look};
use super::{DISAGREES, args, select};
use crate::exit::Stop;
use crate::generate::print;
use crate::show::say;
use hierlock_lab::{Case, Engine, Interruption, Report, RunOptions, Scenario, Stability, Story};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

pub(super) async fn run(args: &args::Run, interrupt: Interrupt) -> Result<ExitCode, Stop> {
    let scenarios = match args.what.is_empty() {
        true => select::of_topics(&args.topic)?,
        false => select::named(&args.what)?,
    };
    let how = RunOptions {
        jobs: args.how.jobs,
        rounds: args.repeat,
        locks: args.locks || args.html.is_some(),
    };
    let quiet = args.json || args.mermaid;
    let ran = match run_all(&scenarios, &args.servers, how, quiet, &interrupt).await? {
        Ok(ran) => ran,
        Err(interrupted) => return Ok(interrupted.exit_code()),
    };
    // Servers are tidied up also when a report cannot be written.
    let told = match args.bless {
        true => write_back(&scenarios, &ran, &args.servers, how, &interrupt).await,
        false => Ok(()),
    };
    let told = told.and_then(|()| report_all(args, &ran.report, &ran.stories));
    interrupt.close(ran.equipped).await;
    told?;
    Ok(interrupt.exit_code().unwrap_or_else(|| exit_code(&ran.report, &args.servers)))
}

/// Writes and prints what was asked for.
fn report_all(args: &args::Run, report: &Report, stories: &[Story]) -> Result<(), Stop> {
    if let Some(file) = &args.html {
        write(file, &report.html(stories))?;
    }
    if let Some(file) = &args.junit {
        write(file, &report.junit(stories))?;
    }
    let shown = match (args.json, args.mermaid) {
        (true, _) => report.json(stories),
        (_, true) => report.records.iter().map(|record| record.mermaid() + "\n").collect(),
        _ => {
            let mut shown = report.text(stories, look(args.verbose));
            if args.repeat > 1 {
                shown += &Stability::of(report).text();
            }
            shown
        }
    };
    print(shown.as_bytes());
    Ok(())
}

/// What was run, and what it was run on.
pub(super) struct Ran {
    pub(super) report: Report,
    pub(super) stories: Vec<Story>,
    pub(super) equipped: Equipped,
}

/// Runs all cases of these scenarios, wherever they can run.
pub(super) async fn run_all(
    scenarios: &[Arc<Scenario>],
    servers: &args::Servers,
    how: RunOptions,
    quiet: bool,
    interrupt: &Interrupt,
) -> Result<Result<Ran, InterruptSignal>, Stop> {
    let cases = select::cases(scenarios, &servers.engines)?;
    let mut equipped = match interrupt.or(equip(servers, select::engines(&cases))).await {
        Ok(equipped) => equipped.map_err(stop)?,
        Err(interrupted) => return Ok(Err(interrupted)),
    };
    let begun = Instant::now();
    let planned = equipped.lab.planned(&cases, how);
    let shown = Shown::new(planned, quiet);
    let stop = async { _ = interrupt.came().await };
    let records = equipped.lab.run_until(&cases, how, |record| shown.tell(record), stop).await;
    shown.end();
    let finished = records.len();
    let interruption = (finished < planned).then_some(Interruption { finished, planned });
    if let Some(interruption) = interruption {
        say(interruption);
    }
    let missing = std::mem::take(&mut equipped.missing);
    let stories = scenarios.iter().map(|scenario| story(scenario, &cases)).collect();
    let report = Report { records, missing, interruption, took: begun.elapsed() };
    Ok(Ok(Ran { report, stories, equipped }))
}

fn story(scenario: &Arc<Scenario>, cases: &[Case]) -> Story {
    let of_it = cases.iter().filter(|case| case.scenario.name == scenario.name);
    let engines: Vec<Engine> = of_it.map(|case| case.place.engine).collect();
    let engines = Engine::ALL.into_iter().filter(|engine| engines.contains(engine));
    Story::new(scenario, engines)
}

pub(super) fn stop(error: Unequipped) -> Stop {
    match error {
        Unequipped::Url(why) => Stop::usage(why),
        other => Stop::unavailable(other),
    }
}

/// 0 only if every verdict agrees, and something was run.
pub(super) fn exit_code(report: &Report, servers: &args::Servers) -> ExitCode {
    let lacks = servers.strict && !report.missing.is_empty();
    match (report.agrees(), lacks || report.records.is_empty()) {
        (false, _) => ExitCode::from(DISAGREES),
        (true, true) => crate::exit::UNAVAILABLE.into(),
        (true, false) => ExitCode::SUCCESS,
    }
}

pub(super) fn write(file: &Path, text: &str) -> Result<(), Stop> {
    fs::write(file, text).map_err(|error| {
        Stop::unavailable(format!("{} cannot be written: {error}", file.display()))
    })
}
