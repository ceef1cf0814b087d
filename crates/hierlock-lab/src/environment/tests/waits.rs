//! Who waits for whom, and for what, as the server says.

use super::*;

on_all!(
    cases_beside_each_other_do_not_mix,
    a_flush_waits_for_lock_tables,
    a_key_is_waited_for,
    a_parallel_worker_waits,
    a_parent_is_waited_for,
    many_locks_are_no_excuse,
    who_is_no_administrator_sees_enough,
    locks_are_listed;
    on numbers:
    a_row_is_waited_for,
    a_row_just_inserted_is_waited_for,
    a_queue_for_one_row,
    readers_and_a_writer,
    a_gap_is_waited_for,
    a_table_is_waited_for,
    a_definition_is_waited_for,
    a_question_may_be_dropped,
    strangers_are_seen,
);

async fn a_row_is_waited_for(db: &OpenDatabase) {
    db.all("A", &["begin", "update numbers set value = 31 where id = 1"]).await;
    assert_eq!(db.waits().await.unwrap(), []);
    let (reply, wait) = db
        .start_blocked("B", "update numbers set value = 32 where id = 1", "A", LockKind::Row)
        .await;
    let row = if db.is_postgres() { ", ExclusiveLock" } else { " (PRIMARY), X,REC_NOT_GAP" };
    assert_eq!(target(&wait), format!("row 1 of numbers{row}"));
    db.all("A", &["commit"]).await;
    assert_eq!(end(reply).await.unwrap().changed, 1);
    assert_eq!(db.waits().await.unwrap(), []);
}

/// The failure this prevents: InnoDB lists the lock of a new row by who first wants it, and it was taken for its own.
async fn a_row_just_inserted_is_waited_for(db: &OpenDatabase) {
    db.all("A", &["begin", "insert into numbers values (5, 5, '')"]).await;
    // A duplicate waits for the end of the transaction that inserted it; there is no row to see yet.
    let lock = if db.is_postgres() { LockKind::Transaction } else { LockKind::Row };
    let _reply = db.start_blocked("B", "insert into numbers values (5, 6, '')", "A", lock).await;
}

async fn a_queue_for_one_row(db: &OpenDatabase) {
    let wanted = "select value from numbers where id = 1 for update";
    db.all("A", &["begin", wanted]).await;
    let _second = db.start_blocked("B", wanted, "A", LockKind::Row).await;
    // PostgreSQL's third stands behind the second; InnoDB's behind everybody in front.
    let blockers = if db.is_postgres() { "B" } else { "A B" };
    let _third = db.start_blocked("C", wanted, blockers, LockKind::Row).await;
    assert_eq!(by(&db.blocked("B").await), "A");
}

async fn readers_and_a_writer(db: &OpenDatabase) {
    let share = if db.is_postgres() { "for share" } else { "lock in share mode" };
    let read = format!("select value from numbers where id = 2 {share}");
    for who in ["A", "B"] {
        db.all(who, &["begin", &read]).await;
    }
    // PostgreSQL waits for one after the other.
    let blockers = if db.is_postgres() { "A" } else { "A B" };
    let delete = "delete from numbers where id = 2";
    let _reply = db.start_blocked("C", delete, blockers, LockKind::Row).await;
}

async fn a_gap_is_waited_for(db: &OpenDatabase) {
    db.all("A", &["begin", "select * from numbers where id between 3 and 8 for update"]).await;
    db.all("B", &["begin", "select * from numbers where id > 11 for update"]).await;
    let insert = |id: u32| format!("insert into numbers values ({id}, 0, '')");
    if db.is_postgres() {
        db.all("C", &[&insert(5), &insert(20)]).await;
        return;
    }
    let (_reply, wait) = db.start_blocked("C", &insert(5), "A", LockKind::Gap).await;
    assert_eq!(target(&wait), "gap before 10 of numbers (PRIMARY), X,GAP,INSERT_INTENTION");
    let (_reply, wait) = db.start_blocked("D", &insert(20), "B", LockKind::Gap).await;
    assert_eq!(target(&wait), "gap before supremum of numbers (PRIMARY), X,INSERT_INTENTION");
}

