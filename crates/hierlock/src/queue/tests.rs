//! That a claim reads what it takes, and little else, on a table with many jobs.

use super::batch_update::{claimed_rows, planner_settings};
use super::claim::{claim_update, expired, scheduled};
use super::schema::{CHOOSE, JobState};
use super::{BATCH, ClaimedJob, Job, Queue};
use crate::database::{Database, Driver, Row};
use hierlock_sandbox::{Engine, Server};
use std::collections::BTreeMap;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

async fn filled(database: &Database) {
    Queue::new(database.clone(), "b").unwrap().provision().await.unwrap();
    fill(database).await;
}

/// 10,000 jobs: of three queues, in every state, with priorities that are not in the order of age.
async fn fill(database: &Database) {
    for name in ["a", "b", "c"] {
        let queue = Queue::new(database.clone(), name).unwrap();
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

/// The first column of all rows, as text.
async fn explained(database: &Database, sql: &str) -> String {
    let mut tx = database.begin().await.unwrap();
    let explained = tx.connection().packet(sql).await;
    let rows = explained.unwrap_or_else(|error| panic!("{sql}: {error}")).rows;
    let column = if database.driver() == Driver::Sqlite { 3 } else { 0 };
    tx.rollback().await.unwrap();
    rows.iter().map(|row| row.text(column).unwrap() + "\n").collect()
}

async fn database(engine: Engine) -> Option<(Server, Database)> {
    let server = Server::for_tests(engine)?;
    let database = Database::connect(&server.url().replacen("mariadb:", "mysql:", 1)).await;
    Some((server, database.unwrap()))
}

async fn sqlite() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("jobs.db").display());
    (directory, Database::connect(&url).await.unwrap())
}

