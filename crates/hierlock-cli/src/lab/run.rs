//! `hierlock lab run` and `hierlock lab anomalies`.

use super::args::{AnomaliesArgs, RunScenariosArgs, ServerArgs};
use super::bless::bless_files;
use super::interrupt::Interrupt;
use super::servers::LabServers;
use super::{exit_code, select};
use crate::exit::{CommandError, CommandResult};
use crate::output::{has_colour, print, print_message, table_width, write_file};
use crate::progress::bar;
use hierlock_lab::{
    AnomalyTable, Case, MissingEngine, Report, RoundComparison, RunEvent, RunOptions, Scenario,
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
        jobs: args.run.jobs.into(),
        rounds: args.repeat,
        locks: args.locks || args.html.is_some(),
    };
    let quiet = args.json || args.mermaid;
    let run = LabRun::start(&scenarios, &args.servers, options, quiet, &interrupt).await?;
    let blessed = if args.bless {
        bless_files(&scenarios, &run, &args.servers, options, &interrupt).await
    } else {
        Ok(())
    };
    let reported = blessed.and_then(|()| write_reports(args, &run));
    run.finish(&args.servers, &interrupt, reported).await
}

/// Writes and prints the requested reports.
fn write_reports(args: &RunScenariosArgs, run: &LabRun) -> CommandResult {
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
    let options = RunOptions { jobs: args.run.jobs.into(), rounds: 1, locks: false };
    let quiet = args.json || args.markdown;
    let run = LabRun::start(&scenarios, &args.servers, options, quiet, &interrupt).await?;
    let written = write_file(args.html.as_deref(), || run.report.html(&run.summaries));
    let table = AnomalyTable::new(&run.report, &run.summaries);
    let printed = print(match (args.json, args.markdown) {
        (true, _) => table.json(),
        (_, true) => table.markdown(),
        _ => table.text(),
    });
    print_missing(&run.report.missing);
    run.finish(&args.servers, &interrupt, written.and(printed)).await
}

/// The report of a run, and the servers that it used.
pub(super) struct LabRun {
    pub(super) report: Report,
    pub(super) servers: LabServers,
    summaries: Vec<ScenarioSummary>,
}

impl LabRun {
    /// Runs all cases of these scenarios for which a server is available.
    async fn start(
        scenarios: &[Arc<Scenario>],
        args: &ServerArgs,
        options: RunOptions,
        quiet: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, CommandError> {
        let cases = select::cases(scenarios, &args.engines)?;
        let connect = LabServers::connect(args, select::engines(&cases));
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
        let summaries = scenarios.iter().map(|scenario| summary(scenario, &cases)).collect();
        Ok(Self { report, servers, summaries })
    }

    /// Cleans up the servers, even if a report could not be written; returns the exit code.
    async fn finish(
        self,
        args: &ServerArgs,
        interrupt: &Interrupt,
        reported: CommandResult,
    ) -> CommandResult {
        let Report { records, missing, .. } = &self.report;
        let is_complete = !records.is_empty() && (!args.strict || missing.is_empty());
        self.servers.close(interrupt).await;
        reported?;
        let code = interrupt.exit_code();
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
                bar.set_message(format!("✗ {} on {}", record.case_name(), record.place));
            }
        }
        _ => {}
    }
}

fn summary(scenario: &Arc<Scenario>, cases: &[Case]) -> ScenarioSummary {
    let cases = cases.iter().filter(|case| case.scenario.name == scenario.name);
    ScenarioSummary::new(scenario, select::engines(cases))
}

pub(super) fn print_missing(missing: &[MissingEngine]) {
    for missing in missing {
        print_message(format!("not on {}: {}", missing.engine, missing.why));
    }
}
