//! A reader and a writer of one slot never overlap under load: lock statements run in a loop inside the server, in more
//! sessions than there are cores. A conflict that the server does not enforce (for example PostgreSQL's `FOR KEY SHARE`
//! beside `FOR UPDATE`) shows within seconds.

use crate::support::{Database, Setup, on_each_engine};
use hierlock::sql::{Dialect, Scheme, Strategy};
use hierlock::{Buckets, Claim, Hierarchy, Mode};
use hierlock_sandbox::Engine;

/// The tests lock only one slot.
const BUCKETS: u32 = 16;
const READERS: usize = 6;
const WRITERS: usize = 3;
/// The number of locks of each session. A run takes some seconds. With a mode that the server does not enforce, most runs
/// fail.
const VISITS: usize = 10_000;

on_each_engine!(readers_and_writers_never_overlap);

/// Returns the statement that creates a procedure. The procedure locks in a loop, as a reader or as a writer, and counts
/// overlaps with conflicting sessions. While a session has the lock, it also has a user-level lock of the server, by which
/// others notice it.
fn visit_procedure(engine: Engine, read_lock: &str, write_lock: &str) -> String {
    match engine {
        Engine::Postgres => format!(
            "CREATE PROCEDURE visit(times int, is_writer boolean, INOUT met int)
             LANGUAGE plpgsql AS $$
             DECLARE slot text;
             BEGIN
                 FOR i IN 1..times LOOP
                     IF is_writer THEN {write_lock}; ELSE {read_lock}; END IF;
                     IF is_writer AND pg_try_advisory_lock(1, 1) THEN
                         PERFORM count(*) FROM generate_series(1, 50);
                         PERFORM pg_advisory_unlock(1, 1);
                     ELSIF NOT is_writer AND pg_try_advisory_lock_shared(1, 1) THEN
                         PERFORM count(*) FROM generate_series(1, 50);
                         PERFORM pg_advisory_unlock_shared(1, 1);
                     ELSE
                         met := met + 1;
                     END IF;
                     COMMIT;
                 END LOOP;
             END $$"
        ),
        // User-level locks are exclusive, so only writers take one, and readers check it.
        Engine::Mysql | Engine::Mariadb => format!(
            "CREATE PROCEDURE visit(times INT, is_writer BOOLEAN, met INT)
             BEGIN
                 DECLARE slot TEXT;
                 SET @name = DATABASE();
                 WHILE times > 0 DO
                     START TRANSACTION;
                     IF is_writer THEN
                         {write_lock};
                         SET @got = GET_LOCK(@name, 0);
                         SET @got = IF(@got = 1, RELEASE_LOCK(@name), NULL);
                         SET met = met + (@got IS NULL);
                     ELSE
                         {read_lock};
                         SET met = met + (IS_FREE_LOCK(@name) = 0);
                     END IF;
                     ROLLBACK;
                     SET times = times - 1;
                 END WHILE;
                 SELECT met;
             END"
        ),
    }
}

async fn readers_and_writers_never_overlap(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    if setup.strategy == Strategy::Striped {
        database.stripe("small", BUCKETS).await;
    }
    let dialect = match setup.engine {
        Engine::Mysql => Dialect::Mysql,
        Engine::Mariadb => Dialect::Mariadb,
        Engine::Postgres => Dialect::Postgres,
    };
    // A tree of one level, so that each session locks only one slot and conflicts are frequent.
    let scheme = Scheme::new(dialect).strategy(setup.strategy).unwrap().table("small").unwrap();
    let scheme = scheme.buckets(Buckets::new(BUCKETS).unwrap());
    let scheme = scheme.hierarchy(Hierarchy::new(["user"]).unwrap());
    let lock_statement = |mode| {
        let claim = Claim { target: "u1".parse().unwrap(), mode };
        let sql = scheme.lock(&scheme.plan([claim]).unwrap());
        match setup.strategy {
            Strategy::Advisory => format!("{sql} INTO slot"),
            _ => sql.replacen(" FROM ", " INTO slot FROM ", 1),
        }
    };
    let [read_lock, write_lock] = [Mode::Shared, Mode::Exclusive].map(lock_statement);
    let procedure = visit_procedure(setup.engine, &read_lock, &write_lock);
    database.outside().await.run(&procedure).await;
    let mut tasks = Vec::new();
    for number in 0..READERS + WRITERS {
        let mut session = database.outside().await;
        if setup.engine != Engine::Postgres {
            session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        }
        let sql = format!("CALL visit({VISITS}, {}, 0)", number >= READERS);
        tasks.push(tokio::spawn(async move { session.number(&sql).await }));
    }
    let mut overlaps = 0;
    for task in tasks {
        overlaps += task.await.unwrap();
    }
    assert_eq!(overlaps, 0, "overlaps in {} visits", VISITS * (READERS + WRITERS));
}
