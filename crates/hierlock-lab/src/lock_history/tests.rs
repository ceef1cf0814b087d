//! Which statement took a lock, for runs made by hand.

use super::*;
use crate::place::Engine;
use crate::record::Record;
use crate::report::fixtures::{RecordBuilder, blocked, changed, done, name, place, row_of};

fn table() -> LockedObject {
    LockedObject::new(LockKind::Table, "t", "IX")
}

/// Why B waits for A in the last step of a run.
fn explained(
    record: &Record,
    incomplete: &[IncompleteLocks],
    wants: &LockedObject,
) -> BlockingLock {
    let closing = record.steps.len() - 1;
    let mut link = WaitEdge::new(name("B"), name("A"), Some(wants.clone()));
    link.blocking.push(BlockingLock::new(wants.clone(), true));
    let mut circle = [link];
    let history = LockHistory { steps: &record.steps, incomplete };
    history.complete(&mut circle, closing, &[]);
    circle[0].blocking.remove(0)
}

fn builder() -> RecordBuilder {
    RecordBuilder::new("test/ledger", "", place(Engine::Mysql))
}

/// A had the same row in an earlier transaction: that does not count.
#[test]
fn a_lock_counts_from_when_it_was_taken_last() {
    let row = row_of("t", "1");
    let held = [("A", row.clone(), true)];
    let record = builder()
        .step("A", "update 1", changed(1))
        .locks(&held)
        .step("A", "commit", done())
        .locks(&[])
        .step("A", "update 2", changed(1))
        .locks(&held)
        .step("A", "select", done())
        .locks(&held)
        .step("B", "update", done())
        .build();
    let lock = explained(&record, &[], &row);
    assert_eq!((lock.statement, lock.granted_in), (Some(2), Some(2)));
}

/// It came when another had let it go: in that step, by the statement that had waited.
#[test]
fn a_lock_belongs_to_the_statement_that_waited_for_it() {
    let row = row_of("t", "1");
    let wait = blocked("A", &["C"], Some(row.clone()));
    let record = builder()
        .step("A", "update", wait)
        .locks(&[("A", row.clone(), false)])
        .step("C", "commit", done())
        .wakes(0, changed(1))
        .locks(&[("A", row.clone(), true)])
        .step("B", "update", done())
        .build();
    let lock = explained(&record, &[], &row);
    assert_eq!((lock.statement, lock.granted_in), (Some(0), Some(1)));
}

/// B makes the lock record of a row that A has written, while A waits for something else.
#[test]
fn a_written_row_belongs_to_its_writer_or_is_not_told() {
    let (row, other) = (row_of("t", "10"), row_of("t", "2"));
    let writing = |writes: usize| {
        let mut builder = builder();
        for _ in 0..writes {
            builder = builder.step("A", "insert", changed(1)).locks(&[("A", table(), true)]);
        }
        let wait = blocked("A", &["C"], Some(other.clone()));
        let before = [("A", table(), true), ("A", other.clone(), false)];
        builder.step("A", "update", wait).locks(&before).step("B", "insert", done()).build()
    };
    let mut circle = [
        WaitEdge::new(name("B"), name("A"), Some(row.clone())),
        WaitEdge::new(name("A"), name("B"), Some(other.clone())),
    ];
    circle[0].blocking.push(BlockingLock::new(row.clone(), true));
    for (writes, statement) in [(1, Some(0)), (2, None)] {
        let record = writing(writes);
        let mut circle = circle.clone();
        let closing = record.steps.len() - 1;
        let history = LockHistory { steps: &record.steps, incomplete: &[] };
        history.complete(&mut circle, closing, &[]);
        let lock = &circle[0].blocking[0];
        assert_eq!(lock.statement, statement, "{lock:?}");
        assert_eq!(
            lock.unknown.as_deref().map(|unknown| unknown.contains("lines 10, 12")),
            statement.is_none().then_some(true)
        );
    }
}

#[test]
fn what_is_not_listed_is_not_told() {
    let row = row_of("t", "1");
    let record =
        builder().step("A", "update", changed(1)).locks(&[]).step("B", "update", done()).build();
    let few = IncompleteLocks::from([(name("A"), "ten locks".to_owned())]);
    let lock = explained(&record, &[few], &row);
    assert_eq!((lock.statement, lock.unknown.as_deref()), (None, Some("ten locks")));
}

#[test]
fn the_beginning_of_a_long_key_is_the_same_key() {
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
