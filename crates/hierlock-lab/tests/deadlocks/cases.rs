//! Deadlocks whose locks and statements are known by construction. Each test opens with the wrong explanation that it
//! prevents.

use super::{lab, run};
use hierlock_lab::parts::{Observation, WaitEdge};
use hierlock_lab::{Engine, Record, Scenario};

const NUMBERS: &str = "create table numbers (id int primary key, value int not null);\n  \
     insert into numbers values (1, 30), (2, 10), (3, 5);";

/// Runs a transcript on some engines; returns the explanation of each, `B wanted …; A held … since 12`, sorted by
/// waiter.
async fn explanations(engines: &[Engine], setup: &str, steps: &[&str]) -> Vec<String> {
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
        assert!(!record.deadlocks.is_empty(), "{record:?}");
        let mut edges = vec![format!("{engine}: {}", victim_code(record))];
        for deadlock in &record.deadlocks {
            let waiters: Vec<_> = deadlock.cycle.iter().map(|edge| &edge.waiter).collect();
            let holders = deadlock.cycle.iter().map(|edge| &edge.holder);
            // Each waits for the next.
            assert!(holders.eq(waiters.iter().cycle().skip(1).take(waiters.len()).copied()));
            let mut own: Vec<_> =
                deadlock.cycle.iter().map(|edge| explanation(record, edge)).collect();
            own.sort();
            edges.extend(own);
        }
        all.push(edges.join("\n"));
    }
    all
}

/// Returns the error code of the victim of the first deadlock.
fn victim_code(record: &Record) -> &str {
    let ends = record
        .steps
        .iter()
        .flat_map(|step| [Some(&step.seen), step.ended.as_ref().map(|ended| &ended.observation)]);
    let mut codes = ends.flatten().filter_map(|end| match end {
        Observation::Failed(failure) => Some(failure.code.as_str()),
        _ => None,
    });
    codes.next().unwrap()
}

/// Returns the explanation of an edge. Lines are counted from the first step, as 1.
fn explanation(record: &Record, edge: &WaitEdge) -> String {
    let line = |index: usize| record.steps[index].line - 9;
    let wants = edge.wants.as_ref().map_or("?".to_owned(), ToString::to_string);
    // On PostgreSQL the wanted lock of the victim has the mode of its tuple lock only if a probe was in time.
    let wants = wants.replace(", updating", ", ExclusiveLock");
    let wants = wants.replace(", deleting", ", AccessExclusiveLock");
    let mut text = format!("{} wanted {wants}", edge.waiter);
    for lock in &edge.blocking {
        let state = if lock.granted { "held" } else { "queued for" };
        text += &format!("; {} {state} {}", edge.holder, lock.target);
        match (lock.statement, lock.granted_in, &lock.unknown) {
            (Some(asked), Some(granted), _) if asked != granted => {
                text += &format!(" since {}, granted in {}", line(asked), line(granted));
            }
            (Some(asked), ..) => text += &format!(" since {}", line(asked)),
            (None, _, unknown) => text += &format!(" ({})", unknown.as_deref().unwrap_or("?")),
        }
    }
    for unknown in &edge.unknown {
        text += &format!("; {unknown}");
    }
    text
}

const INNODB: [Engine; 2] = [Engine::Mysql, Engine::Mariadb];

/// Runs a transcript on some engines: each explanation must consist of these edges.
async fn assert_explained(engines: &[Engine], setup: &str, steps: &[&str], edges: &[&str]) {
    for explanation in explanations(engines, setup, steps).await {
        let (head, rest) = explanation.split_once('\n').unwrap();
        assert!(
            ["mysql: 1213", "mariadb: 1213", "postgres: 40P01"].contains(&head),
            "{explanation}"
        );
        assert_eq!(rest, edges.join("\n"), "{explanation}");
    }
}

