//! Acquiring a lease, in one transaction:
//!
//! 1. Locks the slots of the node and its ancestors, in the order of a lock plan. From then on no other acquire can write a
//!    conflicting lease.
//! 2. Inserts the lease, unless another owner has a row on the node, above it or below it. Usually this is the end: BEGIN
//!    is sent with step 1, so there are three round trips. On SQLite, which needs no slots, this statement is tried first,
//!    outside of a transaction.
//! 3. Otherwise reads those rows. If one is live, the node is not free. If all have expired, deletes them and inserts the
//!    lease.
//!
//! After step 1 no lock is waited for, so an acquire cannot be part of a deadlock. An expired lease whose row is locked
//! was checked by a transaction that has not ended, so it counts as held. (Or the row is just being deleted, so the acquire
//! tries again for a moment.)

use super::admin::remove_expired;
use super::info::{self, LeaseInfo};
use super::loss::LeaseError;
use super::node::{IS_WITHIN, above, node, within};
use super::schema::SCHEMA;
use super::{Lease, LeaseRequest, Leases};
use crate::database::{Driver, Row, Transaction, Value, time_from_ms};
use crate::error::{Result, TableError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The pause before the next attempt is random, between these.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(150);
/// How long an acquire waits for the deletion of an expired lease whose row is locked.
const REMOVAL_GRACE: Duration = Duration::from_millis(500);
/// How long an acquire whose COMMIT has failed waits for the deletion of its lease, which a task continues.
const UNDO_WAIT: Duration = Duration::from_secs(1);
const MAX_UNDO_PAUSE: Duration = Duration::from_secs(5);
const CONFLICT_BATCH: usize = 100;

impl Leases {
    /// Acquires a lease. Deletes the lease again if `cancellation` is cancelled meanwhile.
    ///
    /// # Cancel safety
    /// None: the future must be run to its end.
    pub(super) async fn acquire_for(
        self,
        request: LeaseRequest,
        cancellation: CancellationToken,
    ) -> Result<Lease> {
        let acquisition = Arc::new(Acquisition::new(self, request)?);
        let started = Instant::now();
        loop {
            let sent_at = Instant::now();
            let error = match acquisition.run().await {
                Ok(row) => {
                    if cancellation.is_cancelled() {
                        acquisition.undo(row).await;
                    }
                    return Ok(acquisition.lease(row, sent_at));
                }
                Err(error) => error,
            };
            let Some(holder) = error.lease_holder() else { return Err(error) };
            let grace = if holder.is_expired { REMOVAL_GRACE } else { Duration::ZERO };
            let left = acquisition.request.wait.max(grace).saturating_sub(started.elapsed());
            let pause = MIN_PAUSE + (MAX_PAUSE - MIN_PAUSE).mul_f64(fastrand::f64());
            let is_cancelled = tokio::select! {
                biased;
                () = cancellation.cancelled() => true,
                // The last attempt is at the end of the wait.
                () = sleep(pause.min(left)) => false,
            };
            if left.is_zero() || is_cancelled {
                return Err(error);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct NewRow {
    token: i64,
    acquired_ms: i64,
}

impl NewRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self { token: row.int(0)?, acquired_ms: row.int(1)? })
    }
}

/// The statements of an acquire.
struct Acquisition {
    leases: Leases,
    request: LeaseRequest,
    /// The statements that are sent with BEGIN: they lock the slots, and on MySQL and MariaDB read the time.
    first: String,
    /// The number of rows that `first` returns if all slots exist.
    rows: usize,
    /// Inserts the lease unless another owner has a conflicting one, live or expired.
    insert: String,
    select_conflicts: String,
}

impl Acquisition {
    fn new(leases: Leases, request: LeaseRequest) -> Result<Self> {
        let driver = leases.database.driver();
        let now = driver.now_ms();
        let (mut first, mut rows) = (String::new(), 0);
        #[cfg(feature = "_server")]
        if let Some(scheme) = super::slots::scheme(driver, &leases.hierarchy) {
            (first, rows) = super::slots::lock(&scheme, &request.target)?;
        }
        if driver == Driver::Mysql {
            first += &format!("; SELECT {now}");
            rows += 1;
        }
        // Two subqueries instead of one with OR, since every engine uses an index range for each.
        let free = |nodes: &str| {
            format!("NOT EXISTS (SELECT 1 FROM hier_leases WHERE {nodes} AND owner <> ?)")
        };
        let (mut is_free, mut is_conflict) = (free(IS_WITHIN), format!("({IS_WITHIN})"));
        if request.target.level() > 0 {
            let is_above = format!("node IN ({})", vec!["?"; request.target.level()].join(", "));
            is_free += &format!(" AND {}", free(&is_above));
            is_conflict += &format!(" OR {is_above}");
        }
        let (acquired, clock, returning) = match driver {
            Driver::Mysql => ("?", "DUAL".to_owned(), ""),
            Driver::Postgres | Driver::Sqlite => {
                ("n.now", format!("(SELECT {now} AS now) n"), " RETURNING token, acquired_ms")
            }
        };
        let insert = format!(
            "INSERT INTO hier_leases (node, path, owner, session, reason, ttl_ms, acquired_ms, expires_ms) \
             SELECT ?, ?, ?, ?, ?, ?, {acquired}, {acquired} + ? FROM {clock} \
             WHERE {is_free}{returning}"
        );
        let select_conflicts = format!(
            "SELECT {} FROM hier_leases WHERE owner <> ? AND ({is_conflict}) \
             ORDER BY expires_ms DESC, token LIMIT {CONFLICT_BATCH}",
            info::columns(driver, now)
        );
        Ok(Self { leases, request, first, rows, insert, select_conflicts })
    }

    /// Returns the lease of a new row. `sent_at` is the time before the statement, by the local monotonic clock.
    fn lease(&self, row: NewRow, sent_at: Instant) -> Lease {
        let LeaseRequest { target, owner, session, reason, ttl, .. } = self.request.clone();
        let info = LeaseInfo {
            token: row.token,
            target,
            owner,
            session,
            reason,
            acquired: time_from_ms(row.acquired_ms),
            expires: time_from_ms(row.acquired_ms + self.request.ttl_ms()),
            is_expired: false,
        };
        Lease { leases: self.leases.clone(), info, ttl, held_until: sent_at + ttl }
    }

    async fn run(self: &Arc<Self>) -> Result<NewRow> {
        let database = &self.leases.database;
        if database.driver() == Driver::Sqlite {
            let values = self.values(None);
            let rows =
                database.fetch(SCHEMA.failed("write a lease"), &self.insert, &values).await?;
            if let Some(row) = rows.first() {
                return NewRow::read(row);
            }
        }
        // The last inserted row: COMMIT can fail although the row is committed.
        let written = Mutex::new(None);
        let run = async |mut tx: Transaction, rows| {
            let ran = self.run_in(&mut tx, rows).await;
            *written.lock() = ran.as_ref().ok().copied();
            (ran, tx)
        };
        let ran = database.run((SCHEMA, &self.first), run).await;
        if let (Err(_), Some(row)) = (&ran, written.into_inner()) {
            let acquisition = self.clone();
            let undo = database.run_to_end(|_| async move { acquisition.undo(row).await });
            let _ = timeout(UNDO_WAIT, undo).await;
        }
        ran
    }

    /// Deletes a lease that was not returned to a caller. Retries until its ttl is over, since the database may be down.
    async fn undo(&self, row: NewRow) {
        let over = Instant::now() + self.request.ttl;
        let mut pause = MIN_PAUSE;
        while let Err(why) = self.delete_written(row).await {
            tracing::warn!(token = row.token, %why, "cannot delete the lease of a failed acquire; trying again");
            let is_closed = matches!(why.sql_source(), Some(sqlx::Error::PoolClosed));
            if is_closed || Instant::now() >= over {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_UNDO_PAUSE);
        }
    }

    /// Deletes a row whose COMMIT may still be running. PostgreSQL would not wait for a row that it does not see, so the
    /// slots are locked first, which the inserting transaction holds until its end. The token alone does not identify the
    /// row: SQLite reuses the numbers of rolled back rows.
    async fn delete_written(&self, row: NewRow) -> Result<()> {
        let delete = async |mut tx: Transaction, _| {
            let sql = "DELETE FROM hier_leases WHERE token = ? AND owner = ? AND acquired_ms = ?";
            let owner = &self.request.owner;
            (tx.execute(sql, [row.token.into(), owner.into(), row.acquired_ms.into()]).await, tx)
        };
        self.leases.database.run((SCHEMA, &self.first), delete).await.map(drop)
    }

    async fn run_in(&self, tx: &mut Transaction, rows: Vec<Row>) -> Result<NewRow> {
        if rows.len() != self.rows {
            return Err(TableError::NotProvisioned { schema: SCHEMA }.into());
        }
        let is_mysql = tx.connection().driver() == Driver::Mysql;
        let now = rows.last().filter(|_| is_mysql).map(|row| row.int(0)).transpose()?;
        // No other acquire can insert a conflicting lease now, so the loop ends: either no conflict is left, or one is live.
        loop {
            if let Some(row) = self.insert(tx, now).await? {
                return Ok(row);
            }
            // Live leases come first.
            for holder in self.conflicts(tx).await? {
                let (doing, token) = ("delete an expired lease", Some(holder.token));
                if !holder.is_expired || remove_expired(tx, doing, token, 1).await? == 0 {
                    let (wanted, holder) = (self.request.target.clone(), Box::new(holder));
                    return Err(LeaseError::Held { wanted, holder }.into());
                }
            }
        }
    }

    /// Returns the values of the INSERT. `now` is set on MySQL and MariaDB, where the INSERT does not return the time.
    fn values(&self, now: Option<i64>) -> Vec<Value> {
        let LeaseRequest { target, owner, session, reason, .. } = &self.request;
        let ttl_ms = self.request.ttl_ms();
        let mut values: Vec<Value> = vec![
            node(target).into(),
            target.to_string().into(),
            owner.into(),
            session.clone().into(),
            reason.clone().into(),
            ttl_ms.into(),
        ];
        values.extend(now.into_iter().flat_map(|now| [now.into(), now.into()]));
        values.push(ttl_ms.into());
        values.extend(within(target));
        values.push(owner.into());
        if target.level() > 0 {
            values.extend(above(target));
            values.push(owner.into());
        }
        values
    }

    async fn insert(&self, tx: &mut Transaction, now: Option<i64>) -> Result<Option<NewRow>> {
        let (mut connection, values) = (tx.connection(), self.values(now));
        let failed = SCHEMA.failed("write a lease");
        if let Some(acquired_ms) = now {
            let done = connection.execute(&self.insert, values).await.map_err(failed)?;
            let row = NewRow { token: done.last_insert_id, acquired_ms };
            return Ok((done.rows > 0).then_some(row));
        }
        let rows = connection.fetch(&self.insert, values).await.map_err(failed)?;
        rows.first().map(NewRow::read).transpose()
    }

    /// Returns the conflicting leases of other owners, the latest expiry first.
    async fn conflicts(&self, tx: &mut Transaction) -> Result<Vec<LeaseInfo>> {
        let LeaseRequest { target, owner, .. } = &self.request;
        let values = [owner.into()].into_iter().chain(within(target)).chain(above(target));
        let rows = tx.connection().fetch(&self.select_conflicts, values).await;
        let rows = rows.map_err(SCHEMA.failed("look for conflicting leases"))?;
        rows.iter().map(LeaseInfo::read).collect()
    }
}
