//! Cases in which it is known by construction who took what, and when. Each opens with the explanation that was
//! false.

use super::{lab, run};
use hierlock_lab::parts::WaitEdge;
use hierlock_lab::{Engine, Record, Scenario};

const NUMBERS: &str = "create table numbers (id int primary key, value int not null);\n  \
     insert into numbers values (1, 30), (2, 10), (3, 5);";

/// Plays a transcript on some engines; the explanation of each, `B wanted …; A held … since 12`, by waiter.
async fn explained(engines: &[Engine], setup: &str, steps: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for engine in engines {
        let Some((lab, _turn)) = lab(*engine).await else { continue };
        // The steps begin in line 10.
        let setup = setup.replace('\n', " ").replace("  ", " ");
        let head = format!(
            "# A case\n#\n# Why.\nseed: none\nengines: {engine}\nsessions: isolation read committed\n\
             setup:\n  {setup}\n\n"
        );
        let text = format!("{head}{}\n", steps.join("\n"));
        let scenario = Scenario::parse("test/case", "case.lab", &text);
        let scenario = scenario.unwrap_or_else(|found| panic!("{found:?}\n{text}"));
        let records = run(&lab, &scenario.cases()).await;
        let record = &records[0];
        let deadlock = record.deadlocks.first().unwrap_or_else(|| panic!("{record:?}"));
        let mut links: Vec<String> =
            deadlock.circle.iter().map(|link| told(record, link)).collect();
        links.sort();
        links.insert(0, format!("{engine}:"));
        all.push(links.join("\n"));
    }
    all
}

/// Lines are counted from the first step, as 1.
fn told(record: &Record, link: &WaitEdge) -> String {
    let line = |index: usize| record.steps[index].line - 9;
    let wants = link.wants.as_ref().map_or("?".to_owned(), ToString::to_string);
    // What the victim of PostgreSQL wanted has the mode of its tuple lock only if a look came in time.
    let wants = wants.replace(", updating", ", ExclusiveLock");
    let wants = wants.replace(", deleting", ", AccessExclusiveLock");
    let mut text = format!("{} wanted {wants}", link.waiter);
    for lock in &link.blocking {
        let state = if lock.granted { "held" } else { "queued for" };
        text += &format!("; {} {state} {}", link.holder, lock.target);
        match (lock.statement, lock.granted_in, &lock.unknown) {
            (Some(asked), Some(granted), _) if asked != granted => {
                text += &format!(" since {}, granted in {}", line(asked), line(granted));
            }
            (Some(asked), ..) => text += &format!(" since {}", line(asked)),
            (None, _, unknown) => text += &format!(" ({})", unknown.as_deref().unwrap_or("?")),
        }
    }
    for unknown in &link.unknown {
        text += &format!("; {unknown}");
    }
    text
}

const INNODB: [Engine; 2] = [Engine::Mysql, Engine::Mariadb];

/// Plays a transcript on some engines: each must be explained by these links.
async fn is_explained(engines: &[Engine], setup: &str, steps: &[&str], links: &[&str]) {
    for told in explained(engines, setup, steps).await {
        let (_, rest) = told.split_once('\n').unwrap();
        assert_eq!(rest, links.join("\n"), "{told}");
    }
}

/// B's request, behind which A waits, was told as held by B.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_request_is_told_as_queued() {
    is_explained(
        &INNODB,
        NUMBERS,
        &[
            "C> begin",
            "C> select value from numbers where id = 1 lock in share mode",
            "A> begin",
            "A> select value from numbers where id = 2 for update",
            "B> begin",
            "B> select value from numbers where id = 1 for update",
            "A> select value from numbers where id = 1 lock in share mode",
            "C> select value from numbers where id = 2 for update",
        ],
        &[
            "A wanted row 1 of numbers (PRIMARY), S,REC_NOT_GAP; \
             B queued for row 1 of numbers (PRIMARY), X,REC_NOT_GAP since 6",
            "B wanted row 1 of numbers (PRIMARY), X,REC_NOT_GAP; \
             C held row 1 of numbers (PRIMARY), S,REC_NOT_GAP since 2",
            "C wanted row 2 of numbers (PRIMARY), X,REC_NOT_GAP; \
             A held row 2 of numbers (PRIMARY), X,REC_NOT_GAP since 4",
        ],
    )
    .await;
}

