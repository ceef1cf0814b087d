//! The table of jobs. Pure.

use super::postgres;
use crate::database::{Driver, Schema};

/// How its table is made.
pub(crate) const SCHEMA: Schema = Schema {
    part: "queue",
    command: "hierlock queue provision",
    steps: &[statements],
    tables: |_| &["hier_jobs"],
    functions: &["hier_jobs_claim", "hier_jobs_complete"],
    rows: |_| None,
};

/// What a job is up to, as its column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready = 0,
    Scheduled = 1,
    Claimed = 2,
    Dead = 3,
}

impl State {
    /// As it is written into a statement.
    pub(super) fn code(self) -> i64 {
        self as i64
    }
}

/// Both indexes begin with what every statement names; the first goes on in the order of claims, the
/// second in the order in which something happens to a job next.
fn statements(driver: Driver) -> Vec<String> {
    let (counted, name, key) = (driver.counted(), driver.text(64), driver.text(255));
    let long = if driver == Driver::Mysql { "MEDIUMTEXT" } else { "TEXT" };
    let options = driver.table_options();
    let columns = format!(
        "id {counted}, queue {name} NOT NULL, state BIGINT NOT NULL, priority BIGINT NOT NULL, due_ms \
         BIGINT NOT NULL, unique_key {key}, payload {long} NOT NULL, attempts BIGINT NOT NULL, \
         max_attempts BIGINT NOT NULL, claim BIGINT NOT NULL, worker {name}, last_error {long}, \
         created_ms BIGINT NOT NULL"
    );
    let indexes = [
        ("", "hier_jobs_claim", "queue, state, priority, id"),
        ("", "hier_jobs_due", "queue, state, due_ms"),
        ("UNIQUE ", "hier_jobs_unique", "queue, unique_key"),
    ];
    // MySQL has no CREATE INDEX IF NOT EXISTS, PostgreSQL and SQLite no indexes within a table.
    if driver == Driver::Mysql {
        let indexes =
            indexes.map(|(unique, name, columns)| format!(", {unique}KEY {name} ({columns})"));
        let indexes = indexes.concat();
        return vec![format!("CREATE TABLE IF NOT EXISTS hier_jobs ({columns}{indexes}){options}")];
    }
    let table = format!("CREATE TABLE IF NOT EXISTS hier_jobs ({columns}){options}");
    let indexes = indexes.map(|(unique, name, columns)| {
        format!("CREATE {unique}INDEX IF NOT EXISTS {name} ON hier_jobs ({columns})")
    });
    let functions = if driver == Driver::Postgres { postgres::functions() } else { Vec::new() };
    [table].into_iter().chain(indexes).chain(functions).collect()
}