/// The failure this prevents: B's request, behind which A waits, was reported as held by B.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_request_is_reported_as_queued() {
    assert_explained(
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

/// The failure this prevents: the session that waits for a fresh row creates its lock record, and the lock was
/// attributed to the waiter's line.
#[tokio::test(flavor = "multi_thread")]
async fn a_written_row_is_held_since_it_was_written() {
    assert_explained(
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

/// The failure this prevents: the line was missing, or was that of the commit that released the lock.
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
    assert_explained(
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
    assert_explained(
        &[Engine::Postgres], NUMBERS, &steps,
        &[
            "A wanted row 1 of numbers, ExclusiveLock; \
             B held row 1 of numbers, No Key Update since 4, granted in 7",
            "B wanted row 2 of numbers, ExclusiveLock; A held row 2 of numbers, No Key Update since 6",
        ],
    )
    .await;
}

/// The failure this prevents: a date was written as a number. Two tables, a key of several columns, of text, and a
/// second index.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_written_by_their_types() {
    let setup = "create table days (day date primary key, n int);\n  \
         create table names (who varchar(10), nr int unsigned, at datetime, v int, primary key (who, nr), key moment (at));\n  \
         insert into days values ('2026-11-17', 1), ('2026-11-18', 2);\n  \
         insert into names values ('ann', 7, '2026-11-17 10:11:12', 1), ('bob', 8, '2026-11-18 10:11:12', 1);";
    assert_explained(
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

/// The text of a deadlock contains only the beginning of a key longer than 30 bytes.
#[tokio::test(flavor = "multi_thread")]
async fn long_keys_are_completed_from_the_recorded_locks() {
    assert_explained(
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

/// The failure this prevents: the statement that first got a transaction id was named, and no row.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_postgres_belongs_to_the_statement_that_locked_it() {
    let setup = "create table notes (who text primary key);\n  \
         create table names (who text, nr int, v int, primary key (who, nr));\n  \
         create table numbers (id int primary key, value int not null);\n  \
         insert into names values ('ann', 7, 1);\n  insert into numbers values (1, 30);";
    assert_explained(
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
            // FOR SHARE in step 6 would not block.
            "A wanted row 1 of numbers, RowShareLock; B held row 1 of numbers, No Key Update since 7",
            "B wanted row ann, 7 of names, AccessExclusiveLock; \
             A held row ann, 7 of names, For Update since 5",
        ],
    )
    .await;
}

/// The row of a session that already holds it shared: PostgreSQL reports it to the victim, and for the other session it
/// follows from that. For a key that two sessions insert it does not follow, and the explanation says so.
#[tokio::test(flavor = "multi_thread")]
async fn facts_that_postgres_does_not_report_are_unknown() {
    let explanations = explanations(
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
    for explanation in explanations.await {
        let inserted = "had inserted the same key, PostgreSQL does not report with which statement";
        assert!(explanation.contains("row names (names_pkey), inserting"), "{explanation}");
        assert!(explanation.contains(inserted), "{explanation}");
        assert!(explanation.contains("PostgreSQL does not report for which row"), "{explanation}");
    }
}

/// Returns a step that updates a row of the numbers.
fn update(session: &str, id: u32) -> String {
    format!("{session}> update numbers set value = value + 1 where id = {id}")
}

/// Returns the explanations of edges between updates, on InnoDB and on PostgreSQL.
fn update_edges(edges: &[(&str, u32, &str, u32)]) -> [Vec<String>; 2] {
    let edge = |index: &str, wants: &str, holds: &str| {
        let edge = |(waiter, id, holder, line): &(&str, u32, &str, u32)| {
            let row = format!("row {id} of numbers{index}");
            format!("{waiter} wanted {row}, {wants}; {holder} held {row}, {holds} since {line}")
        };
        edges.iter().map(edge).collect()
    };
    let innodb = edge(" (PRIMARY)", "X,REC_NOT_GAP", "X,REC_NOT_GAP");
    [innodb, edge("", "ExclusiveLock", "No Key Update")]
}

async fn updates_are_explained(steps: &[String], edges: &[(&str, u32, &str, u32)]) {
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    for (engines, edges) in [&INNODB[..], &[Engine::Postgres]].iter().zip(update_edges(edges)) {
        let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
        assert_explained(engines, NUMBERS, &steps, &edges).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_two_is_explained() {
    let steps = [
        "A> begin".to_owned(),
        update("A", 1),
        "B> begin".to_owned(),
        update("B", 2),
        update("A", 2),
        update("B", 1),
    ];
    updates_are_explained(&steps, &[("A", 2, "B", 4), ("B", 1, "A", 2)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_three_is_explained() {
    let mut steps = Vec::new();
    for (session, id) in [("A", 1), ("B", 2), ("C", 3)] {
        steps.extend([format!("{session}> begin"), update(session, id)]);
    }
    steps.extend([update("A", 2), update("B", 3), update("C", 1)]);
    updates_are_explained(&steps, &[("A", 2, "B", 4), ("B", 3, "C", 6), ("C", 1, "A", 2)]).await;
}

/// A server reports only its last deadlock, which may be an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_deadlock_is_not_explained_by_the_first() {
    let mut steps = Vec::new();
    for (mine, other) in [(1, 2), (2, 3)] {
        steps.extend(["A> begin".to_owned(), update("A", mine)]);
        steps.extend(["B> begin".to_owned(), update("B", other)]);
        steps.extend([update("A", other), update("B", mine)]);
        steps.extend(
            [" = deadlock, A or B", "victim> rollback", "survivor> rollback"].map(str::to_owned),
        );
    }
    // The line of the expectation counts too.
    let edges = [("A", 2, "B", 4), ("B", 1, "A", 2), ("A", 3, "B", 13), ("B", 2, "A", 11)];
    updates_are_explained(&steps, &edges).await;
}

/// Neither session has changed anything yet, so on MariaDB neither has a transaction id.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_of_two_shared_locks_is_explained() {
    let shares = [(&INNODB[..], "lock in share mode"), (&[Engine::Postgres], "for share")];
    for (engines, share) in shares {
        let read = format!("select value from numbers where id = 1 {share}");
        let (first, second) = (format!("A> {read}"), format!("B> {read}"));
        let (write, other) = (update("A", 1), update("B", 1));
        let steps = ["A> begin", &first, "B> begin", &second, &write, &other];
        for explanation in explanations(engines, NUMBERS, &steps).await {
            let edges: Vec<&str> = explanation.lines().skip(1).collect();
            assert_eq!(edges.len(), 2, "{explanation}");
            for (edge, waiter, holder) in [(edges[0], "A", "B"), (edges[1], "B", "A")] {
                assert!(
                    edge.starts_with(&format!("{waiter} wanted row 1 of numbers")),
                    "{explanation}"
                );
                assert!(
                    edge.contains(&format!("; {holder} held row 1 of numbers")),
                    "{explanation}"
                );
            }
        }
    }
}

/// InnoDB does not report these deadlocks: the explanation is the observed cycle, and not an earlier deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_advisory_locks_is_explained() {
    let keys = [
        (&INNODB[..], ["get_lock('k1', 30)", "get_lock('k2', 30)"], ["k2", "?"]),
        (&[Engine::Postgres], ["pg_advisory_lock(1)", "pg_advisory_lock(2)"], ["2", "1"]),
    ];
    for (engines, [one, two], [first, second]) in keys {
        let steps = [("A", one), ("B", two), ("A", two), ("B", one)];
        let steps = steps.map(|(session, key)| format!("{session}> select {key}"));
        for explanation in
            explanations(engines, NUMBERS, &steps.each_ref().map(String::as_str)).await
        {
            let edges: Vec<&str> = explanation.lines().skip(1).collect();
            assert_eq!(edges.len(), 2, "{explanation}");
            assert!(edges[0].starts_with(&format!("A wanted advisory {first}, ")), "{explanation}");
            let wanted =
                if second == "?" { "?".to_owned() } else { format!("advisory {second}, ") };
            assert!(edges[1].starts_with(&format!("B wanted {wanted}")), "{explanation}");
        }
    }
}
