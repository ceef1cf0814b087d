//! Sessions whose isolation level is set for the whole database or server: the toolbox works as at READ COMMITTED.

use crate::servers::TEST_LIMIT;
use crate::support::{Store, TestEngine, on_every_engine};
use hierlock::Target;
use hierlock::database::Database;
use hierlock::lease::{LeaseRequest, Leases};
use hierlock::queue::{DeadJobFilter, Job, Queue};
use hierlock_sandbox::Engine;
use sqlx::Executor as _;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;

on_every_engine! {
    jobs_are_done_once_at_repeatable_read,
    jobs_are_done_once_at_serializable,
    leases_exclude_at_repeatable_read,
    leases_exclude_at_serializable,
}

const LONG: Duration = Duration::from_secs(3600);
const CLIENTS: usize = 8;
const TURNS: usize = 5;

/// Returns a database of the program's pool, whose transactions have this level unless they set another.
async fn pool_at_level(store: &Store, level: &str) -> Option<Database> {
    let database: Database = match store.engine {
        TestEngine::Sqlite => return None,
        TestEngine::Server(Engine::Postgres) => {
            let name = store.url.rsplit_once('/').unwrap().1;
            let set =
                format!("ALTER DATABASE {name} SET default_transaction_isolation = '{level}'");
            store.run(&set).await;
            // The program's pool, because hierlock's own connections set their level themselves.
            sqlx::PgPool::connect(&store.url).await.unwrap().into()
        }
        TestEngine::Server(_) => {
            let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            let options = sqlx::mysql::MySqlPoolOptions::new().after_connect(move |c, _| {
                let set = sqlx::AssertSqlSafe(set.clone());
                Box::pin(async move { c.execute(sqlx::raw_sql(set)).await.map(drop) })
            });
            options.connect(&store.url.replacen("mariadb:", "mysql:", 1)).await.unwrap().into()
        }
    };
    let shown = match store.engine {
        TestEngine::Server(Engine::Postgres) => "SELECT current_setting('transaction_isolation')",
        TestEngine::Server(Engine::Mariadb) => "SELECT @@tx_isolation",
        _ => "SELECT @@transaction_isolation",
    };
    let shown = database.query(shown, []).await.unwrap()[0].text(0).unwrap();
    assert_eq!(shown.to_lowercase().replace('-', " "), level);
    Some(database)
}

async fn jobs_are_done_once_at_repeatable_read(store: Store) {
    jobs_are_done_once(store, "repeatable read").await;
}

async fn jobs_are_done_once_at_serializable(store: Store) {
    jobs_are_done_once(store, "serializable").await;
}

/// Many clients use all operations of a queue at once. Each claimed job is done, except every fifth, which fails
/// until it is dead; then the dead jobs are retried and done.
async fn jobs_are_done_once(store: Store, level: &str) {
    const JOBS: usize = 400;
    const DEAD: usize = JOBS / 5;
    let Some(database) = pool_at_level(&store, level).await else { return };
    let queue = Queue::new(database, "mail").unwrap().pauses(Duration::ZERO, Duration::ZERO);
    queue.provision().await.unwrap();
    let jobs = (0..JOBS).map(|number| {
        let payload = if number % 5 == 0 { "fails" } else { "works" };
        Job::new(payload).max_attempts(2)
    });
    queue.enqueue_all(jobs).await.unwrap();
    let mut done = BTreeSet::new();
    for is_first in [true, false] {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(run_client(queue.clone(), number, is_first));
        }
        // A failure ends the others, which would wait for its jobs.
        while let Some(client) = clients.join_next().await {
            for id in client.unwrap() {
                assert!(done.insert(id), "job {id} was done twice");
            }
        }
        let stats = queue.stats().await.unwrap();
        let left = [stats.ready, stats.scheduled, stats.claimed, stats.dead];
        if is_first {
            assert_eq!((done.len(), left), (JOBS - DEAD, [0, 0, 0, DEAD as u64]));
            assert!(queue.dead(1000).await.unwrap().iter().all(|dead| dead.attempts == 2));
            assert_eq!(queue.retry_dead(DeadJobFilter::All).await.unwrap(), DEAD as u64);
        } else {
            assert_eq!((done.len(), left), (JOBS, [0; 4]));
        }
    }
}

/// Runs one client until the queue is empty, and returns the IDs of its completed jobs. No call may fail.
async fn run_client(queue: Queue, number: usize, may_fail: bool) -> Vec<i64> {
    let worker = format!("w{number}");
    let mut done = Vec::new();
    loop {
        queue.promote().await.unwrap();
        let jobs = queue.claim(&worker, 2, LONG).await.unwrap();
        if jobs.is_empty() {
            let stats = queue.stats().await.unwrap();
            match stats.ready + stats.scheduled + stats.claimed {
                0 => return done,
                _ => continue,
            }
        }
        assert_eq!(queue.heartbeat(&jobs, LONG).await.unwrap(), [0; 0]);
        let (fails, works): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| may_fail && job.payload() == "fails");
        for job in fails {
            job.fail("no luck").await.unwrap();
        }
        done.extend(works.iter().map(|job| job.id()));
        assert_eq!(queue.complete_all(&works).await.unwrap(), [0; 0]);
    }
}

async fn leases_exclude_at_repeatable_read(store: Store) {
    leases_exclude(store, "repeatable read").await;
}

async fn leases_exclude_at_serializable(store: Store) {
    leases_exclude(store, "serializable").await;
}

/// A node that all clients want is held by one client at a time, with increasing tokens.
async fn leases_exclude(store: Store, level: &str) {
    let Some(database) = pool_at_level(&store, level).await else { return };
    let leases = Leases::new(database);
    leases.provision().await.unwrap();
    store.run("CREATE TABLE turns (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)").await;
    store.run("INSERT INTO turns VALUES (1, 0)").await;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(take_turns(leases.clone(), store.database.clone(), number));
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(store.number("SELECT COUNT(*) FROM hier_leases").await, 0);
}

async fn take_turns(leases: Leases, database: Database, number: usize) {
    for _ in 0..TURNS {
        let request = LeaseRequest::new(Target::user("u").unwrap(), format!("owner {number}"));
        // Waiters are not queued, so one may wait for a long time.
        let mut lease = leases.acquire(request.wait_up_to(2 * TEST_LIMIT)).await.unwrap();
        let mut tx = database.begin().await.unwrap();
        lease.check_in(&mut tx).await.unwrap();
        let token = lease.token();
        let newer = "UPDATE turns SET token = ? WHERE id = 1 AND token < ?";
        assert_eq!(tx.execute(newer, [token.into(), token.into()]).await.unwrap(), 1);
        tx.commit().await.unwrap();
        lease.renew().await.unwrap();
        assert!(lease.release().await.unwrap());
    }
}
