//! Acquiring a lease, in one transaction:
//!
//! 1. The slots of the node and of those above it are locked, in the order of the core's plan. From here
//!    on nobody else can begin a lease that would be in the way.
//! 2. The lease is written, unless there is a row of another owner on the node, above it or below it.
//!    Mostly that was all: BEGIN goes along with 1, so it is three round trips. On SQLite, where there is
//!    nothing to lock, this one statement is tried by itself before anything else.
//! 3. Otherwise those rows are read. One that is live is the answer: not free. What has expired is
//!    removed, and the lease is written.
//!
//! Nothing that is locked is waited for after 1, so an acquire cannot be part of a deadlock. A lease that
//! has expired but is locked was checked by a transaction, which is protected until it ends: then it
//! counts as held. (Or it is just being removed; so it is looked at again for a moment.)

use super::admin::remove_expired;
use super::info::{self, LeaseInfo};
use super::loss::LeaseError;
use super::node::{IS_WITHIN, above, node, within};
use super::schema::SCHEMA;
use super::{Lease, LeaseRequest, Leases};
use crate::database::{Driver, Row, Transaction, Value, time_from_ms};
use crate::error::{Result, TableError};
use crate::handover::CancellationToken;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The pause before another try lies between these.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(150);
/// How long a lease that has expired but is locked may be on its way out.
const REMOVAL_GRACE: Duration = Duration::from_millis(500);
/// How long an acquire whose COMMIT has failed waits until its lease is taken back; a task goes on with that.
const UNDO_WAIT: Duration = Duration::from_secs(1);
const MAX_UNDO_PAUSE: Duration = Duration::from_secs(5);
const CONFLICT_BATCH: usize = 100;