#[tokio::test]
async fn sqlite_reads_in_the_order_of_claims() {
    let (_directory, database) = sqlite().await;
    filled(&database).await;
    let claim = claim_update("b", "w", 20, 1000).statement(Driver::Sqlite);
    let plan = explained(&database, &format!("EXPLAIN QUERY PLAN {claim}")).await;
    let by_index = "SEARCH j USING INDEX hier_jobs_claim (queue=? AND state=?)";
    assert!(plan.replace("COVERING INDEX", "INDEX").contains(by_index), "{plan}");
    assert!(plan.contains("SEARCH hier_jobs USING INTEGER PRIMARY KEY"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN hier_jobs"), "{plan}");
}

/// Nothing is due, so nothing is read, however many there are whose time has not come.
#[tokio::test]
async fn sqlite_and_postgres_look_up_what_is_due() {
    let (_directory, sqlite) = sqlite().await;
    filled(&sqlite).await;
    let postgres = database(Engine::Postgres).await;
    if let Some((_, postgres)) = &postgres {
        filled(postgres).await;
    }
    for due in [scheduled("b"), expired("b")] {
        let explain = format!("EXPLAIN QUERY PLAN {}", due.statement(Driver::Sqlite));
        let plan = explained(&sqlite, &explain).await;
        assert!(plan.contains("hier_jobs_due (queue=? AND state=? AND due_ms<?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        let Some((_, postgres)) = &postgres else { continue };
        let claim = due.statement(Driver::Postgres);
        let explain = format!("{}EXPLAIN (COSTS OFF) {claim}", planner_settings());
        let plan = explained(postgres, &explain).await;
        let is_by_time = |line: &str| line.contains("Index Cond") && line.contains("due_ms");
        assert!(plan.lines().any(is_by_time) && !plan.contains("Sort"), "{plan}");
    }
}

#[tokio::test]
async fn postgres_reads_in_the_order_of_claims() {
    let Some((_server, database)) = database(Engine::Postgres).await else { return };
    filled(&database).await;
    let claim = CHOOSE.replace("of_queue", "'b'").replace("most", "20");
    let explain = planner_settings() + "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + &claim;
    // With what it guesses of a new table, and with what it knows.
    for analyze in ["", "ANALYZE hier_jobs; "] {
        let plan = explained(&database, &format!("{analyze}{explain}")).await;
        assert!(!plan.contains("Sort") && !plan.contains("Seq Scan"), "{plan}");
        let scan = plan.lines().find(|line| line.contains("hier_jobs_claim")).expect(&plan);
        let by_index = "Index Scan using hier_jobs_claim";
        assert!(scan.contains(by_index) && scan.contains("rows=20 "), "{plan}");
    }
}

/// A queue is empty most of the time: what was planned then serves when there are many, too.
#[tokio::test]
async fn postgres_reads_little_with_a_plan_for_an_empty_table() {
    let Some((server, database)) = database(Engine::Postgres).await else { return };
    let queue = Queue::new(database.clone(), "b").unwrap();
    queue.provision().await.unwrap();
    let alone = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let alone = alone.connect(server.url()).await.unwrap();
    sqlx::raw_sql("VACUUM ANALYZE hier_jobs").execute(&alone).await.unwrap();
    let there = Queue::new(alone.clone(), "b").unwrap();
    // Often enough that it is planned for good.
    for _ in 0..10 {
        assert!(there.claim("w", 20, LONG).await.unwrap().is_empty());
        assert!(there.delete(&[(1, 1)]).await.unwrap().is_empty());
    }
    fill(&database).await;
    let mut tx = alone.begin().await.unwrap();
    let claim = "SELECT array_agg(id), array_agg(claim) FROM hier_jobs_claim('b', 'w', 20, 1000)";
    let claimed: (Vec<i64>, Vec<i64>) = sqlx::query_as(claim).fetch_one(&mut *tx).await.unwrap();
    let complete = "SELECT COUNT(*) FROM hier_jobs_complete($1, $2)";
    let complete = sqlx::query_scalar(complete).bind(&claimed.0).bind(&claimed.1);
    let done: i64 = complete.fetch_one(&mut *tx).await.unwrap();
    let read = "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables \
                WHERE relname = 'hier_jobs'";
    let (by_scan, by_index): (i64, i64) = sqlx::query_as(read).fetch_one(&mut *tx).await.unwrap();
    assert_eq!((claimed.0.len(), done, by_scan), (20, 20, 0));
    // To choose, to claim, to complete.
    assert!((60..=80).contains(&by_index), "{by_index}");
}

#[tokio::test]
async fn mysql_reads_in_the_order_of_claims() {
    innodb(Engine::Mysql).await;
}

#[tokio::test]
async fn mariadb_reads_in_the_order_of_claims() {
    innodb(Engine::Mariadb).await;
}

/// How many rows were read is what the server has counted, in the same session.
async fn innodb(engine: Engine) {
    let Some((_server, database)) = database(engine).await else { return };
    let queue = Queue::new(database.clone(), "b").unwrap();
    queue.provision().await.unwrap();
    // Nearly all there are, and few of many: a list is never a reason to look at others.
    queue.enqueue_all((0..BATCH + 1).map(|n| Job::new(n.to_string()))).await.unwrap();
    for most in [BATCH, 3] {
        for sql in by_list(&queue.claim("w", most, LONG).await.unwrap()) {
            let read = reads(&database, &sql).await;
            let looked_up = read["Handler_read_key"];
            assert!((most..=2 * most).contains(&looked_up), "{read:?} by {sql}");
            assert_eq!(read.values().sum::<usize>(), looked_up, "{read:?} by {sql}");
        }
        fill(&database).await;
    }
    let claim = claim_update("b", "w", 20, 1000).select();
    assert!(claim.ends_with("FOR UPDATE SKIP LOCKED"), "{claim}");
    let plan = explained(&database, &format!("EXPLAIN FORMAT=JSON {claim}")).await;
    assert!(plan.contains("hier_jobs_claim"), "{plan}");
    assert!(!plan.contains("filesort") && !plan.contains("\"ALL\""), "{plan}");
    for (select, least, most) in
        [(claim, 20, 42), (scheduled("b").select(), 0, 2), (expired("b").select(), 0, 2)]
    {
        let read: usize = reads(&database, &select).await.values().sum();
        assert!((least..=most).contains(&read), "{read} rows read by {select}");
    }
}

/// How a statement has read rows, and how many; what it did is undone.
async fn reads(database: &Database, sql: &str) -> BTreeMap<String, usize> {
    let mut tx = database.begin().await.unwrap();
    let mut connection = tx.connection();
    // It would end the transaction.
    connection.run(&format!("FLUSH STATUS; {}", Driver::Mysql.begin())).await.unwrap();
    connection.run(sql).await.unwrap();
    let read = connection.packet("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'").await.unwrap();
    tx.rollback().await.unwrap();
    let count = |row: &Row| (row.text(0).unwrap(), row.text(1).unwrap().parse().unwrap());
    read.rows.iter().map(count).collect()
}

/// Whatever is done with a list of jobs on MySQL and MariaDB.
fn by_list(jobs: &[ClaimedJob]) -> [String; 3] {
    let claims: Vec<(i64, i64)> = jobs.iter().map(ClaimedJob::claim).collect();
    let ids: Vec<i64> = jobs.iter().map(ClaimedJob::id).collect();
    let (_, found) = claimed_rows(Driver::Mysql, &claims);
    let change = claim_update("b", "w", 1, 1000).change(&ids);
    let change = change.trim_end_matches("; ").to_owned();
    [format!("SELECT j.id {found} FOR UPDATE"), change, format!("DELETE j {found}")]
}

#[test]
fn states_are_what_the_statements_say() {
    use JobState::{Claimed, Dead, Ready, Scheduled};
    assert_eq!([Ready, Scheduled, Claimed, Dead].map(JobState::code), [0, 1, 2, 3]);
}

#[tokio::test]
async fn pauses_are_random_and_grow_up_to_the_longest() {
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
