//! Results and failures of statements.

use super::*;

on_all!(
    failures_are_classified,
    a_server_reports_its_name_and_version;
    on numbers:
    rows_are_returned_as_the_server_writes_them,
);

async fn rows_are_returned_as_the_server_writes_them(db: &TestDatabase) {
    let read = db.run("A", "select id, word from numbers order by id").await.unwrap();
    let cell = |text: &str| Some(text.to_owned());
    let rows = vec![vec![cell("1"), cell("a")], vec![cell("2"), None], vec![cell("10"), cell("c")]];
    assert_eq!(read, Answer { rows: Some(rows), changed: 0, is_matched: false });
    let none = db.run("A", "select id from numbers where id = 7").await.unwrap();
    assert_eq!(none, Answer { rows: Some(Vec::new()), changed: 0, is_matched: false });
    let same = db.run("A", "update numbers set value = value where id < 10").await.unwrap();
    // The driver makes MySQL and MariaDB count matched rows. The failure this prevents: they were reported as changed.
    let is_matched = db.guard.server.either(false, true);
    assert_eq!(same, Answer { rows: None, changed: 2, is_matched });
    let inserted = db.run("A", "insert into numbers values (8, 8, 'h')").await.unwrap();
    assert_eq!(inserted, Answer { rows: None, changed: 1, is_matched: false });
    db.run_all("A", &["delete from numbers where id = 8"]).await;
    assert_eq!(db.run("A", "begin").await.unwrap(), Answer::default());
    let postgres = "select '\\x00ff'::bytea, 1.50::numeric, true, 0.1::float8, 'ж'";
    let (values, written) = db.guard.server.either(
        (postgres, ["\\x00ff", "1.50", "t", "0.1", "ж"]),
        ("select x'00ff', 1.50, true, 0.1e0, 'ж'", ["0x00FF", "1.50", "1", "0.1", "ж"]),
    );
    let values = db.run("A", values).await.unwrap().rows.unwrap().remove(0);
    let values: Vec<&str> = values.iter().map(|cell| cell.as_deref().unwrap()).collect();
    assert_eq!(values, written);
    if db.guard.server.engine() != Engine::Mysql {
        let sql = "insert into numbers values (7, 7, 'x') returning id";
        let (answer, rows) = (db.run("B", sql).await.unwrap(), Some(vec![vec![cell("7")]]));
        assert_eq!(answer, Answer { rows, changed: 1, is_matched: false });
    }
}

async fn failures_are_classified(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    for settings in case.sessions.values_mut() {
        settings.push(SettingValue::LockWaitTimeout(Duration::from_millis(100)));
    }
    let db = open(&server, &case).await;
    db.run_all("A", &["begin", LOCK_ROW]).await;
    let timed_out = db.run("B", LOCK_ROW).await.unwrap_err();
    assert_eq!(timed_out.kind, FailureKind::TimedOut, "{timed_out:?}");
    let refused = db.run("B", &format!("{LOCK_ROW} nowait")).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused, "{refused:?}");
    let other = db.run("B", "insert into numbers values (2, 2, '')").await.unwrap_err();
    let code = db.guard.server.either("23505", "1062");
    assert_eq!((other.kind, other.code.as_str()), (FailureKind::Other, code));
    let finds_conflicts = match server.engine() {
        Engine::Postgres => true,
        // Older versions have no such setting.
        Engine::Mariadb => db.run("C", "set session innodb_snapshot_isolation = on").await.is_ok(),
        _ => false,
    };
    if finds_conflicts {
        let begin = db.guard.server.either("begin isolation level repeatable read", "begin");
        db.run_all("C", &[begin, "select * from numbers"]).await;
        db.run_all("D", &["update numbers set value = 1 where id = 2"]).await;
        let conflict = db.run("C", "update numbers set value = 2 where id = 2").await;
        assert_eq!(conflict.unwrap_err().kind, FailureKind::Conflict);
    }
    db.close().await.unwrap();
}

async fn a_server_reports_its_name_and_version(server: Arc<TestServer>) {
    let version = &server.version;
    let (name, number) = version.split_once(' ').unwrap();
    assert_eq!(name.to_lowercase(), server.either("postgresql", server.engine().name()));
    assert!(number.starts_with(|c: char| c.is_ascii_digit()) && !number.contains('-'), "{version}");
    assert!(server.is_superuser().await);
}
