//! Waits and contexts in the languages of PostgreSQL.

use super::*;

fn describe(line: &str) -> Option<String> {
    let wait = parse_wait(line)?;
    Some(format!("{}→{}: {}", wait.waiter, wait.holder, wait.wanted?))
}

#[test]
fn waits_are_parsed_from_the_error_of_a_victim() {
    for (mode, object, expected) in [
        ("ShareLock", "transaction 740", "transaction 740"),
        ("ExclusiveLock", "tuple (0,2) of relation 16385 of database 5", "row (0,2) of 16385"),
        ("AccessExclusiveLock", "relation 16385 of database 5", "table 16385"),
        ("ExclusiveLock", "advisory lock [5,0,7,1]", "advisory 7"),
        ("ExclusiveLock", "advisory lock [5,4294967295,4294967295,1]", "advisory -1"),
        ("ShareLock", "advisory lock [5,1,7,2]", "advisory 1, 7"),
        ("ShareLock", "virtual transaction 3/15", "other virtual transaction 3/15"),
        (
            "ShareLock",
            "speculative token 1 of transaction 9",
            "other speculative token 1 of transaction 9",
        ),
        (
            "ExclusiveLock",
            "extension of relation 16385 of database 5",
            "other extension of relation 16385",
        ),
        (
            "ExclusiveLock",
            "page 3 of relation 16385 of database 5",
            "other page 3 of relation 16385",
        ),
        (
            "AccessExclusiveLock",
            "object 7 of class 1247 of database 5",
            "other object 7 of class 1247",
        ),
    ] {
        let line = format!("Process 7 waits for {mode} on {object}; blocked by process 8.");
        assert_eq!(describe(&line), Some(format!("7→8: {expected}, {mode}")));
        for cut in 0..line.len() {
            describe(&line[..cut]);
        }
    }
}

/// The messages are those of PostgreSQL 15 in these languages.
#[test]
fn waits_are_parsed_in_every_language() {
    for (expected, lines) in [
        (
            "7→8: transaction 740, ShareLock",
            &[
                "2026-11-17 22:43:01.000 UTC [7] DETAIL:  Prozess 7 wartet auf ShareLock-Sperre auf Transaktion 740; blockiert von Prozess 8.",
                "El proceso 7 espera ShareLock en transacción 740; bloqueado por proceso 8.",
                "プロセス 7 は ShareLock を トランザクション 740 で待機していましたが、プロセス 8 でブロックされました",
                "7 프로세스가 ShareLock 상태로 지연되고 있음(해당 작업: 트랜잭션 740); 8 프로세스에 의해 블록킹되었음",
                "Процесс 7 ожидает в режиме ShareLock блокировку \"транзакция 740\"; заблокирован процессом 8.",
                "Process 7 väntar på ShareLock för transaktion 740; blockerad av process 8.",
                "进程7等待在事务 740上的ShareLock; 由进程8阻塞.",
                "12: \tProcess 7 waits for ShareLock on transaction 740; blocked by process 8.",
            ][..],
        ),
        (
            "7→8: row (0,2) of 16385, ExclusiveLock",
            &[
                "Prozess 7 wartet auf ExclusiveLock-Sperre auf Tupel (0, 2) von Relation 16385 von Datenbank 5; blockiert von Prozess 8.",
                "Le processus 7 attend ExclusiveLock sur ligne (0,2) de la relation 16385 de la base de données 5 ; bloqué par le processus 8.",
                "プロセス 7 は ExclusiveLock を データベース5のリレーション16385のタプル(2,0) で待機していましたが、プロセス 8 でブロックされました",
                "7 프로세스가 ExclusiveLock 상태로 지연되고 있음(해당 작업: 튜플 (0,2), 릴레이션 16385, 데이터베이스 5); 8 프로세스에 의해 블록킹되었음",
                "进程7等待在数据库5的关系16385中的元组(0,2)上的ExclusiveLock; 由进程8阻塞.",
            ],
        ),
        (
            "7→8: other extension of relation 16385, ExclusiveLock",
            &[
                "Il processo 7 è in attesa di ExclusiveLock su l'estensione della relazione 16385 del database 5; bloccato dal processo 8.",
                "Процес 7 очікує в режимі ExclusiveLock блокування \"розширення відношення 16385 бази даних 5\"; заблокований процесом 8.",
            ],
        ),
        (
            "7→8: table 16385, RowExclusiveLock",
            &[
                "プロセス 7 は RowExclusiveLock を データベース5のリレーション16385 で待機していましたが、プロセス 8 でブロックされました",
                "进程7等待在数据库5的关系16385上的RowExclusiveLock; 由进程8阻塞.",
            ],
        ),
    ] {
        for line in lines {
            assert_eq!(describe(line).as_deref(), Some(expected), "{line}");
        }
    }
    for line in [
        "",
        "ShareLock",
        "select 'ShareLock' from t where id = 7",
        "7 ShareLock 8 '",
        "process 7 still waiting for ShareLock on transaction 740 after 1000.154 ms",
    ] {
        assert_eq!(describe(line), None, "{line}");
    }
}

#[test]
fn the_row_of_the_victim_is_parsed_in_every_language() {
    for (line, verb, ctid, relation) in [
        ("while updating tuple (0,2) in relation \"t\"", "updating", "(0,2)", "t"),
        (
            "while locking updated version (3,4) of tuple in relation \"a b\"",
            "locking",
            "(3,4)",
            "a b",
        ),
        (
            "while inserting index tuple (0,3) in relation \"t_pkey\"",
            "inserting",
            "(0,3)",
            "t_pkey",
        ),
        ("beim Aktualisieren von Tupel (0,2) in Relation »t«", "updating", "(0,2)", "t"),
        ("mientras se borraba la tupla (0,2) en la relación «t»", "deleting", "(0,2)", "t"),
        (
            "lors de l'insertion de l'enregistrement (0, 15) de l'index dans la relation « keys_pkey »",
            "inserting",
            "(0,15)",
            "keys_pkey",
        ),
        ("リレーション\"t\"のタプル(0,2)の更新中", "updating", "(0,2)", "t"),
        ("0,2 튜플(해당 릴레이션 \"t\")을 갱신하는 중에 발생", "updating", "(0,2)", "t"),
        ("当更新关系\"t\"的元组(0, 2)时", "updating", "(0,2)", "t"),
        ("при изменении кортежа (0,2) в отношении \"t\"", "updating", "(0,2)", "t"),
    ] {
        let RowContext { verb: read_verb, ctid: read_ctid, relation: read_relation } =
            parse_context(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((read_verb, &*read_ctid, &*read_relation), (verb, ctid, relation), "{line}");
    }
    for line in ["while updating", "SQL statement \"select 1\"", "\"", "»(1,2)«"] {
        assert!(parse_context(line).is_none(), "{line}");
    }
}
