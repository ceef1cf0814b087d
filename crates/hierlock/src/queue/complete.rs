//! Jobs that are done leave the table.

use super::batch_update::{claimed_rows, joined};
use super::claimed_job::{ClaimedJob, JobOutcome};
use super::schema::SCHEMA;
use super::{BATCH, Queue, ids};
use crate::database::{AnyTransaction, Driver, Value, diagnosed};
use crate::error::Result;

const DOING: &str = "complete jobs";

/// Deletes one job, if it has this claim: where a DELETE returns no rows.
const DELETE_ONE: &str = "DELETE FROM hier_jobs WHERE id = ? AND claim = ? AND state = 2";

/// Deletes jobs that have these claims, and returns their IDs. The text is the same for all lists of a length.
fn delete_returning(driver: Driver, claims: &[(i64, i64)]) -> (String, Vec<Value>) {
    if driver == Driver::Postgres {
        let sql =
            "SELECT id FROM hier_jobs_complete(?::text::bigint[], ?::text::bigint[]) AS done (id)";
        let array = |numbers: String| Value::from(format!("{{{numbers}}}"));
        let ids = array(joined(claims.iter().map(|(id, _)| id)));
        let claims = array(joined(claims.iter().map(|(_, claim)| claim)));
        return (sql.to_owned(), vec![ids, claims]);
    }
    let (ids, pairs) = (vec!["?"; claims.len()].join(","), vec!["(?,?)"; claims.len()].join(","));
    let sql = format!(
        "DELETE FROM hier_jobs WHERE id IN ({ids}) AND (id, claim) IN (VALUES {pairs}) \
         AND state = 2 RETURNING id"
    );
    let ids = claims.iter().map(|(id, _)| (*id).into());
    let pairs = claims.iter().flat_map(|(id, claim)| [(*id).into(), (*claim).into()]);
    (sql, ids.chain(pairs).collect())
}

impl Queue {
    /// Completes all these; returns the IDs of those that are no longer their worker's.
    ///
    /// # Cancel safety
    /// Dropped, they are done or not.
    pub async fn complete_all(&self, jobs: &[ClaimedJob]) -> Result<Vec<i64>> {
        let mut lost = Vec::new();
        for jobs in jobs.chunks(BATCH) {
            let claims: Vec<_> = jobs.iter().map(ClaimedJob::claim).collect();
            let done = self.delete(&claims).await?;
            for job in jobs {
                if done.contains(&job.id()) {
                    job.record(JobOutcome::Done);
                } else {
                    lost.push(job.id());
                }
            }
        }
        Ok(lost)
    }

    /// Deletes one in the caller's transaction; returns whether it was there.
    pub(super) async fn delete_in(
        &self,
        tx: &mut impl AnyTransaction,
        claim: (i64, i64),
    ) -> Result<bool> {
        let mut connection = self.connection_of(tx)?;
        let done = match connection.driver() {
            Driver::Mysql => {
                let values = [claim.0.into(), claim.1.into()];
                connection.execute(DELETE_ONE, values).await.map(|done| done.rows > 0)
            }
            driver => {
                let (sql, values) = delete_returning(driver, &[claim]);
                connection.fetch(&sql, values).await.map(|rows| !rows.is_empty())
            }
        };
        diagnosed(self.database(), done.map_err(SCHEMA.failed("complete a job"))).await
    }

    /// Returns the IDs of those that had these claims.
    pub(super) async fn delete(&self, claims: &[(i64, i64)]) -> Result<Vec<i64>> {
        let driver = self.database().driver();
        if driver != Driver::Mysql {
            let (sql, values) = delete_returning(driver, claims);
            return ids(&self.database().fetch(SCHEMA.failed(DOING), &sql, &values).await?);
        }
        // It says only how many rows were deleted. If that is not all, they are done one by one.
        if self.delete_all_or_none(claims).await? {
            return Ok(claims.iter().map(|(id, _)| *id).collect());
        }
        let mut done = Vec::new();
        for claim in claims.iter().filter(|_| claims.len() > 1) {
            if self.delete_all_or_none(std::slice::from_ref(claim)).await? {
                done.push(claim.0);
            }
        }
        Ok(done)
    }

    async fn delete_all_or_none(&self, claims: &[(i64, i64)]) -> Result<bool> {
        if let [(id, claim)] = claims {
            let values = [(*id).into(), (*claim).into()];
            let done = self.database().execute(SCHEMA.failed(DOING), DELETE_ONE, &values).await?;
            return Ok(done.rows == 1);
        }
        let (_, from) = claimed_rows(Driver::Mysql, claims);
        let sql = format!("DELETE j {from}");
        let done = self.database().send(async |mut lent| {
            let mut connection = lent.connection();
            let deleted = connection.begin_packet(&sql).await.map_err(SCHEMA.failed(DOING))?;
            let is_all = deleted.changed == claims.len() as u64;
            let end = if is_all { "COMMIT" } else { "ROLLBACK" };
            connection.run(end).await.map_err(SCHEMA.failed(DOING))?;
            Ok((is_all, lent))
        });
        done.await
    }
}
