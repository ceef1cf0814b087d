//! Waits and locks, as the server reports them.

use super::*;

on_all!(
    parallel_cases_are_not_confused,
    a_user_without_superuser_privileges_sees_waits,
    locks_are_listed;
    on numbers:
    a_dropped_probe_does_not_disturb_the_next,
    outside_blockers_are_reported,
);

/// The failure this prevents: MariaDB does not report the table of a wait, and the lab took one of another case that
/// ran in parallel. So the holder was "something outside of the scenario".
async fn parallel_cases_are_not_confused(server: Arc<TestServer>) {
    let sqls = ["alter table numbers add column more int", "drop table numbers"];
    for round in 0..5 {
        let mut databases = Vec::new();
        for _ in 0..4 {
            let db = open_numbers(&server).await;
            db.run_all("A", &["begin", "select * from numbers where id = 1"]).await;
            let reply = db.start("B", sqls[round % 2]);
            databases.push((db, reply));
        }
        // All sessions wait by now, so each wait may be the first or the last that the server lists.
        for (db, _) in &databases {
            let wait = db.blocked("B").await;
            assert_eq!(blocker_names(&wait), "A", "round {round}: {wait:?}");
            assert_eq!(wait.target.unwrap().object, "numbers");
        }
        for (db, reply) in databases {
            db.run_all("A", &["commit"]).await;
            finish(reply).await.unwrap();
            db.close().await.unwrap();
        }
    }
    // A database that the statement names takes precedence over the session's own.
    let (own, other) = (open_numbers(&server).await, open_numbers(&server).await);
    for db in [&own, &other] {
        db.run_all("A", &["begin", "select * from numbers where id = 1"]).await;
    }
    let _reply = own.start("B", &format!("drop table {}.numbers", other.namespace()));
    let wait = own.blocked("B").await;
    assert!(wait.has_outside_blocker && wait.blockers.is_empty(), "{wait:?}");
    assert_eq!(wait.target.unwrap().object, format!("{}.numbers", other.namespace()));
    own.close().await.unwrap();
    other.close().await.unwrap();
}

/// Without the privilege to list locks, the slower tables of MariaDB are queried.
async fn a_user_without_superuser_privileges_sees_waits(server: Arc<TestServer>) {
    let user = format!("lab_{}", server.prefix.rsplit('_').next().unwrap());
    let run = async |statements: &[&str]| {
        for sql in statements {
            server.query(&sql.replace("USER", &user)).await;
        }
    };
    run(server.either(
        &["create role USER login", "grant create on database postgres to USER"],
        &[
            "create user USER",
            "grant process on *.* to USER",
            "grant select on performance_schema.* to USER",
            "grant all on `hierlock\\_lab\\_%`.* to USER",
            "grant usage on hierlock.* to USER",
        ],
    ))
    .await;
    if server.engine() == Engine::Mariadb {
        // Other tests that have the privilege switch the listing on again.
        server.query(hierlock_engine::introspection::DISABLE_LOCK_OUTPUT).await;
    }
    let mut url = server.url.clone();
    url.set_username(&user).unwrap();
    if server.engine() != Engine::Postgres {
        url.set_path("");
    }
    let plain = TestServer::connect(server.engine(), url.as_str()).await.unwrap();
    assert!(!plain.is_superuser().await);
    let db = open_numbers(&plain).await;
    db.run_all("A", &["begin", LOCK_ROW]).await;
    for (session, blockers) in [("B", "A"), ("C", db.guard.server.either("B", "A B"))] {
        let _reply = db.start(session, LOCK_ROW);
        let wait = db.blocked(session).await;
        assert_eq!(blocker_names(&wait), blockers, "{wait:?}");
        let target = wait.target.unwrap();
        assert_eq!((target.kind, target.record.as_deref()), (LockKind::Row, Some("1")));
    }
    db.locks().await.unwrap();
    db.close().await.unwrap();
    run(server.either(&["drop owned by USER", "drop role USER"], &["drop user USER"])).await;
}

/// The failure this prevents: a query was dropped, and the next query got its result.
async fn a_dropped_probe_does_not_disturb_the_next(db: &TestDatabase) {
    db.run_all("A", &["begin", "update numbers set value = 31 where id = 1"]).await;
    for _ in 0..20 {
        tokio::select! {
            biased;
            waits = db.waits() => assert_eq!(waits.unwrap(), []),
            () = tokio::task::yield_now() => {}
        }
    }
    let _reply = db.start("B", "update numbers set value = 32 where id = 1");
    assert_eq!(blocker_names(&db.blocked("B").await), "A");
}

async fn outside_blockers_are_reported(db: &TestDatabase) {
    db.run_all("A", &["begin", LOCK_ROW]).await;
    // From here on A does not belong to the case.
    let id = db.sessions[&name("A")].pid;
    db.observer.lock().await.sessions.names.remove(&id);
    let _reply = db.start("B", LOCK_ROW);
    let wait = db.blocked("B").await;
    assert!(wait.has_outside_blocker && wait.blockers.is_empty(), "{wait:?}");
}

async fn locks_are_listed(server: Arc<TestServer>) {
    for case in numbers_in_each_namespace(server.engine()) {
        let db = open(&server, &case).await;
        db.run_all("A", &["begin", "select * from numbers where id in (1, 2) for update"]).await;
        let _reply = db.start("B", "update numbers set value = 0 where id = 2");
        db.blocked("B").await;
        let locks = db.locks().await.unwrap().locks;
        for (session, kind, record, granted) in [
            ("A", LockKind::Row, Some("1"), true),
            ("A", LockKind::Row, Some("2"), true),
            ("A", LockKind::Table, None, true),
            ("B", LockKind::Row, Some("2"), false),
        ] {
            let is_listed = locks.iter().any(|lock| {
                lock.session == name(session)
                    && lock.target.kind == kind
                    && lock.target.object == "numbers"
                    && lock.target.record.as_deref() == record
                    && lock.granted == granted
            });
            assert!(is_listed, "{session} {kind:?} {record:?}: {locks:#?}");
        }
        db.close().await.unwrap();
    }
}
