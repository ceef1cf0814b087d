//! Scenarios of the deadlock reports that the tests of the engine read.

use super::*;
use crate::scenario::Scenario;
use hierlock_engine::introspection::read_deadlocks;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn dumps() -> Vec<String> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../hierlock-engine/tests/deadlocks");
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn dump(words: &str) -> DeadlockDump {
    let text = dumps().into_iter().find(|text| text.contains(words)).unwrap();
    let mut dump = read_deadlocks(&text).remove(0);
    guess_columns(&mut dump);
    dump
}

#[test]
fn a_scenario_first_takes_the_locks_that_the_others_wait_for() {
    let dump = dump("MySQL thread id 14,");
    let text = DeadlockSkeleton::new(&dump).text();
    let (_, steps) = text.split_once("setup:\n").unwrap();
    assert_eq!(
        steps.replace(" # a guess: it takes the lock that another waits for", ""),
        "  create table accounts (id bigint, balance bigint, primary key (id));
  insert into accounts (id) values (1);
  insert into accounts (id) values (2);

A> begin
B> begin
A> select * from accounts where id = 1 for update
B> select * from accounts where id = 2 for update
A> update accounts set balance = balance + 5 where id = 2
 = blocked by B
B> update accounts set balance = balance + 3 where id = 1
 = deadlock, A or B
victim> rollback
survivor> rollback
"
    );
}

#[test]
fn columns_are_named_after_the_statements() {
    let columns = |dump: &DeadlockDump| dump.members[0].wanted.clone().unwrap().columns;
    assert_eq!(columns(&dump("MySQL thread id 14,")), ["id"]);
    assert_eq!(columns(&dump("where `名前` = '東京'")), ["名前"]);
    assert!(columns(&dump("where owner = 'b'")).is_empty(), "a number is not of a text column");
}

#[test]
fn a_scanned_table_is_found() {
    let mut dump = dump("where owner = 'b'");
    assert_eq!(scanned_table(&dump, 0), None, "the key is not known");
    for member in &mut dump.members {
        member.wanted.as_mut().unwrap().columns = vec!["id".to_owned()];
    }
    assert_eq!(scanned_table(&dump, 0), Some("jobs"));
    dump.members[0].statement = Some("update jobs set n = 2 where id > 0".to_owned());
    assert_eq!(scanned_table(&dump, 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The lab parses the scenario and draws the record, wherever the text of the report is cut off.
    #[test]
    fn every_scenario_is_valid(file in 0usize..40, begin in 0usize..3000, length in 0usize..4000) {
        let dumps = dumps();
        check_cut(&dumps[file % dumps.len()], begin, length);
    }
}

/// The failure this prevents: without any statement, the scenario named a victim but expected no deadlock.
#[test]
fn every_scenario_of_a_short_text_is_valid() {
    for text in dumps() {
        (0..text.len()).step_by(90).for_each(|begin| check_cut(&text, begin, 517));
    }
}

fn check_cut(text: &str, begin: usize, length: usize) {
    let boundary = |at: usize| {
        let at = at.min(text.len());
        (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
    };
    for mut dump in read_deadlocks(&text[boundary(begin)..boundary(begin + length)]) {
        guess_columns(&mut dump);
        let skeleton = DeadlockSkeleton::new(&dump);
        let scenario = skeleton.text();
        assert!(Scenario::format("x.lab", &scenario).is_ok(), "{scenario}");
        assert!(skeleton.record().mermaid().starts_with("sequenceDiagram"));
        assert_eq!(skeleton.svg().is_some(), dump.cycle().is_some());
    }
}
