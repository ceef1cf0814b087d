//! The table of jobs, and the functions of PostgreSQL on it. Pure text.

use crate::database::{Driver, Schema};

pub(crate) const SCHEMA: Schema = Schema {
    part: "queue",
    command: "hierlock queue provision",
    steps: &[statements],
    tables: |_| &["hier_jobs"],
    functions: &["hier_jobs_claim", "hier_jobs_complete"],
    rows: |_| None,
};

/// The states of a job: the numbers in the column `state`.
pub(super) const READY: i64 = 0;
pub(super) const SCHEDULED: i64 = 1;
pub(super) const CLAIMED: i64 = 2;
pub(super) const DEAD: i64 = 3;

/// The indexes: for claims, for jobs that are due, and for unique keys.
const INDEXES: [(&str, &str, &str); 3] = [
    ("", "hier_jobs_claim", "queue, state, priority, id"),
    ("", "hier_jobs_due", "queue, state, due_ms"),
    ("UNIQUE ", "hier_jobs_unique", "queue, unique_key"),
];

fn statements(driver: Driver) -> Vec<String> {
    let (generated_key, name, key) = (driver.generated_key(), driver.text(64), driver.text(255));
    let long = if driver == Driver::Mysql { "MEDIUMTEXT" } else { "TEXT" };
    let options = driver.table_options();
    let columns = format!(
        "id {generated_key}, queue {name} NOT NULL, state BIGINT NOT NULL, priority BIGINT NOT NULL, due_ms \
         BIGINT NOT NULL, unique_key {key}, payload {long} NOT NULL, attempts BIGINT NOT NULL, \
         max_attempts BIGINT NOT NULL, claim BIGINT NOT NULL, worker {name}, last_error {long}, \
         created_ms BIGINT NOT NULL"
    );
    // MySQL has no CREATE INDEX IF NOT EXISTS, PostgreSQL and SQLite no indexes within a table.
    if driver == Driver::Mysql {
        let index = |(unique, name, columns)| format!(", {unique}KEY {name} ({columns})");
        let indexes = INDEXES.map(index).concat();
        return vec![format!("CREATE TABLE IF NOT EXISTS hier_jobs ({columns}{indexes}){options}")];
    }
    let table = format!("CREATE TABLE IF NOT EXISTS hier_jobs ({columns}){options}");
    let indexes = INDEXES.map(|(unique, name, columns)| {
        format!("CREATE {unique}INDEX IF NOT EXISTS {name} ON hier_jobs ({columns})")
    });
    let functions = if driver == Driver::Postgres { functions() } else { Vec::new() };
    [table].into_iter().chain(indexes).chain(functions).collect()
}

/// With these settings off PostgreSQL reads by index, whatever its statistics are: the table is filled and emptied all day.
pub(super) const PLANNER_SETTINGS: [&str; 3] =
    ["enable_seqscan", "enable_bitmapscan", "enable_sort"];

/// The query for the jobs to claim.
pub(super) const SELECT_READY_JOBS: &str = "SELECT j.id FROM hier_jobs AS j WHERE j.queue = of_queue AND j.state = 0 ORDER BY \
     j.priority, j.id LIMIT most FOR UPDATE SKIP LOCKED";

/// Returns the functions for claims and completions on PostgreSQL. They are planned once per connection, with the right
/// settings. A queue is empty most of the time, and a plan for an empty table sorts all jobs for each claim.
///
/// The claim uses a list of IDs, not a join: a join that was planned for an empty table may read the whole table. The
/// completion compares the claim number in the deleted row, which is checked again after a lock wait. `+ 0` prevents an
/// index lookup by state.
fn functions() -> Vec<String> {
    let off = PLANNER_SETTINGS.map(|setting| format!("SET {setting} = off ")).concat();
    // Without this, every call would be planned again, which takes as long as the call itself.
    let settings = off + "SET plan_cache_mode = force_generic_plan ";
    let function = |signature: &str, body: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION {signature} LANGUAGE plpgsql {settings}AS $$ {body} END $$"
        )
    };
    let now = Driver::Postgres.now_ms();
    vec![
        function(
            "hier_jobs_claim(of_queue TEXT, by_worker TEXT, most BIGINT, lease_ms BIGINT) RETURNS SETOF \
             hier_jobs",
            &format!(
                "DECLARE chosen BIGINT[]; BEGIN chosen := ARRAY({SELECT_READY_JOBS}); RETURN QUERY UPDATE hier_jobs AS j \
                 SET claim = j.claim + 1, state = 2, worker = by_worker, due_ms = {now} + lease_ms \
                 WHERE j.id = ANY(chosen) RETURNING j.*;"
            ),
        ),
        function(
            "hier_jobs_complete(ids BIGINT[], claims BIGINT[]) RETURNS SETOF BIGINT",
            "BEGIN RETURN QUERY DELETE FROM hier_jobs AS j WHERE j.id = ANY(ids) AND j.claim = \
             claims[array_position(ids, j.id)] AND j.state + 0 = 2 RETURNING j.id;",
        ),
    ]
}