async fn a_table_is_waited_for(db: &OpenDatabase) {
    let lock = if db.is_postgres() {
        "lock table numbers in exclusive mode"
    } else {
        "lock tables numbers write"
    };
    db.all("A", &["begin", lock]).await;
    let (_reply, wait) =
        db.start_blocked("B", "update numbers set value = 1", "A", LockKind::Table).await;
    assert_eq!(wait.target.unwrap().object, "numbers");
    // And the other way round: the table is wanted as a whole.
    db.all("A", &[if db.is_postgres() { "rollback" } else { "unlock tables" }]).await;
    end(_reply).await.unwrap();
    db.all("B", &["begin", "update numbers set value = 1"]).await;
    db.all("A", &["begin"]).await;
    let _reply = db.start_blocked("A", lock, "B", LockKind::Table).await;
}

async fn a_definition_is_waited_for(db: &OpenDatabase) {
    db.all("A", &["begin", "select * from numbers where id = 1"]).await;
    let lock = if db.is_postgres() { LockKind::Table } else { LockKind::Metadata };
    let alter = "alter table numbers add column more int";
    let (_alter, wait) = db.start_blocked("B", alter, "A", lock).await;
    assert_eq!(wait.target.unwrap().object, "numbers");
    // Everyone who comes later waits behind it.
    let _read = db.start_blocked("C", "select * from numbers where id = 2", "B", lock).await;
}

/// The failure this prevents: MariaDB does not tell which table is waited for, and one of another case that ran
/// beside was taken. So the holder was "something outside of the scenario".
async fn cases_beside_each_other_do_not_mix(server: Arc<TestServer>) {
    let sqls = ["alter table numbers add column more int", "drop table numbers"];
    for round in 0..5 {
        let mut databases = Vec::new();
        for _ in 0..4 {
            let db = OpenDatabase::numbers(&server).await;
            db.all("A", &["begin", "select * from numbers where id = 1"]).await;
            let reply = db.start("B", sqls[round % 2]);
            databases.push((db, reply));
        }
        // Everybody waits by now, the later ones too, who come first or last in whatever the server lists.
        for (db, _) in &databases {
            let wait = db.blocked("B").await;
            assert_eq!(by(&wait), "A", "round {round}: {wait:?}");
            assert_eq!(wait.target.unwrap().object, "numbers");
        }
        for (db, reply) in databases {
            db.all("A", &["commit"]).await;
            end(reply).await.unwrap();
            db.close().await;
        }
    }
    // A database that is named goes before the session's own.
    let [here, there] = [&server, &server].map(|server| numbers(server.engine()));
    let (here, there) =
        (OpenDatabase::open(&server, &here).await, OpenDatabase::open(&server, &there).await);
    for db in [&here, &there] {
        db.all("A", &["begin", "select * from numbers where id = 1"]).await;
    }
    let _reply = here.start("B", &format!("drop table {}.numbers", there.namespace()));
    let wait = here.blocked("B").await;
    assert!(wait.has_outside_blocker && wait.blockers.is_empty(), "{wait:?}");
    assert_eq!(wait.target.unwrap().object, format!("{}.numbers", there.namespace()));
    here.close().await;
    there.close().await;
}

/// The failure this prevents: `FLUSH TABLES t` beside LOCK TABLES was "stuck" on MySQL, which does not list it.
async fn a_flush_waits_for_lock_tables(server: Arc<TestServer>) {
    if server.engine() == Engine::Postgres {
        return;
    }
    let mut case = numbers(server.engine());
    case.setup.push(statement("create table others (id int primary key)"));
    will_run(&mut case, "flush tables numbers");
    let db = OpenDatabase::open(&server, &case).await;
    // Has a table open that nobody flushes.
    db.all("D", &["lock tables others read"]).await;
    for mode in ["read", "write"] {
        db.all("A", &[&format!("lock tables numbers {mode}")]).await;
        let (flush, wait) =
            db.start_blocked("B", "flush tables numbers", "A", LockKind::Table).await;
        assert_eq!(wait.target.unwrap().object, "numbers");
        // Who comes later waits too: on MariaDB for the flush, on MySQL for the same as the flush.
        let read = db.start("C", "select count(*) from others, numbers");
        let wait = db.blocked("C").await;
        let first = match (server.engine(), mode) {
            (Engine::Mariadb, "read") => "B",
            (Engine::Mariadb, _) => "A B",
            _ => "A",
        };
        assert_eq!(by(&wait), first, "{mode}: {wait:?}");
        db.all("A", &["unlock tables"]).await;
        end(flush).await.unwrap();
        end(read).await.unwrap();
    }
    // A transaction between two statements: it has nothing open, but its metadata lock.
    db.all("A", &["begin", "insert into numbers values (5, 5, '')"]).await;
    let flush = db.start("B", "flush tables numbers");
    if server.engine() == Engine::Mariadb {
        assert_eq!(by(&db.blocked("B").await), "A");
        db.all("A", &["rollback", "begin", "insert into numbers values (5, 5, '')"]).await;
    }
    end(flush).await.unwrap();
    if server.engine() == Engine::Mysql {
        // In the middle of a statement it has.
        let insert = db.start("C", "insert into numbers values (5, 6, '')");
        db.blocked("C").await;
        let flush = db.start("B", "flush tables numbers");
        assert_eq!(by(&db.blocked("B").await), "C");
        db.all("A", &["rollback"]).await;
        end(insert).await.unwrap();
        end(flush).await.unwrap();
    }
    db.all("D", &["unlock tables"]).await;
    db.close().await;
}

