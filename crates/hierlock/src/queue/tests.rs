//! Tests that claims read few rows besides the claimed ones, on a table with many jobs.

use super::batch_update::{BatchUpdate, claimed_rows, planner_settings};
use super::claim::{claim_update, promote_scheduled, return_expired};
use super::schema::{CLAIMED, DEAD, READY, SCHEDULED, SELECT_READY_JOBS};
use super::{BATCH, ClaimedJob, Job, Queue};
use crate::database::{Database, Driver, Row};
use hierlock_sandbox::{Engine, Server, on_each_server};
use std::collections::BTreeMap;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// Adds 10,000 jobs to three queues, in every state, with priorities that are not in the order of age.
async fn fill(database: &Database) {
    for name in ["a", "b", "c"] {
        let queue = Queue::new(database.clone(), name).unwrap();
        queue.provision().await.unwrap();
        let job = |n: i64| {
            let job = Job::new(format!("{name} {n}")).priority(n * 7 % 13).max_attempts(1);
            if n % 4 == 1 { job.run_in(LONG) } else { job }
        };
        queue.enqueue_all((0..3334).map(job)).await.unwrap();
        queue.claim("w", 800, LONG).await.unwrap();
        for job in queue.claim("w", 50, LONG).await.unwrap() {
            job.fail("dies").await.unwrap();
        }
    }
}

/// Runs an EXPLAIN and returns its text.
async fn explain(database: &Database, sql: &str) -> String {
    let mut tx = database.begin().await.unwrap();
    let packet = tx.connection().packet(sql).await;
    let rows = packet.unwrap_or_else(|error| panic!("{sql}: {error}")).rows;
    let column = if database.driver() == Driver::Sqlite { 3 } else { 0 };
    tx.rollback().await.unwrap();
    rows.iter().map(|row| row.text(column).unwrap() + "\n").collect()
}

async fn database(engine: Engine) -> Option<(Server, Database)> {
    let server = Server::for_tests(engine)?;
    let database = Database::connect(&server.url().replacen("mariadb:", "mysql:", 1)).await;
    Some((server, database.unwrap()))
}

/// No job is due, so no row is read, although many jobs are scheduled for later.
fn updates_of_due_jobs() -> [BatchUpdate; 2] {
    [promote_scheduled("b"), return_expired("b")]
}

