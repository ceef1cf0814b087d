//! Completes jobs, which deletes them.

use super::batch_update::claimed_rows;
use super::claimed_job::{ClaimedJob, JobOutcome};
use super::schema::SCHEMA;
use super::{BATCH, Queue, ids};
use crate::database::{AnyTransaction, Driver, Value, diagnose_schema};
use crate::error::Result;

const OPERATION: &str = "complete jobs";

/// Deletes one job if it has this claim, on engines without DELETE … RETURNING.
const DELETE_ONE: &str = "DELETE FROM hier_jobs WHERE id = ? AND claim = ? AND state = 2";

/// Returns the statement that deletes jobs with these claims and returns their IDs. Its text depends only on the number of
/// jobs, so it can be prepared.
fn delete_returning(driver: Driver, claims: &[(i64, i64)]) -> (String, Vec<Value>) {
    if driver == Driver::Postgres {
        let sql = "SELECT id FROM hier_jobs_complete(?, ?) AS done (id)";
        let (ids, claims): (Vec<i64>, Vec<i64>) = claims.iter().copied().unzip();
        return (sql.to_owned(), vec![ids.into(), claims.into()]);
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
    /// Completes these jobs, and returns the IDs of those whose claim was lost.
    ///
    /// # Cancel safety
    /// If the future is dropped, the jobs may or may not be completed.
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

    /// Deletes a job in the caller's transaction, and returns whether it had this claim.
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
        diagnose_schema(self.database(), done.map_err(SCHEMA.failed("complete a job"))).await
    }

    /// Deletes jobs, and returns the IDs of those that had these claims.
    pub(super) async fn delete(&self, claims: &[(i64, i64)]) -> Result<Vec<i64>> {
        let driver = self.database().driver();
        if driver != Driver::Mysql {
            let (sql, values) = delete_returning(driver, claims);
            return ids(&self.database().fetch(SCHEMA.failed(OPERATION), &sql, &values).await?);
        }
        // MySQL returns only the number of deleted rows. If that is not all, the jobs are deleted one by one.
        if claims.len() > 1 && self.delete_all_or_none(claims).await? {
            return Ok(claims.iter().map(|(id, _)| *id).collect());
        }
        let mut deleted = Vec::new();
        for (id, claim) in claims.iter().copied() {
            let (failed, values) = (SCHEMA.failed(OPERATION), [id.into(), claim.into()]);
            if self.database().execute(failed, DELETE_ONE, &values).await?.rows > 0 {
                deleted.push(id);
            }
        }
        Ok(deleted)
    }

    async fn delete_all_or_none(&self, claims: &[(i64, i64)]) -> Result<bool> {
        let sql = format!("DELETE j {}", claimed_rows(Driver::Mysql, claims));
        let done = self.database().send(async |mut lent| {
            let mut connection = lent.connection();
            let deleted = connection.begin_packet(&sql).await.map_err(SCHEMA.failed(OPERATION))?;
            let is_all = deleted.changed == claims.len() as u64;
            let end = if is_all { "COMMIT" } else { "ROLLBACK" };
            connection.run(end).await.map_err(SCHEMA.failed(OPERATION))?;
            Ok((is_all, lent))
        });
        done.await
    }
}
