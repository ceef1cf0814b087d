//! What sessions answer.

use super::*;

on_all!(
    settings_are_set,
    without_autocommit_nothing_is_committed,
    a_setup_that_fails_names_its_statement_and_line,
    failures_are_told_apart,
    a_server_is_what_it_says;
    on numbers:
    rows_are_as_the_server_writes_them,
);

async fn rows_are_as_the_server_writes_them(db: &OpenDatabase) {
    let read = db.run("A", "select id, word from numbers order by id").await.unwrap();
    let cell = |text: &str| Some(text.to_owned());
    let rows = vec![vec![cell("1"), cell("a")], vec![cell("2"), None], vec![cell("10"), cell("c")]];
    assert_eq!(read, Answer { rows: Some(rows), changed: 0, is_matched: false });
    let none = db.run("A", "select id from numbers where id = 7").await.unwrap();
    assert_eq!(none, Answer { rows: Some(Vec::new()), changed: 0, is_matched: false });
    let same = db.run("A", "update numbers set value = value where id < 10").await.unwrap();
    // The driver has MySQL and MariaDB count what is matched: that was told as "changed".
    let is_matched = !db.is_postgres();
    assert_eq!(same, Answer { rows: None, changed: 2, is_matched });
    let inserted = db.run("A", "insert into numbers values (8, 8, 'h')").await.unwrap();
    assert_eq!(inserted, Answer { rows: None, changed: 1, is_matched: false });
    db.all("A", &["delete from numbers where id = 8"]).await;
    assert_eq!(db.run("A", "begin").await.unwrap(), Answer::default());
    let (odd, written) = if db.is_postgres() {
        let odd = "select '\\x00ff'::bytea, 1.50::numeric, true, 0.1::float8, 'ж'";
        (odd, ["\\x00ff", "1.50", "t", "0.1", "ж"])
    } else {
        ("select x'00ff', 1.50, true, 0.1e0, 'ж'", ["0x00FF", "1.50", "1", "0.1", "ж"])
    };
    let odd = db.run("A", odd).await.unwrap().rows.unwrap().remove(0);
    let odd: Vec<&str> = odd.iter().map(|cell| cell.as_deref().unwrap()).collect();
    assert_eq!(odd, written);
    if db.server.engine() != Engine::Mysql {
        let sql = "insert into numbers values (7, 7, 'x') returning id";
        let answer = db.run("B", sql).await.unwrap();
        assert_eq!(
            answer,
            Answer { rows: Some(vec![vec![cell("7")]]), changed: 1, is_matched: false }
        );
    }
}

async fn settings_are_set(server: Arc<TestServer>) {
    let mut case = case(server.engine(), &[]);
    set_all(&mut case, &SettingValue::Isolation("serializable".to_owned()));
    let (setting, isolation, custom) = match server.engine() {
        Engine::Postgres => {
            ("set work_mem = '70kB'", "show transaction_isolation", "show work_mem")
        }
        Engine::Mysql => (
            "max_execution_time = 70",
            "select @@transaction_isolation",
            "select @@max_execution_time",
        ),
        _ => ("set sort_buffer_size = 71680", "select @@tx_isolation", "select @@sort_buffer_size"),
    };
    case.sessions.get_mut(&name("B")).unwrap().push(SettingValue::Sql(setting.to_owned()));
    let db = OpenDatabase::open(&server, &case).await;
    let answer =
        async |who, sql| db.run(who, sql).await.unwrap().rows.unwrap().remove(0).remove(0).unwrap();
    assert_eq!(answer("A", isolation).await.to_lowercase(), "serializable");
    let (plain, set) = (answer("A", custom).await, answer("B", custom).await);
    assert!(plain != set && set.starts_with('7'), "{plain} {set}");
    db.close().await;
}

async fn without_autocommit_nothing_is_committed(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    case.sessions.get_mut(&name("A")).unwrap().push(SettingValue::Autocommit(false));
    let db = OpenDatabase::open(&server, &case).await;
    let seen = async || {
        let sql = "select value from numbers where id = 1";
        db.run("B", sql).await.unwrap().rows.unwrap().remove(0).remove(0).unwrap()
    };
    let write = "update numbers set value = 31 where id = 1";
    db.all("A", &["select 1", write]).await;
    assert_eq!(seen().await, "30");
    db.all("A", &["rollback", write, "commit"]).await;
    assert_eq!(seen().await, "31");
    // One that fails is in the transaction too.
    db.run("A", "select nonsense").await.unwrap_err();
    db.all("A", &["rollback", "update numbers set value = 32 where id = 1"]).await;
    assert_eq!(seen().await, "31");
    db.close().await;
}

async fn a_setup_that_fails_names_its_statement_and_line(server: Arc<TestServer>) {
    let case = case(
        server.engine(),
        &["create table t (id int primary key)", "insert into nowhere values (1)"],
    );
    let error = TestDatabase::open(&server, &case).await.err().unwrap().to_string();
    assert!(error.contains("setup") && error.contains("insert into nowhere"), "{error}");
    assert!(error.starts_with("line 7: "), "where it stands in the file was not said: {error}");
    // PostgreSQL names a line of its own source code as well.
    assert!(!error.contains(" at line "), "{error}");
}

async fn failures_are_told_apart(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    set_all(&mut case, &SettingValue::LockWaitTimeout(Duration::from_millis(100)));
    let db = OpenDatabase::open(&server, &case).await;
    db.all("A", &["begin", "select * from numbers where id = 1 for update"]).await;
    let wanted = "select * from numbers where id = 1 for update";
    let timed_out = db.run("B", wanted).await.unwrap_err();
    assert_eq!(timed_out.kind, FailureKind::TimedOut, "{timed_out:?}");
    let refused = db.run("B", &format!("{wanted} nowait")).await.unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused, "{refused:?}");
    let other = db.run("B", "insert into numbers values (2, 2, '')").await.unwrap_err();
    let code = if db.is_postgres() { "23505" } else { "1062" };
    assert_eq!((other.kind, other.code.as_str()), (FailureKind::Other, code));
    if db.is_postgres() {
        let begin = "begin isolation level repeatable read";
        db.all("C", &[begin, "select * from numbers"]).await;
        db.all("D", &["update numbers set value = 1 where id = 2"]).await;
        let conflict = db.run("C", "update numbers set value = 2 where id = 2").await;
        assert_eq!(conflict.unwrap_err().kind, FailureKind::Conflict);
    }
    if server.engine() == Engine::Mariadb {
        let begin = "set session innodb_snapshot_isolation = on";
        if db.run("C", begin).await.is_ok() {
            db.all("C", &["begin", "select * from numbers"]).await;
            db.all("D", &["update numbers set value = 1 where id = 2"]).await;
            let conflict = db.run("C", "update numbers set value = 2 where id = 2").await;
            assert_eq!(conflict.unwrap_err().kind, FailureKind::Conflict);
        }
    }
    db.close().await;
}

async fn a_server_is_what_it_says(server: Arc<TestServer>) {
    let version = server.version();
    let (name, number) = version.split_once(' ').unwrap();
    assert_eq!(
        name.to_lowercase().replace("sql", ""),
        match server.engine() {
            Engine::Postgres => "postgre".to_owned(),
            engine => engine.name().replace("sql", ""),
        }
    );
    assert!(number.starts_with(|c: char| c.is_ascii_digit()) && !number.contains('-'), "{version}");
    assert!(is_superuser(&server).await);
}