async fn a_key_is_waited_for(server: Arc<TestServer>) {
    let mut case = case(server.engine(), &[]);
    let take = match server.engine() {
        Engine::Postgres => "select pg_advisory_lock(7)",
        _ => "select get_lock('seven', 30)",
    };
    will_run(&mut case, take);
    let db = OpenDatabase::open(&server, &case).await;
    db.all("A", &[take]).await;
    let (_reply, wait) = db.start_blocked("B", take, "A", LockKind::Advisory).await;
    assert_eq!(wait.target.unwrap().object, if db.is_postgres() { "7" } else { "seven" });
    db.close().await;
}

/// The failure this prevents: a query was "stuck", since its leader waits for a parallel worker and not for a lock.
async fn a_parallel_worker_waits(server: Arc<TestServer>) {
    if server.engine() != Engine::Postgres {
        return;
    }
    let mut case = numbers(server.engine());
    for sql in [
        "create table others as select n from generate_series(1, 1000) n",
        "create function look(n int) returns bigint language plpgsql parallel safe as $$ \
         begin return n + (select count(*) from numbers); end $$",
    ] {
        case.setup.push(statement(sql));
    }
    let db = OpenDatabase::open(&server, &case).await;
    db.all("A", &["begin", "lock table numbers in access exclusive mode"]).await;
    db.all(
        "B",
        &[
            "set parallel_setup_cost = 0",
            "set parallel_tuple_cost = 0",
            "set min_parallel_table_scan_size = 0",
            "set max_parallel_workers_per_gather = 2",
            "set parallel_leader_participation = off",
        ],
    )
    .await;
    let (reply, wait) =
        db.start_blocked("B", "select sum(look(n)) > 0 from others", "A", LockKind::Table).await;
    assert_eq!(wait.target.unwrap().object, "numbers");
    db.all("A", &["rollback"]).await;
    end(reply).await.unwrap();
    db.close().await;
}

async fn a_parent_is_waited_for(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    let child = "create table children (id int primary key, parent int, \
                 foreign key (parent) references numbers (id))";
    case.setup.push(statement(child));
    let db = OpenDatabase::open(&server, &case).await;
    db.all("A", &["begin", TAKE]).await;
    let (_reply, wait) =
        db.start_blocked("B", "insert into children values (1, 1)", "A", LockKind::Row).await;
    let target = wait.target.unwrap();
    assert_eq!((target.object.as_str(), target.record.as_deref()), ("numbers", Some("1")));
    db.close().await;
}

