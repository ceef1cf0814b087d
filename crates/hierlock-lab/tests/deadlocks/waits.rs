//! Waits and their targets as each server reports them: transcripts that agree on every server.

use super::{lab, run};
use hierlock_lab::parts::Observation;
use hierlock_lab::{Engine, Record, Scenario};
use std::fs;

pub(super) const NUMBERS: &str = "setup:
  create table numbers (id int primary key, value int, word varchar(10));
  insert into numbers values (1, 30, 'a'), (2, 10, null), (10, 5, 'c');
";

/// Runs a transcript on every server of its engines that is installed.
pub(super) async fn run_everywhere(text: &str) -> Vec<Record> {
    let scenario = Scenario::parse("test/case", "case.lab", text);
    let scenario = scenario.unwrap_or_else(|found| panic!("{found:?}\n{text}"));
    let mut records = Vec::new();
    for engine in Engine::SERVERS {
        let Some((lab, _turn)) = lab(engine).await else { continue };
        let mut cases = scenario.cases();
        cases.retain(|case| case.backend.engine == engine);
        records.extend(run(&lab, &cases).await);
    }
    records
}

/// Runs a transcript like [`run_everywhere`]; each server must agree.
pub(super) async fn agree(text: &str) -> Vec<Record> {
    let records = run_everywhere(text).await;
    for record in &records {
        assert!(record.agrees(), "{} on {}: {record:#?}", record.title, record.backend);
    }
    records
}

/// Runs the transcripts in files; each file contains its reason.
#[tokio::test(flavor = "multi_thread")]
async fn every_file_agrees() {
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers")).unwrap();
    for file in files {
        agree(&fs::read_to_string(file.unwrap().path()).unwrap()).await;
    }
}

/// Runs a transcript on the numbers. Each server must agree, and report these targets of waits.
async fn targets_agree(transcript: &str, innodb: &[&str], postgres: &[&str]) -> Vec<Record> {
    let records = agree(&format!("{NUMBERS}{transcript}")).await;
    for record in &records {
        let targets = record.steps.iter().filter_map(|step| match &step.seen {
            Observation::Blocked(wait) => Some(wait.target.as_ref().unwrap().to_string()),
            _ => None,
        });
        let expected = if record.backend.engine == Engine::Postgres { postgres } else { innodb };
        assert_eq!(targets.collect::<Vec<_>>(), expected, "{}", record.backend);
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_waits_for_a_row() {
    let records = targets_agree(
        "\
A> begin
A> update numbers set value = 31 where id = 1
B> update numbers set value = 32 where id = 1
 = blocked by A on row
A> commit
B< = changed 1
",
        &["row 1 of numbers (PRIMARY), X,REC_NOT_GAP"],
        &["row 1 of numbers, ExclusiveLock"],
    );
    for record in records.await {
        let waits = record.steps.iter().map(|step| step.waits.len());
        assert_eq!(waits.collect::<Vec<_>>(), [0, 0, 1, 0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_waits_for_a_gap() {
    targets_agree(
        "\
A> begin
A> select * from numbers where id between 3 and 8 for update
B> begin
B> select * from numbers where id > 11 for update
C> insert into numbers values (5, 0, '')
 = [postgres] done
 = blocked by A on gap
D> insert into numbers values (20, 0, '')
 = [postgres] done
 = blocked by B on gap
",
        &[
            "gap before 10 of numbers (PRIMARY), X,GAP,INSERT_INTENTION",
            "gap before supremum of numbers (PRIMARY), X,INSERT_INTENTION",
        ],
        &[],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_waits_for_the_parent_row() {
    let records = agree(&format!(
        "{NUMBERS}  create table children (id int primary key, parent int,
    foreign key (parent) references numbers (id));
A> begin
A> select * from numbers where id = 1 for update
B> insert into children values (1, 1)
 = blocked by A on row of numbers
"
    ))
    .await;
    for record in records {
        let Observation::Blocked(wait) = &record.steps[2].seen else { panic!("{record:?}") };
        assert_eq!(wait.target.as_ref().unwrap().record.as_deref(), Some("1"));
    }
}

/// MariaDB lists only ten locks of a transaction; a holder of more still blocks.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_and_the_last_of_many_locks_block() {
    let lock_row = |table: u32| format!("> select * from t{table} where id = 1 for update\n");
    let (mut text, mut steps) = ("setup:\n".to_owned(), "A> begin\n".to_owned());
    for table in 1..=12 {
        text += &format!("  create table t{table} (id int primary key);\n");
        text += &format!("  insert into t{table} values (1);\n");
        steps += &format!("A{}", lock_row(table));
    }
    for (session, table) in [("B", 1), ("C", 12)] {
        steps += &format!("{session}{} = blocked by A on row\n", lock_row(table));
    }
    agree(&(text + &steps)).await;
}
