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

use super::error::LeaseError;
use super::info::{self, LeaseInfo};
use super::node::{IS_WITHIN, above, node, within};
use super::schema::SCHEMA;
use super::{Lease, LeaseRequest, Leases};
use crate::database::{
    DatabaseConnection, Driver, LockWaitPolicy, Row, RowLock, Transaction, Value, time_from_ms,
};
use crate::error::{Result, TableError};
use crate::handover::CancellationToken;
use crate::retry::random;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The pause before another try lies between these.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(150);
/// How long a lease that has expired but is locked may be on its way out.
const REMOVAL_GRACE: Duration = Duration::from_millis(500);
/// How long an acquire whose COMMIT has failed waits for its lease to be taken back, so that a program which
/// ends with that error leaves none; after that it goes on by itself.
const UNDO_WAIT: Duration = Duration::from_secs(1);
/// The longest pause before a lease is tried to be taken back again.
const MAX_UNDO_PAUSE: Duration = Duration::from_secs(5);
/// So many that are in the way are read at a time.
const CONFLICT_BATCH: usize = 100;

impl Leases {
    /// # Cancel safety
    /// None: only to be run to its end. If its caller has gone, the lease is given back.
    pub(super) async fn acquire_for(
        self,
        request: LeaseRequest,
        cancellation: CancellationToken,
    ) -> Result<Lease> {
        let acquisition = Arc::new(Acquisition::new(&self, request)?);
        let request = &acquisition.request;
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let holder = match acquisition.run(&self).await? {
                Ok(row) => {
                    if cancellation.is_cancelled() {
                        acquisition.undo(&self, row).await;
                    }
                    return Ok(row.into_lease(self, request, asked));
                }
                Err(holder) => holder,
            };
            let grace = if holder.is_expired { REMOVAL_GRACE } else { Duration::ZERO };
            let left = request.wait.max(grace).saturating_sub(begun.elapsed());
            let pause = MIN_PAUSE + (MAX_PAUSE - MIN_PAUSE).mul_f64(random());
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

/// A row that has just been written.
#[derive(Clone, Copy)]
struct NewRow {
    token: i64,
    acquired_ms: i64,
}

impl NewRow {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self { token: row.int(0)?, acquired_ms: row.int(1)? })
    }

    fn into_lease(self, leases: Leases, request: &LeaseRequest, asked: Instant) -> Lease {
        let LeaseRequest { target, owner, session, reason, ttl, .. } = request.clone();
        let Self { token, acquired_ms } = self;
        let acquired = time_from_ms(acquired_ms);
        let expires = time_from_ms(acquired_ms + request.ttl_ms());
        let is_expired = false;
        let info =
            LeaseInfo { token, target, owner, session, reason, acquired, expires, is_expired };
        Lease { leases, info, ttl, held_until: asked + ttl }
    }
}

/// The row of a new lease, or whoever is in the way.
type AcquireResult = Result<NewRow, Box<LeaseInfo>>;

/// The statements of an acquire.
struct Acquisition {
    request: LeaseRequest,
    /// Goes along with BEGIN: the slots, and the time where it is not told by what is written.
    first: String,
    /// How many rows come back.
    rows: usize,
    /// Writes the lease unless one of another owner is in the way, live or not.
    insert: String,
    others: String,
    /// The last row that was written: COMMIT can fail, and leave it behind all the same.
    written: Mutex<Option<NewRow>>,
}

impl Acquisition {
    fn new(leases: &Leases, request: LeaseRequest) -> Result<Self> {
        let driver = leases.database().driver();
        let now = driver.now_ms();
        let (lock, slots) = leases.0.slots.lock(&request.target)?;
        let (first, rows) = match driver {
            Driver::Mysql => (format!("{lock}; SELECT {now}"), slots + 1),
            Driver::Postgres | Driver::Sqlite => (lock, slots),
        };
        let ancestors = vec!["?"; request.target.level()].join(", ");
        // Two searches rather than one with OR: each is a range of the index for every engine.
        let free =
            format!("NOT EXISTS (SELECT 1 FROM hier_leases WHERE {IS_WITHIN} AND owner <> ?)");
        let (mut free_above, mut is_above) = (String::new(), String::new());
        if !ancestors.is_empty() {
            is_above = format!(" OR node IN ({ancestors})");
            free_above = format!(
                " AND NOT EXISTS (SELECT 1 FROM hier_leases WHERE node IN ({ancestors}) AND owner <> ?)"
            );
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
             WHERE {free}{free_above}{returning}"
        );
        let others = format!(
            "SELECT {} FROM hier_leases WHERE owner <> ? AND (({IS_WITHIN}){is_above}) \
             ORDER BY expires_ms DESC, token LIMIT {CONFLICT_BATCH}",
            info::columns(driver, now)
        );
        Ok(Self { request, first, rows, insert, others, written: Mutex::default() })
    }

