//! `hierlock lab run` and `hierlock lab anomalies`.

use super::args::{AnomaliesArgs, RunScenariosArgs, RunnerArgs};
use super::bless::bless_files;
use super::interrupt::Interrupt;
use super::servers::LabServers;
use super::{exit_code, select};
use crate::exit::{CommandError, CommandResult};
use crate::output::{has_colour, print, print_message, table_width, write_file};
use crate::progress::bar;
use hierlock_lab::{
    AnomalyTable, MissingEngine, Report, RoundComparison, RunEvent, RunOptions, Scenario,
    ScenarioSummary, TextStyle,
};
use indicatif::ProgressBar;
use std::io::{self, IsTerminal};
use std::sync::Arc;

/// The width of a report if standard output is not a terminal.
const DEFAULT_WIDTH: usize = 100;

pub(super) async fn run(args: &RunScenariosArgs, interrupt: Interrupt) -> CommandResult {
    let scenarios = if args.scenarios.is_empty() {
        select::by_topic(&args.topic)?
    } else {
        select::by_pattern(&args.scenarios)?
    };
    let options = RunOptions {
        jobs: args.runner.jobs.into(),
        rounds: args.repeat,
        locks: args.locks || args.html.is_some(),
    };
    let quiet = args.json || args.mermaid;
    let run = LabRun::start(&scenarios, &args.runner, options, quiet, &interrupt).await?;
    let blessed = if args.bless { bless_files(&run).await } else { Ok(()) };
    let reported = blessed.and_then(|()| write_reports(args, &run));
    run.finish(reported).await
}

/// Writes and prints the requested reports.
fn write_reports(args: &RunScenariosArgs, run: &LabRun<'_>) -> CommandResult {
    let LabRun { report, summaries, .. } = run;
    write_file(args.html.as_deref(), || report.html(summaries))?;
    write_file(args.junit.as_deref(), || report.junit(summaries))?;
    print(match (args.json, args.mermaid) {
        (true, _) => report.json(summaries),
        (_, true) => report.records.iter().map(|record| record.mermaid() + "\n").collect(),
        _ => {
            let mut text = report.text(summaries, text_style(args.verbose));
            if args.repeat > 1 {
                text += &RoundComparison::new(report).text();
            }
            text
        }
    })
}

fn text_style(verbose: bool) -> TextStyle {
    let width = table_width().unwrap_or(DEFAULT_WIDTH);
    // In a pipe every scenario is one line, for grep.
    TextStyle { colour: has_colour(), width, verbose, by_topic: io::stdout().is_terminal() }
}

pub(super) async fn anomalies(args: &AnomaliesArgs, interrupt: Interrupt) -> CommandResult {
    let mut scenarios = select::by_topic(&[])?;
    scenarios.retain(|scenario| scenario.anomaly.is_some());
    let options = RunOptions { jobs: args.runner.jobs.into(), rounds: 1, locks: false };
    let quiet = args.json || args.markdown;
    let run = LabRun::start(&scenarios, &args.runner, options, quiet, &interrupt).await?;
    let written = write_file(args.html.as_deref(), || run.report.html(&run.summaries));
    let table = AnomalyTable::new(&run.report, &run.summaries);
    let printed = print(match (args.json, args.markdown) {
        (true, _) => table.json(),
        (_, true) => table.markdown(),
        _ => table.text(),
    });
    print_missing(&run.report.missing);
    run.finish(written.and(printed)).await
}

/// A run of scenarios: what was requested, the servers, and the report.
pub(super) struct LabRun<'a> {
    pub(super) scenarios: &'a [Arc<Scenario>],
    pub(super) args: &'a RunnerArgs,
    pub(super) options: RunOptions,
    pub(super) interrupt: &'a Interrupt,
    pub(super) servers: LabServers,
    pub(super) report: Report,
    summaries: Vec<ScenarioSummary>,
}

impl<'a> LabRun<'a> {
    /// Runs all cases of these scenarios for which a server is available.
    async fn start(
        scenarios: &'a [Arc<Scenario>],
        args: &'a RunnerArgs,
        options: RunOptions,
        quiet: bool,
        interrupt: &'a Interrupt,
    ) -> Result<Self, CommandError> {
        let cases = select::cases(scenarios, &args.engines)?;
        let connect = LabServers::connect(&args.urls, select::engines(&cases));
        let mut servers = interrupt.run_until_signal(connect).await??;
        let missing = std::mem::take(&mut servers.missing);
        let mut report = Report { missing, ..Report::default() };
        let bar = progress_bar(quiet);
        let run =
            servers.lab.run(&cases, options, &mut report, |event| update_progress(&bar, event));
        // After a signal, the report has the cases that have finished.
        _ = interrupt.run_until_signal(run).await;
        bar.finish_and_clear();
        report.interruption.iter().for_each(print_message);
        let summary = |scenario: &Arc<Scenario>| {
            let cases = cases.iter().filter(|case| case.scenario.name == scenario.name);
            ScenarioSummary::new(scenario, select::engines(cases))
        };
        let summaries = scenarios.iter().map(summary).collect();
        Ok(Self { scenarios, args, options, interrupt, servers, report, summaries })
    }

    /// Cleans up the servers, even if a report could not be written; returns the exit code.
    async fn finish(self, reported: CommandResult) -> CommandResult {
        let Report { records, missing, .. } = &self.report;
        let is_complete = !records.is_empty() && (!self.args.strict || missing.is_empty());
        self.servers.close(self.interrupt).await;
        reported?;
        let code = self.interrupt.exit_code();
        Ok(code.unwrap_or_else(|| exit_code(self.report.agrees(), is_complete)))
    }
}

pub(super) fn progress_bar(quiet: bool) -> ProgressBar {
    bar("{wide_bar} {pos}/{len} {msg}", quiet)
}

pub(super) fn update_progress(bar: &ProgressBar, event: RunEvent<'_>) {
    match event {
        RunEvent::RunStarted { planned } => bar.set_length(planned as u64),
        RunEvent::CaseFinished(record) => {
            bar.inc(1);
            if !record.agrees() {
                bar.set_message(format!("✗ {} on {}", record.case_name(), record.backend));
            }
        }
        _ => {}
    }
}

pub(super) fn print_missing(missing: &[MissingEngine]) {
    for missing in missing {
        print_message(format!("not on {}: {}", missing.engine, missing.why));
    }
}