impl Leases {
    /// # Cancel safety
    /// None: only to be run to its end. If its caller has gone, the lease is given back.
    pub(super) async fn acquire_for(
        self,
        request: LeaseRequest,
        cancellation: CancellationToken,
    ) -> Result<Lease> {
        let acquisition = Arc::new(Acquisition::new(self, request)?);
        let request = &acquisition.request;
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let holder = match acquisition.run().await? {
                Ok(row) => {
                    if cancellation.is_cancelled() {
                        acquisition.undo(row).await;
                    }
                    return Ok(acquisition.lease(row, asked));
                }
                Err(holder) => holder,
            };
            let grace = if holder.is_expired { REMOVAL_GRACE } else { Duration::ZERO };
            let left = request.wait.max(grace).saturating_sub(begun.elapsed());
            let pause = MIN_PAUSE + (MAX_PAUSE - MIN_PAUSE).mul_f64(fastrand::f64());
            let is_wanted = tokio::select! {
                biased;
                () = cancellation.cancelled() => false,
                // The last try is at the very end.
                () = sleep(pause.min(left)) => true,
            };
            if left.is_zero() || !is_wanted {
                return Err(LeaseError::Held { wanted: request.target.clone(), holder }.into());
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

/// The row of a new lease, or whoever is in the way.
type AcquireResult = Result<NewRow, Box<LeaseInfo>>;

/// The statements of an acquire.
struct Acquisition {
    leases: Leases,
    request: LeaseRequest,
    /// Goes along with BEGIN: the slots, and the time where it is not told by what is written.
    first: String,
    rows: usize,
    /// Writes the lease unless one of another owner is in the way, live or not.
    insert: String,
    others: String,
}

impl Acquisition {
    fn new(leases: Leases, request: LeaseRequest) -> Result<Self> {
        let driver = leases.database().driver();
        let now = driver.now_ms();
        let (mut first, mut rows) = (String::new(), 0);
        #[cfg(feature = "_server")]
        if let Some(scheme) = &leases.0.slots {
            (first, rows) = super::slots::lock(scheme, &request.target)?;
        }
        if driver == Driver::Mysql {
            first += &format!("; SELECT {now}");
            rows += 1;
        }
        // Two searches rather than one with OR: each is a range of the index for every engine.
        let free = |nodes: &str| {
            format!("NOT EXISTS (SELECT 1 FROM hier_leases WHERE {nodes} AND owner <> ?)")
        };
        let (mut is_free, mut in_the_way) = (free(IS_WITHIN), format!("({IS_WITHIN})"));
        if request.target.level() > 0 {
            let is_above = format!("node IN ({})", vec!["?"; request.target.level()].join(", "));
            is_free += &format!(" AND {}", free(&is_above));
            in_the_way += &format!(" OR {is_above}");
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
        let others = format!(
            "SELECT {} FROM hier_leases WHERE owner <> ? AND ({in_the_way}) \
             ORDER BY expires_ms DESC, token LIMIT {CONFLICT_BATCH}",
            info::columns(driver, now)
        );
        Ok(Self { leases, request, first, rows, insert, others })
    }

    /// The lease of a row that was asked for at a moment of our own clock.
    fn lease(&self, row: NewRow, asked: Instant) -> Lease {
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
        Lease { leases: self.leases.clone(), info, ttl, held_until: asked + ttl }
    }

    async fn run(self: &Arc<Self>) -> Result<AcquireResult> {
        let database = self.leases.database();
        if database.driver() == Driver::Sqlite {
            let values = self.values(None);
            let rows =
                database.fetch(SCHEMA.failed("write a lease"), &self.insert, &values).await?;
            if let Some(row) = rows.first() {
                return NewRow::read(row).map(Ok);
            }
        }
        // The last row that was written: COMMIT can fail, and leave it behind all the same.
        let written = Mutex::new(None);
        let run = async |mut tx: Transaction, rows| {
            let ran = self.run_in(&mut tx, rows).await;
            if let Ok(Ok(row)) = ran {
                *written.lock() = Some(row);
            }
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

    /// Removes a lease that nobody was told of; tries until its time is over, for the database may be gone.
    async fn undo(&self, row: NewRow) {
        let over = Instant::now() + self.request.ttl;
        let mut pause = MIN_PAUSE;
        while let Err(why) = self.remove_written(row).await {
            tracing::warn!(token = row.token, %why, "cannot take back a lease that nobody has; trying again");
            let is_closed = matches!(why.sql_source(), Some(sqlx::Error::PoolClosed));
            if is_closed || Instant::now() >= over {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_UNDO_PAUSE);
        }
    }

    /// Its COMMIT may still be under way, and PostgreSQL would not wait for a row that it does not see: so the
    /// slots come first, which the transaction that wrote it has until its end. The token alone might have
    /// been given to another lease: SQLite counts anew what was rolled back.
    async fn remove_written(&self, row: NewRow) -> Result<()> {
        let remove = async |mut tx: Transaction, _| {
            let sql = "DELETE FROM hier_leases WHERE token = ? AND owner = ? AND acquired_ms = ?";
            let owner = &self.request.owner;
            (tx.execute(sql, [row.token.into(), owner.into(), row.acquired_ms.into()]).await, tx)
        };
        self.leases.database().run((SCHEMA, &self.first), remove).await.map(drop)
    }

    async fn run_in(&self, tx: &mut Transaction, rows: Vec<Row>) -> Result<AcquireResult> {
        if rows.len() != self.rows {
            return Err(TableError::NotProvisioned { schema: SCHEMA }.into());
        }
        let is_mysql = tx.connection().driver() == Driver::Mysql;
        let now = rows.last().filter(|_| is_mysql).map(|row| row.int(0)).transpose()?;
        // Nobody can begin another one now, so sooner or later nothing is in the way, or it is live.
        loop {
            if let Some(row) = self.write(tx, now).await? {
                return Ok(Ok(row));
            }
            for other in self.others(tx).await? {
                let which = ("token = ? AND ", [other.token.into()]);
                let doing = "remove a lease that has expired";
                // Those that are live come first.
                if !other.is_expired || remove_expired(tx, doing, which, 1).await? == 0 {
                    return Ok(Err(Box::new(other)));
                }
            }
        }
    }

    /// What is written. The time is named on MySQL and MariaDB, which would not tell it.
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

    async fn write(&self, tx: &mut Transaction, now: Option<i64>) -> Result<Option<NewRow>> {
        let (mut connection, values) = (tx.connection(), self.values(now));
        let failed = SCHEMA.failed("write a lease");
        if let Some(acquired_ms) = now {
            let done = connection.execute(&self.insert, values).await.map_err(failed)?;
            return Ok(
                (done.rows > 0).then_some(NewRow { token: done.last_insert_id, acquired_ms })
            );
        }
        let rows = connection.fetch(&self.insert, values).await.map_err(failed)?;
        rows.first().map(NewRow::read).transpose()
    }

    /// Leases of other owners that are in the way; what lasts longest first.
    async fn others(&self, tx: &mut Transaction) -> Result<Vec<LeaseInfo>> {
        let LeaseRequest { target, owner, .. } = &self.request;
        let values = [owner.into()].into_iter().chain(within(target)).chain(above(target));
        let rows = tx.connection().fetch(&self.others, values).await;
        let rows = rows.map_err(SCHEMA.failed("look for leases in the way"))?;
        rows.iter().map(LeaseInfo::read).collect()
    }
}
