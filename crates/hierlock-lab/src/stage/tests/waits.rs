//! Who waits for whom, and for what, as the server says.

use super::*;

on_all!(
    a_row_is_waited_for,
    a_row_just_inserted_is_waited_for,
    a_queue_for_one_row,
    readers_and_a_writer,
    a_gap_is_waited_for,
    a_table_is_waited_for,
    a_definition_is_waited_for,
    cases_beside_each_other_do_not_mix,
    a_flush_waits_for_lock_tables,
    a_key_is_waited_for,
    a_parallel_worker_waits,
    a_parent_is_waited_for,
    many_locks_are_no_excuse,
    who_is_no_administrator_sees_enough,
    strangers_are_seen,
    a_question_may_be_dropped,
    locks_are_listed,
);

async fn a_row_is_waited_for(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", "update numbers set value = 31 where id = 1"]).await;
    assert_eq!(play.stage.waits().await.unwrap(), []);
    let reply = play.begin("B", "update numbers set value = 32 where id = 1");
    let wait = play.blocked("B").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Row));
    match play.is_postgres() {
        true => assert_eq!(thing(&wait), "row 1 of numbers, ExclusiveLock"),
        false => assert_eq!(thing(&wait), "row 1 of numbers (PRIMARY), X,REC_NOT_GAP"),
    }
    play.all("A", &["commit"]).await;
    assert_eq!(end(reply).await.unwrap().changed, 1);
    assert_eq!(play.stage.waits().await.unwrap(), []);
    play.close().await;
}

/// The failure this prevents: the lock of a row just inserted is made by whoever first wants it, and
/// was then taken for that one's own.
async fn a_row_just_inserted_is_waited_for(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", "insert into numbers values (5, 5, '')"]).await;
    let _reply = play.begin("B", "insert into numbers values (5, 6, '')");
    let wait = play.blocked("B").await;
    assert_eq!(by(&wait), "A");
    // A duplicate waits for the end of the transaction that inserted it; there is no row to see yet.
    let expected = if play.is_postgres() { LockKind::Transaction } else { LockKind::Row };
    assert_eq!(kind(&wait), expected);
    play.close().await;
}

async fn a_queue_for_one_row(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let wanted = "select value from numbers where id = 1 for update";
    play.all("A", &["begin", wanted]).await;
    let _second = play.begin("B", wanted);
    play.blocked("B").await;
    let _third = play.begin("C", wanted);
    let wait = play.blocked("C").await;
    // PostgreSQL's third stands behind the second; InnoDB's behind everybody in front.
    assert_eq!(by(&wait), if play.is_postgres() { "B" } else { "A B" });
    assert_eq!((by(&play.blocked("B").await).as_str(), kind(&wait)), ("A", LockKind::Row));
    play.close().await;
}

async fn readers_and_a_writer(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let share = if play.is_postgres() { "for share" } else { "lock in share mode" };
    let read = format!("select value from numbers where id = 2 {share}");
    for who in ["A", "B"] {
        play.all(who, &["begin", &read]).await;
    }
    let _reply = play.begin("C", "delete from numbers where id = 2");
    let wait = play.blocked("C").await;
    // PostgreSQL waits for one after the other.
    assert_eq!(by(&wait), if play.is_postgres() { "A" } else { "A B" });
    assert_eq!(kind(&wait), LockKind::Row);
    play.close().await;
}

async fn a_gap_is_waited_for(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", "select * from numbers where id between 3 and 8 for update"]).await;
    play.all("B", &["begin", "select * from numbers where id > 11 for update"]).await;
    let insert = |id: u32| format!("insert into numbers values ({id}, 0, '')");
    if play.is_postgres() {
        play.all("C", &[&insert(5), &insert(20)]).await;
        return play.close().await;
    }
    let _reply = play.begin("C", &insert(5));
    let wait = play.blocked("C").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Gap));
    assert_eq!(thing(&wait), "gap before 10 of numbers (PRIMARY), X,GAP,INSERT_INTENTION");
    let _reply = play.begin("D", &insert(20));
    let wait = play.blocked("D").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("B", LockKind::Gap));
    assert_eq!(thing(&wait), "gap before supremum of numbers (PRIMARY), X,INSERT_INTENTION");
    play.close().await;
}

