//! The built-in scenarios: each agrees on every engine, and each can fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_lab::parts::{Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionName};
use hierlock_lab::{
    Case, Engine, Lab, Record, Report, RunOptions, Scenario, ScenarioSummary, TextStyle, Verdict,
};
use hierlock_sandbox::Server;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// The default of the command.
const JOBS: usize = 4;

fn all() -> Vec<Arc<Scenario>> {
    Scenario::builtin().unwrap_or_else(|diagnostics| {
        panic!("{}", diagnostics.iter().map(ToString::to_string).collect::<String>())
    })
}

/// Returns a lab with the installed servers, and those servers.
async fn lab() -> (Lab, Vec<Server>) {
    let (mut lab, mut servers) = (Lab::new().unwrap(), Vec::new());
    let starting = Engine::SERVERS.map(|engine| {
        (engine, spawn_blocking(move || Server::for_tests(engine.server().unwrap())))
    });
    for (engine, starting) in starting {
        if let Some(server) = starting.await.unwrap() {
            lab.connect(engine, server.url()).await.unwrap();
            servers.push(server);
        }
    }
    (lab, servers)
}

fn cases() -> Vec<Case> {
    all().iter().flat_map(|scenario| scenario.cases()).collect()
}

async fn run(lab: &Lab, cases: &[Case]) -> Vec<Record> {
    let mut report = Report::default();
    let options = RunOptions { jobs: JOBS, ..RunOptions::default() };
    lab.run(cases, options, &mut report, |_| ()).await;
    report.records
}

fn report_text(records: Vec<Record>) -> String {
    let scenarios: Vec<ScenarioSummary> =
        all().iter().map(|scenario| ScenarioSummary::new(scenario, [])).collect();
    let report = Report { records, ..Default::default() };
    report.text(&scenarios, TextStyle { width: 120, ..TextStyle::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_agrees() {
    let (lab, _servers) = lab().await;
    let cases = cases();
    let records = run(&lab, &cases).await;
    let runnable = cases.iter().filter(|case| lab.has(case.backend.engine)).count();
    assert_eq!(records.len(), runnable);
    let disagreeing: Vec<Record> = records.into_iter().filter(|record| !record.agrees()).collect();
    assert!(disagreeing.is_empty(), "{}", report_text(disagreeing));
}

/// Runs one case of each scenario, with its last expectation changed.
#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_can_fail() {
    let (lab, _servers) = lab().await;
    let mut changed = Vec::new();
    for scenario in all() {
        let cases = scenario.cases();
        let Some(case) = cases.into_iter().rev().find(|case| lab.has(case.backend.engine)) else {
            continue;
        };
        changed.push(
            with_other_expectation(case)
                .unwrap_or_else(|| panic!("{} expects nothing", scenario.name)),
        );
    }
    let records = run(&lab, &changed).await;
    assert_eq!(records.len(), changed.len());
    for record in records {
        let disagrees = matches!(record.verdict, Verdict::Disagrees { .. });
        assert!(disagrees, "{} on {}: {:?}", record.scenario, record.backend, record.verdict);
    }
}

/// Changes the last expectation of a case.
fn with_other_expectation(mut case: Case) -> Option<Case> {
    let step = case.steps.iter_mut().rev().find(|step| step.expected.is_some())?;
    let expected = step.expected.take()?;
    let other = match &expected.alternatives[0] {
        ExpectedOutcome::Done { rows: Some(rows), .. } => {
            ExpectedOutcome::Done { rows: Some(with_another_row(rows)), changed: None }
        }
        ExpectedOutcome::Done { changed: Some(changed), .. } => {
            ExpectedOutcome::Done { rows: None, changed: Some(changed + 1) }
        }
        ExpectedOutcome::Done { .. } => {
            ExpectedOutcome::Blocked { by: Vec::new(), kind: None, object: None }
        }
        ExpectedOutcome::Deadlock { .. } => {
            ExpectedOutcome::Deadlock { victims: vec![SessionName::new("Nobody").unwrap()] }
        }
        _ => ExpectedOutcome::Done { rows: None, changed: None },
    };
    step.expected = Some(Expectation { alternatives: vec![other] });
    Some(case)
}

fn with_another_row(rows: &ExpectedRows) -> ExpectedRows {
    let mut rows = rows.clone();
    rows.rows.push(vec![ExpectedCell::Value("one row too many".to_owned())]);
    rows
}

#[test]
fn every_scenario_has_a_reason_a_seed_and_advice() {
    for scenario in all() {
        let Scenario { name, title, why, seeds, advice, text, file, .. } = &*scenario;
        assert!(!title.is_empty() && !why.trim().is_empty(), "{name} has no reason");
        assert!(!advice.trim().is_empty(), "{name} has no advice");
        assert!(!seeds.is_empty(), "{name} has no seed");
        assert_eq!(
            Scenario::format(file, text).as_ref(),
            Ok(text),
            "{name}: `hierlock lab fmt` was not run"
        );
    }
}

#[test]
fn the_page_of_scenarios_is_up_to_date() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hierlock-scenarios.md");
    let is_current = std::fs::read_to_string(page).unwrap() == Scenario::markdown(&all());
    assert!(is_current, "cargo run -- lab docs > docs/hierlock-scenarios.md updates the page");
}