/// Without the rights to list locks, MariaDB's tables are asked, slowly.
async fn who_is_no_administrator_sees_enough(server: Arc<TestServer>) {
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let user = format!("lab_{}", server.prefix.rsplit('_').next().unwrap());
    let (make, drop) = match server.engine() {
        Engine::Postgres => (
            vec![
                format!("create role {user} login"),
                format!("grant create on database postgres to {user}"),
            ],
            vec![format!("drop owned by {user}"), format!("drop role {user}")],
        ),
        _ => (
            vec![
                format!("create user {user}"),
                format!("grant process on *.* to {user}"),
                format!("grant select on performance_schema.* to {user}"),
                format!("grant all on `hierlock\\_lab\\_%`.* to {user}"),
                format!("grant usage on hierlock.* to {user}"),
            ],
            vec![format!("drop user {user}")],
        ),
    };
    for sql in make {
        connection.query(&sql).await.unwrap();
    }
    if server.engine() == Engine::Mariadb {
        // Others who may, and miss it, switch it on again.
        connection.query(hierlock_engine::introspection::DISABLE_LOCK_OUTPUT).await.unwrap();
    }
    let mut url = url::Url::parse(&server.url).unwrap();
    url.set_username(&user).unwrap();
    if server.engine() != Engine::Postgres {
        url.set_path("");
    }
    let plain = TestServer::connect(server.engine(), url.as_str()).await.unwrap();
    assert!(!is_superuser(&plain).await);
    let db = OpenDatabase::numbers(&plain).await;
    db.all("A", &["begin", TAKE]).await;
    for (who, blockers) in [("B", "A"), ("C", if db.is_postgres() { "B" } else { "A B" })] {
        let (_reply, wait) = db.start_blocked(who, TAKE, blockers, LockKind::Row).await;
        assert_eq!(wait.target.unwrap().record.as_deref(), Some("1"));
    }
    db.locks().await.unwrap();
    db.close().await;
    for sql in drop {
        connection.query(&sql).await.unwrap();
    }
}

/// MariaDB lists ten locks of a transaction and no more; who holds more is in the way all the same.
async fn many_locks_are_no_excuse(server: Arc<TestServer>) {
    let mut case = numbers(server.engine());
    let tables = 12;
    for table in 1..=tables {
        case.setup.push(statement(&format!("create table t{table} (id int primary key)")));
        case.setup.push(statement(&format!("insert into t{table} values (1)")));
    }
    let db = OpenDatabase::open(&server, &case).await;
    db.all("A", &["begin"]).await;
    for table in 1..=tables {
        db.all("A", &[&format!("select * from t{table} where id = 1 for update")]).await;
    }
    for (who, table) in [("B", 1), ("C", tables)] {
        let take = format!("select * from t{table} where id = 1 for update");
        let _reply = db.start_blocked(who, &take, "A", LockKind::Row).await;
    }
    db.close().await;
}

/// The failure this prevents: a question was dropped, and the next one got its answer.
async fn a_question_may_be_dropped(db: &OpenDatabase) {
    db.all("A", &["begin", "update numbers set value = 31 where id = 1"]).await;
    for _ in 0..20 {
        tokio::select! {
            biased;
            waits = db.waits() => assert_eq!(waits.unwrap(), []),
            () = tokio::task::yield_now() => {}
        }
    }
    let _reply = db.start("B", "update numbers set value = 32 where id = 1");
    assert_eq!(by(&db.blocked("B").await), "A");
}

async fn strangers_are_seen(db: &OpenDatabase) {
    db.all("A", &["begin", TAKE]).await;
    // A does not belong to the case any more.
    let id = db.sessions[&name("A")].pid;
    db.observer.lock().await.sessions.names.remove(&id);
    let _reply = db.start("B", TAKE);
    let wait = db.blocked("B").await;
    assert!(wait.has_outside_blocker && wait.blockers.is_empty(), "{wait:?}");
}

async fn locks_are_listed(server: Arc<TestServer>) {
    let mut advisory = numbers(server.engine());
    will_run(&mut advisory, "select pg_advisory_lock(1)");
    for case in [numbers(server.engine()), advisory] {
        locks_of_a_case_are_listed(&server, &case).await;
    }
}

async fn locks_of_a_case_are_listed(server: &Arc<TestServer>, case: &Case) {
    let db = OpenDatabase::open(server, case).await;
    db.all("A", &["begin", "select * from numbers where id in (1, 2) for update"]).await;
    let _reply = db.start("B", "update numbers set value = 0 where id = 2");
    db.blocked("B").await;
    let locks = db.locks().await.unwrap().locks;
    let has = |who: &str, kind: LockKind, record: Option<&str>, granted: bool| {
        locks.iter().any(|lock| {
            lock.session == name(who)
                && lock.target.kind == kind
                && lock.target.object == "numbers"
                && lock.target.record.as_deref() == record
                && lock.granted == granted
        })
    };
    for record in ["1", "2"] {
        assert!(has("A", LockKind::Row, Some(record), true), "{locks:#?}");
    }
    assert!(has("A", LockKind::Table, None, true), "{locks:#?}");
    assert!(has("B", LockKind::Row, Some("2"), false), "{locks:#?}");
    db.close().await;
}