async fn a_table_is_waited_for(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let lock = match play.is_postgres() {
        true => "lock table numbers in exclusive mode",
        false => "lock tables numbers write",
    };
    play.all("A", &["begin", lock]).await;
    let _reply = play.begin("B", "update numbers set value = 1");
    let wait = play.blocked("B").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Table), "{wait:?}");
    assert_eq!(wait.thing.unwrap().object, "numbers");
    // And the other way round: the table is wanted as a whole.
    play.all("A", &[if play.is_postgres() { "rollback" } else { "unlock tables" }]).await;
    end(_reply).await.unwrap();
    play.all("B", &["begin", "update numbers set value = 1"]).await;
    play.all("A", &["begin"]).await;
    let _reply = play.begin("A", lock);
    let wait = play.blocked("A").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("B", LockKind::Table), "{wait:?}");
    play.close().await;
}

async fn a_definition_is_waited_for(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", "select * from numbers where id = 1"]).await;
    let _alter = play.begin("B", "alter table numbers add column more int");
    let wait = play.blocked("B").await;
    let expected = if play.is_postgres() { LockKind::Table } else { LockKind::Metadata };
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", expected), "{wait:?}");
    assert_eq!(wait.thing.unwrap().object, "numbers");
    // Everyone who comes later waits behind it.
    let _read = play.begin("C", "select * from numbers where id = 2");
    let wait = play.blocked("C").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("B", expected), "{wait:?}");
    play.close().await;
}

/// The failure this prevents: MariaDB does not tell which table is waited for, and of those that the
/// statement names the first that anybody held was taken: with several cases at a time, one of another
/// case's database. So the holder was "something outside of the scenario", more often than not.
async fn cases_beside_each_other_do_not_mix(server: Server) {
    let sqls = ["alter table numbers add column more int", "drop table numbers"];
    for round in 0..5 {
        let mut plays = Vec::new();
        for _ in 0..4 {
            let play = Play::open(server.clone(), &numbers(server.engine())).await;
            play.all("A", &["begin", "select * from numbers where id = 1"]).await;
            let reply = play.begin("B", sqls[round % 2]);
            plays.push((play, reply));
        }
        // Everybody waits by now, the later ones too, who come first or last in whatever the server lists.
        for (play, _) in &plays {
            let wait = play.blocked("B").await;
            assert_eq!(by(&wait), "A", "round {round}: {wait:?}");
            assert_eq!(wait.thing.unwrap().object, "numbers");
        }
        for (play, reply) in plays {
            play.all("A", &["commit"]).await;
            end(reply).await.unwrap();
            play.close().await;
        }
    }
    // A database that is named goes before the session's own.
    let [here, there] = [&server, &server].map(|server| numbers(server.engine()));
    let (here, there) =
        (Play::open(server.clone(), &here).await, Play::open(server.clone(), &there).await);
    for play in [&here, &there] {
        play.all("A", &["begin", "select * from numbers where id = 1"]).await;
    }
    let _reply = here.begin("B", &format!("drop table {}.numbers", there.stage.home()));
    let wait = here.blocked("B").await;
    assert!(wait.strangers && wait.blockers.is_empty(), "{wait:?}");
    assert_eq!(wait.thing.unwrap().object, format!("{}.numbers", there.stage.home()));
    here.close().await;
    there.close().await;
}

