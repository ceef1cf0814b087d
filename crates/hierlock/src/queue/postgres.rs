//! Claims and completions on PostgreSQL, as functions in the database: planned once for each connection, and
//! in the right way whatever the server believes of the table at that moment. A queue is empty most of the
//! time, and what was planned for an empty table sorts all jobs for each claim when there are many.

use super::Queue;
use super::schema::{SCHEMA, State};
use crate::database::{Driver, Row, Value};
use crate::error::Result;

/// The jobs that are claimed.
const CHOOSE: &str = "SELECT j.id FROM hier_jobs AS j WHERE j.queue = of_queue AND j.state = {ready} ORDER BY \
                      j.priority, j.id LIMIT most FOR UPDATE SKIP LOCKED";

/// What becomes of them. By a list, not by a join: a join that was planned for an empty table may read all
/// of it.
const CLAIM: &str = "UPDATE hier_jobs AS j SET claim = j.claim + 1, state = {claimed}, worker = by_worker, \
                     due_ms = {now} + lease_ms WHERE j.id = ANY(chosen) RETURNING j.*";

/// The claim is compared in the row that is deleted: who waited for it looks at it again. `+ 0`, so that the state
/// is not looked up in an index.
const COMPLETE: &str = "DELETE FROM hier_jobs AS j WHERE j.id = ANY(ids) AND j.claim = \
                        claims[array_position(ids, j.id)] AND j.state + 0 = {claimed} RETURNING j.id";

/// What PostgreSQL believes of a table that is filled and emptied all day is old. With these off it reads by
/// index, in its order.
const GUIDE: [&str; 3] = ["enable_seqscan", "enable_bitmapscan", "enable_sort"];

/// In the words of the server.
fn words(template: &str) -> String {
    template
        .replace("{ready}", &State::Ready.code().to_string())
        .replace("{claimed}", &State::Claimed.code().to_string())
        .replace("{now}", Driver::Postgres.now_ms())
}

/// The same for the rest of a transaction.
pub(super) fn guide() -> String {
    GUIDE.iter().map(|setting| format!("SET LOCAL {setting} = off; ")).collect()
}

/// What makes the functions; each may be run again.
pub(super) fn functions() -> Vec<String> {
    let guide: String = GUIDE.iter().map(|setting| format!("SET {setting} = off ")).collect();
    // Or it would be planned anew for every call, which takes as long as the call itself.
    let guide = guide + "SET plan_cache_mode = force_generic_plan ";
    let function = |signature: &str, body: &str| {
        let body = words(body);
        format!(
            "CREATE OR REPLACE FUNCTION {signature} LANGUAGE plpgsql {guide}AS $$ {body} END $$"
        )
    };
    let claim =
        format!("DECLARE chosen BIGINT[]; BEGIN chosen := ARRAY({CHOOSE}); RETURN QUERY {CLAIM};");
    vec![
        function(
            "hier_jobs_claim(of_queue TEXT, by_worker TEXT, most BIGINT, lease_ms BIGINT) RETURNS SETOF \
             hier_jobs",
            &claim,
        ),
        function(
            "hier_jobs_complete(ids BIGINT[], claims BIGINT[]) RETURNS SETOF BIGINT",
            &format!("BEGIN RETURN QUERY {COMPLETE};"),
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
        SCHEMA.checked(self.database(), "claim jobs", rows).await
    }

    /// The IDs of those that were these runs'.
    pub(super) async fn complete_on_postgres(&self, list: &[(i64, i64)]) -> Result<Vec<i64>> {
        let rows = self.database().fetch(COMPLETE_THESE, &these(list)).await;
        let rows = SCHEMA.checked(self.database(), "complete jobs", rows).await?;
        rows.iter().map(|row| Ok(row.int(0)?)).collect()
    }
}

/// Completes [`these`]; the IDs of those that were theirs.
pub(super) const COMPLETE_THESE: &str =
    "SELECT id FROM hier_jobs_complete(?::text::bigint[], ?::text::bigint[]) AS done (id)";

/// Runs, by job and claim.
pub(super) fn these(list: &[(i64, i64)]) -> [Value; 2] {
    let array = |number: fn(&(i64, i64)) -> i64| -> Value {
        let numbers: Vec<String> = list.iter().map(|pair| number(pair).to_string()).collect();
        format!("{{{}}}", numbers.join(",")).into()
    };
    [array(|pair| pair.0), array(|pair| pair.1)]
}

/// How jobs are chosen, with these values in place of the parameters: for EXPLAIN.
#[cfg(test)]
pub(super) fn chosen(queue: &str, most: usize) -> String {
    let choose = words(CHOOSE).replace("of_queue", &format!("'{queue}'"));
    choose.replace("most", &most.to_string())
}
