//! The built-in scenarios: reality agrees with each, everywhere; and each of them can fail.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_lab::{
    Case, Engine, Expectation, Expected, ExpectedCell, ExpectedRows, Lab, Look, Name, Record,
    RunOptions, Scenario, Story, Verdict,
};
use hierlock_sandbox::Server;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// As many as the command runs at a time.
const JOBS: usize = 4;

fn all() -> Vec<Arc<Scenario>> {
    Scenario::builtin().unwrap_or_else(|mistakes| {
        panic!("{}", mistakes.iter().map(ToString::to_string).collect::<String>())
    })
}

/// A lab with the servers that are there, and those servers.
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
    all().iter().flat_map(|scenario| scenario.cases().unwrap()).collect()
}

fn told(records: Vec<Record>) -> String {
    let stories: Vec<Story> = all().iter().map(|scenario| Story::new(scenario, [])).collect();
    let report = hierlock_lab::Report { records, ..Default::default() };
    report.text(&stories, Look { colour: false, width: 120, verbose: false })
}

#[tokio::test(flavor = "multi_thread")]
async fn reality_agrees_with_all_of_them() {
    let (lab, _servers) = lab().await;
    let cases = cases();
    let records = lab.run(&cases, RunOptions { jobs: JOBS, ..RunOptions::default() }, |_| ()).await;
    let runnable = cases.iter().filter(|case| lab.has(case.place.engine)).count();
    assert_eq!(records.len(), runnable);
    let others: Vec<Record> = records.into_iter().filter(|record| !record.agrees()).collect();
    assert!(others.is_empty(), "{}", told(others));
}

/// One case of each scenario, with the last thing that it expects turned into something else.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_them_can_fail() {
    let (lab, _servers) = lab().await;
    let mut flipped = Vec::new();
    for scenario in all() {
        let cases = scenario.cases().unwrap();
        let Some(case) = cases.into_iter().rev().find(|case| lab.has(case.place.engine)) else {
            continue;
        };
        flipped.push(flip(case).unwrap_or_else(|| panic!("{} expects nothing", scenario.name)));
    }
    let records =
        lab.run(&flipped, RunOptions { jobs: JOBS, ..RunOptions::default() }, |_| ()).await;
    assert_eq!(records.len(), flipped.len());
    for record in records {
        let is_noticed = matches!(record.verdict, Verdict::Disagrees { .. });
        assert!(is_noticed, "{} on {}: {:?}", record.scenario, record.place, record.verdict);
    }
}

/// Changes the last step that says what must be seen.
fn flip(mut case: Case) -> Option<Case> {
    let step = case.steps.iter_mut().rev().find(|step| step.expected.is_some())?;
    let was = step.expected.take()?;
    let other = match &was.either[0] {
        Expected::Done { rows: Some(rows), .. } => {
            Expected::Done { rows: Some(with_another_row(rows)), changed: None }
        }
        Expected::Done { changed: Some(changed), .. } => {
            Expected::Done { rows: None, changed: Some(changed + 1) }
        }
        Expected::Done { .. } => Expected::Blocked { by: Vec::new(), kind: None, object: None },
        Expected::Deadlock { .. } => {
            Expected::Deadlock { victims: vec![Name::new("Nobody").unwrap()] }
        }
        _ => Expected::Done { rows: None, changed: None },
    };
    step.expected = Some(Expectation { either: vec![other] });
    Some(case)
}

fn with_another_row(rows: &ExpectedRows) -> ExpectedRows {
    let mut rows = rows.clone();
    rows.rows.push(vec![ExpectedCell::Value("one row too many".to_owned())]);
    rows
}

#[test]
fn each_of_them_says_why_where_from_and_what_to_do() {
    for scenario in all() {
        let Scenario { name, title, why, seeds, advice, text, file, .. } = &*scenario;
        assert!(!title.is_empty() && !why.trim().is_empty(), "{name} does not say why");
        assert!(!advice.trim().is_empty(), "{name} does not say what to do about it");
        assert!(!seeds.is_empty(), "{name} does not say where it comes from");
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
    let is_current = std::fs::read_to_string(page).unwrap() == Scenario::book(&all());
    assert!(is_current, "cargo run -- lab docs > docs/hierlock-scenarios.md makes it anew");
}