/// The lock of a fresh row is made by the one who waits for it, and was credited to the waiter's line.
#[tokio::test(flavor = "multi_thread")]
async fn a_written_row_is_held_since_it_was_written() {
    is_explained(
        &INNODB,
        NUMBERS,
        &[
            "A> begin",
            "A> insert into numbers values (10, 1)",
            "B> begin",
            "B> select value from numbers where id = 2 for update",
            "B> insert into numbers values (10, 5)",
            "A> select value from numbers where id = 2 for update",
        ],
        &[
            "A wanted row 2 of numbers (PRIMARY), X,REC_NOT_GAP; \
             B held row 2 of numbers (PRIMARY), X,REC_NOT_GAP since 4",
            "B wanted row 10 of numbers (PRIMARY), S,REC_NOT_GAP; \
             A held row 10 of numbers (PRIMARY), X,REC_NOT_GAP since 2",
        ],
    )
    .await;
}

/// Since when was missing, or named the commit that let the lock go.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_granted_after_a_wait_belongs_to_the_statement_that_waited() {
    let steps = [
        "C> begin",
        "C> update numbers set value = 1 where id = 1",
        "B> begin",
        "B> update numbers set value = 2 where id = 1",
        "A> begin",
        "A> update numbers set value = 3 where id = 2",
        "C> commit",
        "A> update numbers set value = 3 where id = 1",
        "B> update numbers set value = 2 where id = 2",
    ];
    is_explained(
        &INNODB,
        NUMBERS,
        &steps,
        &[
            "A wanted row 1 of numbers (PRIMARY), X,REC_NOT_GAP; \
             B held row 1 of numbers (PRIMARY), X,REC_NOT_GAP since 4, granted in 7",
            "B wanted row 2 of numbers (PRIMARY), X,REC_NOT_GAP; \
             A held row 2 of numbers (PRIMARY), X,REC_NOT_GAP since 6",
        ],
    )
    .await;
    is_explained(
        &[Engine::Postgres], NUMBERS, &steps,
        &[
            "A wanted row 1 of numbers, ExclusiveLock; \
             B held row 1 of numbers, No Key Update since 4, granted in 7",
            "B wanted row 2 of numbers, ExclusiveLock; A held row 2 of numbers, No Key Update since 6",
        ],
    )
    .await;
}

/// A date was printed as a number. Two tables, a key of several columns, of text, and a second index.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_written_by_their_types() {
    let setup = "create table days (day date primary key, n int);\n  \
         create table names (who varchar(10), nr int unsigned, at datetime, v int, primary key (who, nr), key moment (at));\n  \
         insert into days values ('2026-11-17', 1), ('2026-11-18', 2);\n  \
         insert into names values ('ann', 7, '2026-11-17 10:11:12', 1), ('bob', 8, '2026-11-18 10:11:12', 1);";
    is_explained(
        &INNODB,
        setup,
        &[
            "A> begin",
            "A> select n from days where day = '2026-11-17' for update",
            "B> begin",
            "B> select v from names force index (moment) where at = '2026-11-17 10:11:12' for update",
            "A> select v from names force index (moment) where at = '2026-11-17 10:11:12' for update",
            "B> select n from days where day = '2026-11-17' for update",
        ],
        &[
            "A wanted row '2026-11-17 10:11:12', 'ann', 7 of names (moment), X,REC_NOT_GAP; \
             B held row '2026-11-17 10:11:12', 'ann', 7 of names (moment), X,REC_NOT_GAP since 4",
            "B wanted row '2026-11-17' of days (PRIMARY), X,REC_NOT_GAP; \
             A held row '2026-11-17' of days (PRIMARY), X,REC_NOT_GAP since 2",
        ],
    )
    .await;
}

