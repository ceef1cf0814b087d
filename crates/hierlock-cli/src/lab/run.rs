//! `hierlock lab run`.

use super::servers::{Equipped, Unequipped, equip};
use super::show::{Shown, look};
use super::{DISAGREES, args, select};
use crate::exit::Stop;
use crate::generate::print;
use crate::show::say;
use hierlock_lab::lab::How;
use hierlock_lab::place::Engine;
use hierlock_lab::record::{Record, Report};
use hierlock_lab::report::{self, Stability, Story};
use hierlock_lab::scenario::{Case, Scenario, bless};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

pub(super) async fn run(args: &args::Run) -> Result<ExitCode, Stop> {
    let scenarios = match args.what.is_empty() {
        true => select::of_topics(&args.topic)?,
        false => select::named(&args.what)?,
    };
    let how =
        How { jobs: args.how.jobs, rounds: args.repeat, locks: args.locks || args.html.is_some() };
    let quiet = args.json || args.mermaid;
    let (report, stories) = run_all(&scenarios, &args.servers, how, quiet).await?;

    if args.bless {
        write_back(&scenarios, &report.records)?;
    }
    if let Some(file) = &args.html {
        write(file, &report::html(&report, &stories))?;
    }
    if let Some(file) = &args.junit {
        write(file, &report::junit(&report, &stories))?;
    }
    let shown = match (args.json, args.mermaid) {
        (true, _) => report::json(&report, &stories),
        (_, true) => report.records.iter().map(|record| report::mermaid(record) + "\n").collect(),
        _ => {
            let mut shown = report::text(&report, &stories, look(args.verbose));
            if args.repeat > 1 {
                shown += &Stability::of(&report).text();
            }
            shown
        }
    };
    print(shown.as_bytes());
    Ok(exit_code(&report, &args.servers))
}

/// Runs all cases of these scenarios, wherever they can run.
pub(super) async fn run_all(
    scenarios: &[Arc<Scenario>],
    servers: &args::Servers,
    how: How,
    quiet: bool,
) -> Result<(Report, Vec<Story>), Stop> {
    let cases = select::cases(scenarios, &servers.engines)?;
    // The lab goes first: it tidies up on the servers.
    let Equipped { servers: _alive, lab, missing } =
        equip(servers, select::engines(&cases)).await.map_err(stop)?;
    let begun = Instant::now();
    let there = cases.iter().filter(|case| lab.has(case.place.engine)).count();
    let shown = Shown::new(there * how.rounds as usize, quiet);
    let records = lab.run(&cases, how, |record| shown.tell(record)).await;
    shown.end();
    let stories = scenarios.iter().map(|scenario| story(scenario, &cases)).collect();
    Ok((Report { records, missing, took: begun.elapsed() }, stories))
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

/// Writes what was observed into the files.
fn write_back(scenarios: &[Arc<Scenario>], records: &[Record]) -> Result<(), Stop> {
    for scenario in scenarios {
        let own: Vec<Record> =
            records.iter().filter(|record| record.file == scenario.file).cloned().collect();
        let blessed = bless(scenario, &own);
        if blessed == scenario.text {
            continue;
        }
        let file = Path::new(&scenario.file);
        if !file.exists() {
            return Err(Stop::usage(format!("{} is built in; bless a copy of it", scenario.name)));
        }
        write(file, &blessed)?;
        say(format!("{} now says what was observed", scenario.file));
    }
    Ok(())
}