    async fn run(self: &Arc<Self>, leases: &Leases) -> Result<AcquireResult> {
        *self.written.lock() = None;
        let database = leases.database();
        if database.driver() == Driver::Sqlite {
            let values = self.values(None);
            let rows = SCHEMA.fetch(database, "write a lease", &self.insert, &values).await?;
            if let Some(row) = rows.first() {
                return NewRow::read(row).map(Ok);
            }
        }
        let ran = database.run_with(Some((SCHEMA, &self.first)), |tx, rows| {
            let acquisition = self.clone();
            Box::pin(async move { acquisition.run_in(tx, rows).await })
        });
        let ran = ran.await;
        let written = *self.written.lock();
        if let (Err(_), Some(row)) = (&ran, written) {
            let (acquisition, leases) = (self.clone(), leases.clone());
            let token = leases.database().tasks().token();
            let undo = tokio::spawn(async move {
                acquisition.undo(&leases, row).await;
                drop(token);
            });
            let _ = timeout(UNDO_WAIT, undo).await;
        }
        ran
    }

    /// Removes a lease that nobody was told of; tries until its time is over, for the database may be gone.
    async fn undo(self: &Arc<Self>, leases: &Leases, row: NewRow) {
        let over = Instant::now() + self.request.ttl;
        let mut pause = MIN_PAUSE;
        while let Err(why) = self.remove_written(leases, row).await {
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
    async fn remove_written(self: &Arc<Self>, leases: &Leases, row: NewRow) -> Result<()> {
        let removed = leases.database().run_with(Some((SCHEMA, &self.first)), |tx, _| {
            let values = [row.token.into(), (&self.request.owner).into(), row.acquired_ms.into()];
            Box::pin(async move {
                let sql =
                    "DELETE FROM hier_leases WHERE token = ? AND owner = ? AND acquired_ms = ?";
                tx.execute(sql, values).await.map(drop)
            })
        });
        removed.await
    }

    async fn run_in(&self, tx: &mut Transaction, rows: Vec<Row>) -> Result<AcquireResult> {
        if rows.len() != self.rows {
            return Err(TableError::NotProvisioned { schema: SCHEMA }.into());
        }
        let driver = tx.connection().driver();
        let now =
            rows.last().filter(|_| driver == Driver::Mysql).map(|row| row.int(0)).transpose()?;
        // Nobody can begin another one now, so sooner or later nothing is in the way, or it is live.
        loop {
            if let Some(row) = self.write(&mut tx.connection(), now).await? {
                *self.written.lock() = Some(row);
                return Ok(Ok(row));
            }
            let mut others = self.others(&mut tx.connection()).await?;
            if let Some(first) = others.first()
                && !first.is_expired
            {
                return Ok(Err(Box::new(others.swap_remove(0))));
            }
            for other in others {
                if !remove(&mut tx.connection(), other.token).await? {
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

    async fn write(
        &self,
        connection: &mut DatabaseConnection<'_>,
        now: Option<i64>,
    ) -> Result<Option<NewRow>> {
        let (values, failed) = (self.values(now), SCHEMA.failed("write a lease"));
        let Some(acquired_ms) = now else {
            let rows = connection.fetch(&self.insert, values).await.map_err(failed)?;
            return rows.first().map(NewRow::read).transpose();
        };
        let done = connection.execute(&self.insert, values).await.map_err(failed)?;
        Ok((done.rows > 0).then_some(NewRow { token: done.last_insert_id, acquired_ms }))
    }

    /// Leases of other owners that are in the way; what lasts longest first.
    async fn others(&self, connection: &mut DatabaseConnection<'_>) -> Result<Vec<LeaseInfo>> {
        let LeaseRequest { target, owner, .. } = &self.request;
        let values = [owner.into()].into_iter().chain(within(target)).chain(above(target));
        let rows = connection.fetch(&self.others, values).await;
        let rows = rows.map_err(SCHEMA.failed("look for leases in the way"))?;
        rows.iter().map(LeaseInfo::read).collect()
    }
}

/// Removes a lease whose time is over, unless it is locked.
async fn remove(connection: &mut DatabaseConnection<'_>, token: i64) -> Result<bool> {
    let driver = connection.driver();
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Exclusive, LockWaitPolicy::Skip));
    let expired =
        format!("SELECT token FROM hier_leases WHERE token = ? AND expires_ms <= {now}{lock}");
    let failed = || SCHEMA.failed("remove a lease that has expired");
    let is_ours = !connection.fetch(&expired, [token.into()]).await.map_err(failed())?.is_empty();
    if is_ours {
        let delete = "DELETE FROM hier_leases WHERE token = ?";
        connection.execute(delete, [token.into()]).await.map_err(failed())?;
    }
    Ok(is_ours)
}