/// Of a key longer than 30 bytes the text of a deadlock has the beginning only.
#[tokio::test(flavor = "multi_thread")]
async fn long_keys_are_found_in_the_record_of_locks() {
    is_explained(
        &[Engine::Mysql],
        "create table jobs (id char(36) primary key, v int);\n  \
         insert into jobs values ('0190b6a2-0000-7000-8000-00000000000a', 1), ('0190b6a2-1111-7000-8000-00000000000b', 1);",
        &[
            "A> begin",
            "A> update jobs set v = 2 where id = '0190b6a2-0000-7000-8000-00000000000a'",
            "B> begin",
            "B> update jobs set v = 2 where id = '0190b6a2-1111-7000-8000-00000000000b'",
            "A> update jobs set v = 3 where id = '0190b6a2-1111-7000-8000-00000000000b'",
            "B> update jobs set v = 3 where id = '0190b6a2-0000-7000-8000-00000000000a'",
        ],
        &[
            "A wanted row '0190b6a2-1111-7000-8000-00000000000b' of jobs (PRIMARY), X,REC_NOT_GAP; \
             B held row '0190b6a2-1111-7000-8000-00000000000b' of jobs (PRIMARY), X,REC_NOT_GAP since 4",
            "B wanted row '0190b6a2-0000-7000-8000-00000000000a' of jobs (PRIMARY), X,REC_NOT_GAP; \
             A held row '0190b6a2-0000-7000-8000-00000000000a' of jobs (PRIMARY), X,REC_NOT_GAP since 2",
        ],
    )
    .await;
}

/// The statement that drew the transaction's number was blamed, and no row was named.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_postgres_belongs_to_the_statement_that_locked_it() {
    let setup = "create table notes (who text primary key);\n  \
         create table names (who text, nr int, v int, primary key (who, nr));\n  \
         create table numbers (id int primary key, value int not null);\n  \
         insert into names values ('ann', 7, 1);\n  insert into numbers values (1, 30);";
    is_explained(
        &[Engine::Postgres],
        setup,
        &[
            "A> begin",
            "A> insert into notes values ('A')",
            "B> begin",
            "B> insert into notes values ('B')",
            "A> select v from names where who = 'ann' for update",
            "B> select value from numbers where id = 1 for share",
            "B> update numbers set value = 2 where id = 1",
            "A> select value from numbers where id = 1 for share",
            "B> delete from names where nr = 7",
        ],
        &[
            // FOR SHARE in step 6 would not have been in the way.
            "A wanted row 1 of numbers, RowShareLock; B held row 1 of numbers, No Key Update since 7",
            "B wanted row ann, 7 of names, AccessExclusiveLock; \
             A held row ann, 7 of names, For Update since 5",
        ],
    )
    .await;
}

/// Which row a session waits for that has it already shared: the victim is told, of the other it follows. Of a key
/// that two insert it does not, and that is said.
#[tokio::test(flavor = "multi_thread")]
async fn what_postgres_does_not_tell_is_said() {
    let told = explained(
        &[Engine::Postgres],
        "create table names (who text primary key);",
        &[
            "A> begin",
            "A> insert into names values ('a')",
            "B> begin",
            "B> insert into names values ('b')",
            "A> insert into names values ('b')",
            "B> insert into names values ('a')",
        ],
    );
    for told in told.await {
        let inserted = "had inserted the same key, PostgreSQL does not tell with which statement";
        assert!(told.contains("row names (names_pkey), inserting"), "{told}");
        assert!(told.contains(inserted), "{told}");
        assert!(told.contains("PostgreSQL does not tell for which row"), "{told}");
    }
}
