//! Cycles of waits: those that the engine resolves, with their victim, and those that it does not resolve.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_lab::{Case, Engine, Lab, Record, Report, RunOptions, Scenario};
use hierlock_sandbox::{Sandbox, Server};

/// Returns the cases of a file on an engine. `NUMBERS` makes three rows, of which `CHANGES` changes two.
fn cases(text: &str, engine: Engine) -> Vec<Case> {
    let text = &text
        .replace(
            "NUMBERS",
            "create table numbers (id int primary key, value int);\n  \
             insert into numbers values (1, 1), (2, 2), (3, 3);",
        )
        .replace(
            "CHANGES",
            "A> begin\nA> update numbers set value = 10 where id = 1\n\
             B> begin\nB> update numbers set value = 20 where id = 2",
        );
    let scenario = Scenario::parse("test/cycle", "cycle.lab", text).unwrap();
    let cases = scenario.cases().into_iter();
    cases.filter(|case| case.backend.engine == engine).collect()
}

async fn run(engine: Engine, url: &str, text: &str, rounds: u32) -> Vec<Record> {
    let mut lab = Lab::new().unwrap();
    lab.connect(engine, url).await.unwrap();
    let options = RunOptions { rounds, jobs: 2, ..RunOptions::default() };
    let mut report = Report::default();
    lab.run(&cases(text, engine), options, &mut report, |_| ()).await;
    report.records
}

/// The failure this prevents: a cycle that the server does not resolve, here because detection is off, was reported
/// after the limit as "neither ended nor was seen to wait".
async fn a_lasting_cycle_is_reported(engine: Engine) {
    let start = move || Sandbox::for_tests(engine.server().unwrap());
    let Some(sandbox) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let text = "\
# Nobody looks for deadlocks
setup:
  set global innodb_deadlock_detect = off;
  NUMBERS

CHANGES
A> update numbers set value = 11 where id = 2
 = blocked by B on row of numbers
B> update numbers set value = 21 where id = 1
 = blocked by A on row of numbers
A< = blocked by B
C> update numbers set value = 30 where id = 3
 = changed 1
C> update numbers set value = 31 where id = 1
 = blocked by A and B

teardown:
  set global innodb_deadlock_detect = on;
";
    let records = run(engine, sandbox.url(), text, 1).await;
    let [record] = &records[..] else { panic!("{records:?}") };
    assert!(record.agrees(), "{:?}", record.verdict);
    let [cycle] = &record.cycles[..] else { panic!("{:?}", record.cycles) };
    let edges: Vec<String> = cycle
        .links
        .iter()
        .map(|edge| {
            let wants = edge.wants.as_ref().unwrap();
            format!("{}>{} {}", edge.waiter, edge.holder, wants.record.as_ref().unwrap())
        })
        .collect();
    assert_eq!((cycle.step, &edges[..]), (5, &["A>B 2".to_owned(), "B>A 1".to_owned()][..]));
    // Later steps do not wait for the cycle again.
    let (closed, last) = (&record.steps[5], record.steps.last().unwrap());
    let watched = closed.seen_at - closed.began;
    assert!(watched > std::time::Duration::from_secs(2), "{watched:?}");
    let later = last.seen_at - closed.seen_at;
    assert!(later < std::time::Duration::from_secs(4), "the later steps took {later:?}");
}

#[tokio::test]
async fn mysql_does_not_resolve_a_cycle_without_detection() {
    a_lasting_cycle_is_reported(Engine::Mysql).await;
}

#[tokio::test]
async fn mariadb_does_not_resolve_a_cycle_without_detection() {
    a_lasting_cycle_is_reported(Engine::Mariadb).await;
}

/// The failure this prevents: the victim was sometimes the session that closed the cycle and sometimes one that had
/// waited before, since PostgreSQL ends the session that checks first, and all checked at about the same time. When
/// people type the statements, more slowly than the checks, it is always the session that closed the cycle. Here the
/// checks are late, so a step that did not wait for the earlier checks would make another session the victim every
/// time.
#[tokio::test]
async fn postgres_ends_the_session_that_closed_the_cycle() {
    let start = || Server::for_tests(Engine::Postgres.server().unwrap());
    let Some(server) = tokio::task::spawn_blocking(start).await.unwrap() else { return };
    let text = "\
# Three in a cycle
sessions: set deadlock_timeout = '300ms'
setup:
  NUMBERS

CHANGES
C> begin
C> update numbers set value = 30 where id = 3
A> update numbers set value = 11 where id = 2
 = blocked by B
B> update numbers set value = 21 where id = 3
 = blocked by C
C> update numbers set value = 31 where id = 1
 = deadlock
C> rollback
B< = changed 1
";
    let records = run(Engine::Postgres, server.url(), text, 6).await;
    assert_eq!(records.len(), 6);
    for record in records {
        assert!(record.agrees(), "round {}: {:?}", record.round, record.verdict);
        assert_eq!(record.deadlocks[0].victim.as_str(), "C");
    }
}