/// The failure this prevents: `FLUSH TABLES t` beside LOCK TABLES was "stuck" on MySQL, where it is in no
/// table of locks, and blocked by nobody known on MariaDB.
async fn a_flush_waits_for_lock_tables(server: Server) {
    if server.engine() == Engine::Postgres {
        return;
    }
    let mut case = numbers(server.engine());
    case.setup.push(statement("create table others (id int primary key)"));
    will_run(&mut case, "flush tables numbers");
    let play = Play::open(server.clone(), &case).await;
    // Has a table open that nobody flushes.
    play.all("D", &["lock tables others read"]).await;
    for mode in ["read", "write"] {
        play.all("A", &[&format!("lock tables numbers {mode}")]).await;
        let flush = play.begin("B", "flush tables numbers");
        let wait = play.blocked("B").await;
        assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Table), "{wait:?}");
        assert_eq!(wait.thing.unwrap().object, "numbers");
        // Who comes later waits too: on MariaDB for the flush, on MySQL for the same as the flush.
        let read = play.begin("C", "select count(*) from others, numbers");
        let wait = play.blocked("C").await;
        let first = match (server.engine(), mode) {
            (Engine::Mariadb, "read") => "B",
            (Engine::Mariadb, _) => "A B",
            _ => "A",
        };
        assert_eq!(by(&wait), first, "{mode}: {wait:?}");
        play.all("A", &["unlock tables"]).await;
        end(flush).await.unwrap();
        end(read).await.unwrap();
    }
    // A transaction between two statements: it has nothing open, but its metadata lock.
    play.all("A", &["begin", "insert into numbers values (5, 5, '')"]).await;
    let flush = play.begin("B", "flush tables numbers");
    if server.engine() == Engine::Mariadb {
        assert_eq!(by(&play.blocked("B").await), "A");
        play.all("A", &["rollback", "begin", "insert into numbers values (5, 5, '')"]).await;
    }
    end(flush).await.unwrap();
    if server.engine() == Engine::Mysql {
        // In the middle of a statement it has.
        let insert = play.begin("C", "insert into numbers values (5, 6, '')");
        play.blocked("C").await;
        let flush = play.begin("B", "flush tables numbers");
        assert_eq!(by(&play.blocked("B").await), "C");
        play.all("A", &["rollback"]).await;
        end(insert).await.unwrap();
        end(flush).await.unwrap();
    }
    play.all("D", &["unlock tables"]).await;
    play.close().await;
}

async fn a_key_is_waited_for(server: Server) {
    let mut case = case(server.engine(), &[]);
    let take = match server.engine() {
        Engine::Postgres => "select pg_advisory_lock(7)",
        _ => "select get_lock('seven', 30)",
    };
    will_run(&mut case, take);
    let play = Play::open(server.clone(), &case).await;
    play.all("A", &[take]).await;
    let _reply = play.begin("B", take);
    let wait = play.blocked("B").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Advisory), "{wait:?}");
    assert_eq!(wait.thing.unwrap().object, if play.is_postgres() { "7" } else { "seven" });
    play.close().await;
}

/// The failure this prevents: a query whose parallel worker waits for a lock was "stuck", since the leader
/// waits for its worker and not for a lock.
async fn a_parallel_worker_waits(server: Server) {
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
    let play = Play::open(server.clone(), &case).await;
    play.all("A", &["begin", "lock table numbers in access exclusive mode"]).await;
    play.all(
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
    let reply = play.begin("B", "select sum(look(n)) > 0 from others");
    let wait = play.blocked("B").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Table), "{wait:?}");
    assert_eq!(wait.thing.unwrap().object, "numbers");
    play.all("A", &["rollback"]).await;
    end(reply).await.unwrap();
    play.close().await;
}

async fn a_parent_is_waited_for(server: Server) {
    let mut case = numbers(server.engine());
    let child = "create table children (id int primary key, parent int, \
                 foreign key (parent) references numbers (id))";
    case.setup.push(statement(child));
    let play = Play::open(server.clone(), &case).await;
    play.all("A", &["begin", "select * from numbers where id = 1 for update"]).await;
    let _reply = play.begin("B", "insert into children values (1, 1)");
    let wait = play.blocked("B").await;
    assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Row));
    let thing = wait.thing.unwrap();
    assert_eq!((thing.object.as_str(), thing.record.as_deref()), ("numbers", Some("1")));
    play.close().await;
}

/// Without the rights to list locks, MariaDB's tables are asked, slowly.
async fn who_is_no_administrator_sees_enough(server: Server) {
    let mut connection = StageConnection::open(&server.inner.address).await.unwrap();
    let user = format!("lab_{}", server.inner.mark().rsplit('_').next().unwrap());
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
        connection.ask(&sql).await.unwrap();
    }
    if server.engine() == Engine::Mariadb {
        // Others who may, and miss it, switch it on again.
        connection.ask(hierlock_engine::introspection::DISABLE_LOCK_OUTPUT).await.unwrap();
    }
    let mut url = url::Url::parse(&server.inner.url).unwrap();
    url.set_username(&user).unwrap();
    if server.engine() != Engine::Postgres {
        url.set_path("");
    }
    let plain = Server::connect(server.engine(), url.as_str()).await.unwrap();
    assert!(!plain.is_superuser());
    let play = Play::open(plain, &numbers(server.engine())).await;
    let take = "select * from numbers where id = 1 for update";
    play.all("A", &["begin", take]).await;
    for (who, blockers) in [("B", "A"), ("C", if play.is_postgres() { "B" } else { "A B" })] {
        let _reply = play.begin(who, take);
        let wait = play.blocked(who).await;
        assert_eq!((by(&wait).as_str(), kind(&wait)), (blockers, LockKind::Row));
        assert_eq!(wait.thing.unwrap().record.as_deref(), Some("1"));
    }
    play.stage.locks().await.unwrap();
    play.close().await;
    for sql in drop {
        connection.ask(&sql).await.unwrap();
    }
}

