//! Shortened deadlocks of MySQL and MariaDB.

use super::*;
use crate::introspection::SessionLock;
use crate::introspection::innodb_status::tests::lock_text;
use proptest::prelude::*;

const EXCLUSIVE: &str = "lock_mode X locks rec but not gap";
const WAITING: &str = "lock_mode X locks rec but not gap waiting";

fn status(members: [String; 2]) -> String {
    format!(
        "\n------------------------\nLATEST DETECTED DEADLOCK\n------------------------\n\
         2026-11-16 02:15:31 140426410514112\n{}*** WE ROLL BACK TRANSACTION (2)\n\
         ------------\nTRANSACTIONS\n------------\n",
        members.concat()
    )
}

fn transaction(nth: u32, name: &str, thread: u32, query: u32) -> String {
    format!(
        "*** ({nth}) TRANSACTION:\nTRANSACTION {name}, ACTIVE 0 sec starting index read\n\
         mysql tables in use 2, locked 2\n\
         MySQL thread id {thread}, OS thread handle 140426316080832, query id {query} localhost root updating\n\
         update t set v=1 where id=1\n\n"
    )
}

/// A shortened deadlock of MySQL 9: each transaction holds the record that the other wants. `second` is the mode of the
/// second.
fn mysql(second: &str) -> String {
    let member = |nth: u32, mode: &str| {
        let (number, own, other) = (1575 + nth, nth, 3 - nth);
        let title = transaction(nth, &number.to_string(), 10 + nth, 15 + nth);
        let holds = lock_text(number, mode, &[(own + 1, &format!("8000000{own}"))]);
        let wants = lock_text(number, WAITING, &[(other + 1, &format!("8000000{other}"))]);
        format!(
            "{title}*** ({nth}) HOLDS THE LOCK(S):\n{holds}\
             *** ({nth}) WAITING FOR THIS LOCK TO BE GRANTED:\n{wants}"
        )
    };
    status([member(1, EXCLUSIVE), member(2, second)])
}

/// A shortened deadlock of MariaDB 10.11: both want a record of which one holds a shared lock. The id of a reader is 0.
fn mariadb(numbers: [u32; 2], holder: u32) -> String {
    let member = |nth: u32| {
        let number = numbers[nth as usize - 1];
        let name = if number == 0 { "(0x7f4f303e2680)".to_owned() } else { number.to_string() };
        let title = transaction(nth, &name, 13 - nth, 75 - nth);
        let record = [(2, "80000001")];
        let wants = lock_text(number, WAITING, &record);
        let conflicts = lock_text(holder, "lock mode S locks rec but not gap", &record);
        format!(
            "{title}*** WAITING FOR THIS LOCK TO BE GRANTED:\n{wants}*** CONFLICTING WITH:\n{conflicts}\n"
        )
    };
    status([member(1), member(2)])
}

fn report(status: &str) -> DeadlockReport {
    InnodbDeadlock::parse_last(status).unwrap().report(&Dictionary::default()).unwrap()
}

#[test]
fn waits_are_parsed_with_the_blocking_locks() {
    for (status, first, second) in [
        (
            mysql(EXCLUSIVE),
            "11 wants row 0x80000002, X,REC_NOT_GAP; 12: [held row 0x80000002, X,REC_NOT_GAP]",
            "12 wants row 0x80000001, X,REC_NOT_GAP; 11: [held row 0x80000001, X,REC_NOT_GAP]",
        ),
        // MySQL lists a request under HOLDS if the other transaction is queued behind it.
        (
            mysql(WAITING),
            "11 wants row 0x80000002, X,REC_NOT_GAP; 12: [queued row 0x80000002, X,REC_NOT_GAP]",
            "12 wants row 0x80000001, X,REC_NOT_GAP; 11: [held row 0x80000001, X,REC_NOT_GAP]",
        ),
        // Without a transaction id the owner of the lock is not known.
        (
            mariadb([0, 0], 0),
            "12 wants row 0x80000001, X,REC_NOT_GAP; 11: []",
            "11 wants row 0x80000001, X,REC_NOT_GAP; 12: []",
        ),
        // The failure this prevents: a transaction that only waited was reported as the holder of the lock that is
        // listed under both.
        (
            mariadb([263, 264], 264),
            "12 wants row 0x80000001, X,REC_NOT_GAP; 11: [held row 0x80000001, S,REC_NOT_GAP]",
            "11 wants row 0x80000001, X,REC_NOT_GAP; 12: [queued row 0x80000001, X,REC_NOT_GAP]",
        ),
    ] {
        let describe = |DeadlockWait { waiter, holder, wanted, blocking }| {
            let lock = |SessionLock { session, target, granted }| {
                assert_eq!(session, holder);
                format!("{} {target}", if granted { "held" } else { "queued" })
            };
            let blocking: Vec<String> = blocking.into_iter().map(lock).collect();
            let (wanted, blocking) = (wanted.unwrap(), blocking.join("; "));
            format!("{waiter} wants {wanted}; {holder}: [{blocking}]")
                .replace(" of lab.t (PRIMARY)", "")
        };
        let waits: Vec<_> = report(&status).waits.into_iter().map(describe).collect();
        assert_eq!(waits, [first, second]);
    }
}

#[test]
fn the_id_is_the_time_and_the_query_ids() {
    assert_eq!(report(&mysql(EXCLUSIVE)).id, "2026-11-16 02:15:31 1404264105141121617");
    assert!(InnodbDeadlock::parse_last("").is_none());
}

proptest! {
    /// Any concatenation of parts is parsed as a deadlock or as none.
    #[test]
    fn garbage_does_not_panic(cuts in proptest::collection::vec((0usize..4000, 0usize..4000), 1..6)) {
        for text in [mysql(EXCLUSIVE), mariadb([0, 0], 0)] {
            let glued: String =
                cuts.iter().filter_map(|(a, b)| text.get(*a.min(b)..*a.max(b))).collect();
            let status = format!("\nLATEST DETECTED DEADLOCK\n{glued}");
            if let Some(deadlock) = InnodbDeadlock::parse_last(&status) {
                deadlock.report(&Dictionary::default());
            }
        }
    }
}
