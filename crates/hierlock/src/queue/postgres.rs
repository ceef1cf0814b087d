//! Claims and completions on PostgreSQL, as functions in the database: planned once for each connection, and
//! in the right way whatever the server believes of the table at that moment. A queue is empty most of the
//! time, and what was planned for an empty table sorts all jobs for each claim when there are many.

use super::Queue;
use super::schema::{SCHEMA, State};
use crate::database::{Kind, Row, Value};
use crate::error::Result;

/// The jobs that are claimed.
const CLAIM: &str = "WITH c AS MATERIALIZED (SELECT j.id FROM hier_jobs AS j WHERE j.queue = of_queue AND \
                     j.state = {ready} ORDER BY j.priority, j.id LIMIT most FOR UPDATE SKIP LOCKED) UPDATE \
                     hier_jobs AS j SET claim = j.claim + 1, state = {claimed}, worker = by_worker, due_ms = \
                     {now} + lease_ms WHERE j.id IN (SELECT c.id FROM c) RETURNING j.*";

/// The claim is compared in the row that is deleted: who waited for it looks at it again.
const COMPLETE: &str = "DELETE FROM hier_jobs AS j USING unnest(ids, claims) AS v (id, n) WHERE j.id = v.id AND \
                        j.claim = v.n AND j.state = {claimed} RETURNING j.id";

/// How a claim is planned.
const GUIDE: [&str; 3] = ["enable_seqscan", "enable_bitmapscan", "enable_sort"];

/// What is done, in the words of the server.
fn body(template: &str) -> String {
    template
        .replace("{ready}", &State::Ready.code().to_string())
        .replace("{claimed}", &State::Claimed.code().to_string())
        .replace("{now}", Kind::Postgres.now_ms())
}

/// What makes the functions; each may be run again.
pub(super) fn functions() -> Vec<String> {
    let guide: String = GUIDE.iter().map(|setting| format!("SET {setting} = off ")).collect();
    let function = |signature: &str, template: &str| {
        let body = body(template);
        format!(
            "CREATE OR REPLACE FUNCTION {signature} LANGUAGE plpgsql {guide}AS $$ BEGIN RETURN QUERY {body}; \
             END $$"
        )
    };
    vec![
        function(
            "hier_jobs_claim(of_queue TEXT, by_worker TEXT, most BIGINT, lease_ms BIGINT) RETURNS SETOF \
             hier_jobs",
            CLAIM,
        ),
        function(
            "hier_jobs_complete(ids BIGINT[], claims BIGINT[]) RETURNS SETOF BIGINT",
            COMPLETE,
        ),
    ]
}

impl Queue {
    /// As [`take`](super::take::take), for a claim.
    pub(super) async fn claim_on_postgres(
        &self,
        worker: &str,
        most: usize,
        lease: i64,
        columns: &str,
    ) -> Result<Vec<Row>> {
        let sql = format!("SELECT id, claim{columns} FROM hier_jobs_claim(?, ?, ?, ?)");
        let values = [self.name().into(), worker.into(), (most as i64).into(), lease.into()];
        let rows = self.database().fetch(&sql, &values).await;
        rows.map_err(SCHEMA.failed("claim jobs"))
    }

    /// The IDs of those that were these runs'.
    pub(super) async fn complete_on_postgres(&self, list: &[(i64, i64)]) -> Result<Vec<i64>> {
        const SQL: &str =
            "SELECT id FROM hier_jobs_complete(?::text::bigint[], ?::text::bigint[]) AS done (id)";
        let array = |number: fn(&(i64, i64)) -> i64| -> Value {
            let numbers: Vec<String> = list.iter().map(|pair| number(pair).to_string()).collect();
            format!("{{{}}}", numbers.join(",")).into()
        };
        let values = [array(|pair| pair.0), array(|pair| pair.1)];
        let rows = self.database().fetch(SQL, &values).await;
        rows.map_err(SCHEMA.failed("complete jobs"))?.iter().map(|row| row.int(0)).collect()
    }
}

/// The claim with these values in place of its parameters, and how it is planned: for EXPLAIN.
#[cfg(test)]
pub(super) fn explained(queue: &str, most: usize) -> (String, String) {
    let guide = GUIDE.iter().map(|setting| format!("SET LOCAL {setting} = off; ")).collect();
    let claim = body(CLAIM)
        .replace("of_queue", &format!("'{queue}'"))
        .replace("by_worker", "'w'")
        .replace("most", &most.to_string())
        .replace("lease_ms", "1000");
    (guide, claim)
}