#[tokio::test]
async fn sqlite_finds_jobs_by_index() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("jobs.db").display());
    let database = Database::connect(&url).await.unwrap();
    fill(&database).await;
    let claim = claim_update("b", "w", 20, 1000).statement(Driver::Sqlite);
    let plan = explain(&database, &format!("EXPLAIN QUERY PLAN {claim}")).await;
    let by_index = "SEARCH j USING INDEX hier_jobs_claim (queue=? AND state=?)";
    assert!(plan.replace("COVERING INDEX", "INDEX").contains(by_index), "{plan}");
    assert!(plan.contains("SEARCH hier_jobs USING INTEGER PRIMARY KEY"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN hier_jobs"), "{plan}");
    for due in updates_of_due_jobs() {
        let sql = format!("EXPLAIN QUERY PLAN {}", due.statement(Driver::Sqlite));
        let plan = explain(&database, &sql).await;
        assert!(plan.contains("hier_jobs_due (queue=? AND state=? AND due_ms<?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}

on_each_server!(claims_read_few_rows_by_index);

async fn claims_read_few_rows_by_index(engine: Engine) {
    let Some((_server, database)) = database(engine).await else { return };
    match engine {
        Engine::Postgres => postgres(database).await,
        Engine::Mysql | Engine::Mariadb => innodb(database).await,
    }
}

async fn postgres(database: Database) {
    fill(&database).await;
    for due in updates_of_due_jobs() {
        let statement = due.statement(Driver::Postgres);
        let sql = format!("{}EXPLAIN (COSTS OFF) {statement}", planner_settings());
        let plan = explain(&database, &sql).await;
        let is_by_time = |line: &str| line.contains("Index Cond") && line.contains("due_ms");
        assert!(plan.lines().any(is_by_time) && !plan.contains("Sort"), "{plan}");
    }
    let claim = SELECT_READY_JOBS.replace("of_queue", "'b'").replace("most", "20");
    let sql = planner_settings() + "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + &claim;
    // Without statistics, and with them.
    for analyze in ["", "ANALYZE hier_jobs; "] {
        let plan = explain(&database, &format!("{analyze}{sql}")).await;
        assert!(!plan.contains("Sort") && !plan.contains("Seq Scan"), "{plan}");
        let scan = plan.lines().find(|line| line.contains("hier_jobs_claim")).expect(&plan);
        let by_index = "Index Scan using hier_jobs_claim";
        assert!(scan.contains(by_index) && scan.contains("rows=20 "), "{plan}");
    }
}

/// A queue is empty most of the time, and a plan that was cached then must also work with many jobs.
#[tokio::test]
async fn postgres_reads_few_rows_with_a_plan_for_an_empty_table() {
    let Some((server, database)) = database(Engine::Postgres).await else { return };
    let queue = Queue::new(database.clone(), "b").unwrap();
    queue.provision().await.unwrap();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(server.url()).await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE hier_jobs").execute(&pool).await.unwrap();
    let queue_of_pool = Queue::new(pool.clone(), "b").unwrap();
    // Often enough that the plan is cached.
    for _ in 0..10 {
        assert!(queue_of_pool.claim("w", 20, LONG).await.unwrap().is_empty());
        assert!(queue_of_pool.delete(&[(1, 1)]).await.unwrap().is_empty());
    }
    fill(&database).await;
    let mut tx = pool.begin().await.unwrap();
    let claim = "SELECT array_agg(id), array_agg(claim) FROM hier_jobs_claim('b', 'w', 20, 1000)";
    let claimed: (Vec<i64>, Vec<i64>) = sqlx::query_as(claim).fetch_one(&mut *tx).await.unwrap();
    let complete = "SELECT COUNT(*) FROM hier_jobs_complete($1, $2)";
    let complete = sqlx::query_scalar(complete).bind(&claimed.0).bind(&claimed.1);
    let done: i64 = complete.fetch_one(&mut *tx).await.unwrap();
    let read = "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables \
                WHERE relname = 'hier_jobs'";
    let (by_scan, by_index): (i64, i64) = sqlx::query_as(read).fetch_one(&mut *tx).await.unwrap();
    assert_eq!((claimed.0.len(), done, by_scan), (20, 20, 0));
    // 20 rows each to choose, to claim, and to complete.
    assert!((60..=80).contains(&by_index), "{by_index}");
}

/// The number of rows that were read is the server's own count of the session.
async fn innodb(database: Database) {
    let queue = Queue::new(database.clone(), "b").unwrap();
    queue.provision().await.unwrap();
    // Nearly all rows of a small table, and few rows of a large one: a list never reads rows that are not in it.
    queue.enqueue_all((0..BATCH + 1).map(|n| Job::new(n.to_string()))).await.unwrap();
    for most in [BATCH, 3] {
        for sql in list_statements(&queue.claim("w", most, LONG).await.unwrap()) {
            let read = rows_read(&database, &sql).await;
            let looked_up = read["Handler_read_key"];
            assert!((most..=2 * most).contains(&looked_up), "{read:?} by {sql}");
            assert_eq!(read.values().sum::<usize>(), looked_up, "{read:?} by {sql}");
        }
        fill(&database).await;
    }
    let claim = claim_update("b", "w", 20, 1000).select();
    assert!(claim.ends_with("FOR UPDATE SKIP LOCKED"), "{claim}");
    let plan = explain(&database, &format!("EXPLAIN FORMAT=JSON {claim}")).await;
    assert!(plan.contains("hier_jobs_claim"), "{plan}");
    assert!(!plan.contains("filesort") && !plan.contains("\"ALL\""), "{plan}");
    let [promote, return_expired] = updates_of_due_jobs().map(|update| update.select());
    for (select, least, most) in [(claim, 20, 42), (promote, 0, 2), (return_expired, 0, 2)] {
        let read: usize = rows_read(&database, &select).await.values().sum();
        assert!((least..=most).contains(&read), "{read} rows read by {select}");
    }
}

/// Runs a statement, rolls it back, and returns how many rows it read, by the kind of read.
async fn rows_read(database: &Database, sql: &str) -> BTreeMap<String, usize> {
    let mut tx = database.begin().await.unwrap();
    let mut connection = tx.connection();
    // FLUSH ends the transaction, so another one is begun.
    connection.run(&format!("FLUSH STATUS; {}", Driver::Mysql.begin())).await.unwrap();
    connection.run(sql).await.unwrap();
    let read = connection.packet("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'").await.unwrap();
    tx.rollback().await.unwrap();
    let count = |row: &Row| (row.text(0).unwrap(), row.text(1).unwrap().parse().unwrap());
    read.rows.iter().map(count).collect()
}

/// Returns all statements with a list of jobs on MySQL and MariaDB.
fn list_statements(jobs: &[ClaimedJob]) -> [String; 3] {
    let claims: Vec<(i64, i64)> = jobs.iter().map(ClaimedJob::claim).collect();
    let ids: Vec<i64> = jobs.iter().map(ClaimedJob::id).collect();
    let found = claimed_rows(Driver::Mysql, &claims);
    let change = claim_update("b", "w", 1, 1000).change(&ids);
    let change = change.trim_end_matches("; ").to_owned();
    [format!("SELECT j.id {found} FOR UPDATE"), change, format!("DELETE j {found}")]
}

#[test]
fn job_states_have_the_numbers_of_the_statements() {
    assert_eq!([READY, SCHEDULED, CLAIMED, DEAD], [0, 1, 2, 3]);
}

#[tokio::test]
async fn pauses_are_random_and_double_up_to_the_longest() {
    let pool = sqlx::PgPool::connect_lazy("postgres://nobody@localhost/x").unwrap();
    let seconds = Duration::from_secs;
    let queue = Queue::new(pool, "q").unwrap().pauses(seconds(1), seconds(5));
    for (attempt, longest) in [(1, 1), (2, 2), (3, 4), (4, 5), (u32::MAX, 5)] {
        let pauses: Vec<Duration> = (0..200).map(|_| queue.backoff.pause_after(attempt)).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        let longest = seconds(longest);
        assert!(*most <= longest && *most > longest / 2 && *least < longest / 2, "{attempt}");
    }
}
