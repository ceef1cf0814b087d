use super::*;
use crate::introspection::conflict::POSTGRES_MODES;

fn target(kind: LockKind, index: Option<&str>, record: Option<&str>, mode: &str) -> LockTarget {
    LockTarget {
        index: index.map(str::to_owned),
        record: record.map(str::to_owned),
        ..LockTarget::of_table(kind, "shop", "orders", mode)
    }
}

/// Every combination of modes and records of InnoDB has its own words.
#[test]
fn locks_of_innodb_have_plain_words() {
    for (record, modes, held, waits) in [
        (
            Some("10"),
            &["X,REC_NOT_GAP"][..],
            "holds id 10 of shop.orders exclusively",
            "waits to lock id 10 of shop.orders exclusively",
        ),
        (
            Some("10"),
            &["S,REC_NOT_GAP"],
            "holds id 10 of shop.orders shared",
            "waits to lock id 10 of shop.orders shared",
        ),
        (
            Some("10"),
            &["X,GAP", "S,GAP"],
            "holds the gap before id 10 of shop.orders, so that nobody else inserts into it",
            "waits to lock the gap before id 10 of shop.orders",
        ),
        (
            Some("10"),
            &["X"],
            "holds id 10 of shop.orders exclusively, and the gap before it",
            "waits to lock id 10 of shop.orders exclusively, and the gap before it",
        ),
        (
            Some("10"),
            &["S"],
            "holds id 10 of shop.orders shared, and the gap before it",
            "waits to lock id 10 of shop.orders shared, and the gap before it",
        ),
        (
            Some("10"),
            &["X,GAP,INSERT_INTENTION"],
            "holds a place to insert into the gap before id 10 of shop.orders",
            "waits to insert into the gap before id 10 of shop.orders",
        ),
        (
            Some("supremum"),
            &["X,INSERT_INTENTION"],
            "holds a place to insert behind the last row of shop.orders",
            "waits to insert behind the last row of shop.orders",
        ),
        (
            Some("supremum"),
            &["X", "S"],
            "holds the gap behind the last row of shop.orders, so that nobody else inserts there",
            "waits to lock the gap behind the last row of shop.orders",
        ),
        (
            None,
            &["X,REC_NOT_GAP"],
            "holds a row of shop.orders exclusively",
            "waits to lock a row of shop.orders exclusively",
        ),
    ] {
        let columns = ["id".to_owned()];
        for mode in modes {
            let target = target(LockKind::Row, Some("PRIMARY"), record, mode);
            let words = [true, false].map(|granted| lock_words(&target, &columns, granted));
            assert_eq!(words, [held, waits], "{mode}");
        }
    }
    for (mode, waits) in [
        ("IX", "waits to change or lock rows of shop.orders"),
        ("IS", "waits to lock rows of shop.orders shared"),
        ("X", "waits to lock all of shop.orders exclusively"),
        ("S", "waits to lock all of shop.orders shared"),
        ("AUTO_INC", "waits for the AUTO_INCREMENT counter of shop.orders"),
    ] {
        assert_eq!(lock_words(&target(LockKind::Table, None, None, mode), &[], false), waits);
    }
    let secondary = target(LockKind::Row, Some("by_email"), Some("'a, b', 1"), "X");
    let columns = ["email".to_owned(), "id".to_owned()];
    assert_eq!(
        lock_words(&secondary, &columns, true),
        "holds email 'a, b', id 1 of shop.orders (index by_email) exclusively, and the gap before it"
    );
    assert!(lock_words(&secondary, &[], true).contains("key 'a, b', 1 of shop.orders"));
}

/// Every mode and object of PostgreSQL has its own words.
#[test]
fn locks_of_postgres_have_plain_words() {
    let modes = POSTGRES_MODES.map(|(mode, _)| mode);
    let tables =
        modes.map(|mode| lock_words(&LockTarget::new(LockKind::Table, "16385", mode), &[], false));
    for (at, words) in tables.iter().enumerate() {
        assert!(words.contains("table number 16385") && words.contains(" ("), "{words}");
        assert!(!tables[..at].contains(words), "{words}");
    }
    for (kind, object, mode, waits) in [
        (
            LockKind::Transaction,
            "740",
            "ShareLock",
            "waits for transaction 740 to end, which has locked or changed a row",
        ),
        (LockKind::Advisory, "7", "ExclusiveLock", "waits for advisory lock 7, exclusively"),
        (LockKind::Advisory, "1, 8", "ShareLock", "waits for advisory lock 1, 8, shared"),
        (
            LockKind::Other,
            "virtual transaction 3/15",
            "ShareLock",
            "waits for virtual transaction 3/15 to end, as CREATE INDEX CONCURRENTLY does",
        ),
        (
            LockKind::Other,
            "extension of relation 5",
            "ExclusiveLock",
            "waits to add pages to a table (extension of relation 5)",
        ),
        (
            LockKind::Other,
            "page 3 of relation 5",
            "ExclusiveLock",
            "waits for a page of an index (page 3 of relation 5)",
        ),
        (
            LockKind::Other,
            "speculative token 1 of transaction 9",
            "ShareLock",
            "waits for an INSERT … ON CONFLICT of another transaction (speculative token 1 of transaction 9)",
        ),
        (
            LockKind::Other,
            "object 7 of class 1247",
            "AccessExclusiveLock",
            "waits to change or drop object 7 of class 1247, such as a type, a schema or a database",
        ),
        (
            LockKind::Other,
            "frozen transaction ids of database 5",
            "ExclusiveLock",
            "waits to update the frozen transaction ids of database 5",
        ),
    ] {
        assert_eq!(lock_words(&LockTarget::new(kind, object, mode), &[], false), waits);
    }
    let tuple = LockTarget {
        record: Some("(0,1)".to_owned()),
        ..LockTarget::new(LockKind::Row, "16404", "AccessExclusiveLock")
    };
    assert_eq!(
        lock_words(&tuple, &[], false),
        "waits to be next to lock the row at (0,1) of table number 16404 (FOR UPDATE, DELETE)"
    );
}