/// MariaDB lists ten locks of a transaction and no more; who holds more is in the way all the same.
async fn many_locks_are_no_excuse(server: Server) {
    let mut case = numbers(server.engine());
    let tables = 12;
    for table in 1..=tables {
        case.setup.push(statement(&format!("create table t{table} (id int primary key)")));
        case.setup.push(statement(&format!("insert into t{table} values (1)")));
    }
    let play = Play::open(server.clone(), &case).await;
    play.all("A", &["begin"]).await;
    for table in 1..=tables {
        play.all("A", &[&format!("select * from t{table} where id = 1 for update")]).await;
    }
    for (who, table) in [("B", 1), ("C", tables)] {
        let _reply = play.begin(who, &format!("select * from t{table} where id = 1 for update"));
        let wait = play.blocked(who).await;
        assert_eq!((by(&wait).as_str(), kind(&wait)), ("A", LockKind::Row), "t{table}");
    }
    play.close().await;
}

/// The failure this prevents: a runner that looks at whatever comes first, an answer or a wait, drops the
/// question, and the next one gets its answer.
async fn a_question_may_be_dropped(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    play.all("A", &["begin", "update numbers set value = 31 where id = 1"]).await;
    for _ in 0..20 {
        tokio::select! {
            biased;
            waits = play.stage.waits() => assert_eq!(waits.unwrap(), []),
            () = tokio::task::yield_now() => {}
        }
    }
    let _reply = play.begin("B", "update numbers set value = 32 where id = 1");
    assert_eq!(by(&play.blocked("B").await), "A");
    play.close().await;
}

async fn strangers_are_seen(server: Server) {
    let play = Play::open(server.clone(), &numbers(server.engine())).await;
    let lock = "select * from numbers where id = 1 for update";
    play.all("A", &["begin", lock]).await;
    let id = {
        let sql =
            if play.is_postgres() { "select pg_backend_pid()" } else { "select connection_id()" };
        let answer = play.run("A", sql).await.unwrap();
        answer.rows.unwrap().remove(0).remove(0).unwrap().parse().unwrap()
    };
    play.stage.disown(id);
    let _reply = play.begin("B", lock);
    let wait = play.blocked("B").await;
    assert!(wait.strangers && wait.blockers.is_empty(), "{wait:?}");
    play.close().await;
}

async fn locks_are_listed(server: Server) {
    let mut advisory = numbers(server.engine());
    will_run(&mut advisory, "select pg_advisory_lock(1)");
    for case in [numbers(server.engine()), advisory] {
        locks_of_a_case_are_listed(&server, &case).await;
    }
}

async fn locks_of_a_case_are_listed(server: &Server, case: &Case) {
    let play = Play::open(server.clone(), case).await;
    play.all("A", &["begin", "select * from numbers where id in (1, 2) for update"]).await;
    let _reply = play.begin("B", "update numbers set value = 0 where id = 2");
    play.blocked("B").await;
    let locks = play.stage.locks().await.unwrap().locks;
    let has = |who: &str, kind: LockKind, record: Option<&str>, granted: bool| {
        locks.iter().any(|lock| {
            lock.session == name(who)
                && lock.thing.kind == kind
                && lock.thing.object == "numbers"
                && lock.thing.record.as_deref() == record
                && lock.granted == granted
        })
    };
    for record in ["1", "2"] {
        assert!(has("A", LockKind::Row, Some(record), true), "{locks:#?}");
    }
    assert!(has("A", LockKind::Table, None, true), "{locks:#?}");
    assert!(has("B", LockKind::Row, Some("2"), false), "{locks:#?}");
    play.close().await;
}
