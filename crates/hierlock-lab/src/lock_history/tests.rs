//! The attribution of locks to statements, for runs made by hand.

use super::*;
use crate::engine::Engine;
use crate::record::Record;
use crate::report::fixtures::{backend, blocked, changed, done, name, record, row_of};

/// Returns the lock for which B waits for A in the last step of a run, while A waits for `other`, if for anything.
fn blocking_lock(record: &Record, wants: &LockTarget, other: Option<&LockTarget>) -> BlockingLock {
    let closing = record.steps.len() - 1;
    let mut edge = WaitEdge::new(name("B"), name("A"), Some(wants.clone()));
    edge.blocking.push(BlockingLock::new(wants.clone(), true));
    let back = other.map(|other| WaitEdge::new(name("A"), name("B"), Some(other.clone())));
    let mut cycle: Vec<WaitEdge> = [edge].into_iter().chain(back).collect();
    LockHistory { steps: &record.steps }.complete(&mut cycle, closing, &[]);
    cycle[0].blocking.remove(0)
}

fn empty_record() -> Record {
    record("test/ledger", "", backend(Engine::Mysql))
}

/// A had the same row in an earlier transaction, which does not count.
#[test]
fn a_lock_belongs_to_the_statement_that_took_it_last() {
    let row = row_of("t", "1");
    let held = [("A", row.clone(), true)];
    let record = empty_record()
        .step("A", "update 1", changed(1))
        .locks(&held)
        .step("A", "commit", done())
        .locks(&[])
        .step("A", "update 2", changed(1))
        .locks(&held)
        .step("A", "select", done())
        .locks(&held)
        .step("B", "update", done());
    let lock = blocking_lock(&record, &row, None);
    assert_eq!((lock.statement, lock.granted_in), (Some(2), Some(2)));
}

/// The lock was granted when another session released it: in that step, to the statement that had waited.
#[test]
fn a_lock_belongs_to_the_statement_that_waited_for_it() {
    let row = row_of("t", "1");
    let wait = blocked("A", &["C"], Some(row.clone()));
    let record = empty_record()
        .step("A", "update", wait)
        .locks(&[("A", row.clone(), false)])
        .step("C", "commit", done())
        .wakes(0, changed(1))
        .locks(&[("A", row.clone(), true)])
        .step("B", "update", done());
    let lock = blocking_lock(&record, &row, None);
    assert_eq!((lock.statement, lock.granted_in), (Some(0), Some(1)));
}

/// B creates the lock record of a row that A has written, while A waits for another lock.
#[test]
fn a_written_row_belongs_to_its_only_writer_or_is_unknown() {
    let (row, other) = (row_of("t", "10"), row_of("t", "2"));
    let table = LockTarget::new(LockKind::Table, "t", "IX");
    for (writes, statement) in [(1, Some(0)), (2, None)] {
        let mut record = empty_record();
        for _ in 0..writes {
            record = record.step("A", "insert", changed(1)).locks(&[("A", table.clone(), true)]);
        }
        let wait = blocked("A", &["C"], Some(other.clone()));
        let before = [("A", table.clone(), true), ("A", other.clone(), false)];
        let record = record.step("A", "update", wait).locks(&before).step("B", "insert", done());
        let lock = blocking_lock(&record, &row, Some(&other));
        assert_eq!(lock.statement, statement, "{lock:?}");
        let names_lines = lock.unknown.as_deref().map(|why| why.contains("lines 10, 12"));
        assert_eq!(names_lines, statement.is_none().then_some(true));
    }
}

#[test]
fn an_incomplete_lock_list_is_the_reason_for_an_unknown_statement() {
    let row = row_of("t", "1");
    let mut record =
        empty_record().step("A", "update", changed(1)).locks(&[]).step("B", "update", done());
    record.steps[0].incomplete_locks = [(name("A"), "ten locks".to_owned())].into();
    let lock = blocking_lock(&record, &row, None);
    assert_eq!((lock.statement, lock.unknown.as_deref()), (None, Some("ten locks")));
}

#[test]
fn a_truncated_key_matches_the_whole_key() {
    for (a, b, same) in [
        ("'0190aaaa…', 1", "'0190aaaabbbb', 1", true),
        ("'0190aaaa…', 1", "'0190aaaabbbb', 2", false),
        ("'0190aaaa…'", "'0191aaaabbbb'", false),
        ("1", "1", true),
        ("1", "10", false),
    ] {
        assert_eq!(same_record(Some(a), Some(b)), same, "{a} {b}");
    }
}
