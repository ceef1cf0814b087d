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
use super::{Lease, LeaseRequest, Leases, slots, time};
use crate::database::{Busy, DatabaseConnection, Driver, Row, RowLock, Transaction, Value, failed};
use crate::error::{Result, TableError};
use crate::handover::Interest;
use crate::retry::random;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The pause before another try lies between these.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(150)];
/// How long a lease that has expired but is locked may be on its way out.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);
/// How long an acquire whose COMMIT has failed waits for its lease to be taken back, so that a program which
/// ends with that error leaves none; after that it goes on by itself.
const UNDONE_WITHIN: Duration = Duration::from_secs(1);
/// The longest pause before a lease is tried to be taken back again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So many that are in the way are read at a time.
const BATCH: usize = 100;

impl Leases {
    /// # Cancel safety
    /// None: only to be run to its end. What nobody is interested in any more is given back.
    pub(super) async fn acquire_for(
        self,
        request: LeaseRequest,
        mut interest: Interest,
    ) -> Result<Lease> {
        let attempt = Arc::new(Attempt::new(&self, request)?);
        let request = &attempt.request;
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let holder = match attempt.run(&self).await? {
                Outcome::Gained(row) => {
                    if interest.is_lost() {
                        attempt.undo(&self, row).await;
                    }
                    return Ok(row.into_lease(&self, request, asked));
                }
                Outcome::Held(holder) => holder,
            };
            let patience = match holder.is_expired {
                true => request.patience.max(SETTLED_WITHIN),
                false => request.patience,
            };
            let left = patience.saturating_sub(begun.elapsed());
            let pause = PAUSES[0] + (PAUSES[1] - PAUSES[0]).mul_f64(random());
            let is_wanted = tokio::select! {
                biased;
                () = interest.lost() => false,
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
struct Written {
    token: i64,
    acquired_ms: i64,
}

impl Written {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self { token: row.int(0)?, acquired_ms: row.int(1)? })
    }

    fn into_lease(self, leases: &Leases, request: &LeaseRequest, asked: Instant) -> Lease {
        let LeaseRequest { target, owner, session, reason, ttl, .. } = request.clone();
        let Self { token, acquired_ms } = self;
        let acquired = time::of_ms(acquired_ms);
        let expires = time::of_ms(acquired_ms + request.ttl_ms());
        let is_expired = false;
        let info =
            LeaseInfo { token, target, owner, session, reason, acquired, expires, is_expired };
        Lease::new(leases.clone(), info, ttl, asked + ttl)
    }
}

enum Outcome {
    Gained(Written),
    Held(Box<LeaseInfo>),
}

/// The statements of an acquire.
struct Attempt {
    request: LeaseRequest,
    /// Goes along with BEGIN: the slots, and the time where it is not told by what is written.
    first: String,
    /// How many rows come back.
    rows: usize,
    /// Writes the lease unless one of another owner is in the way, live or not.
    insert: String,
    others: String,
    /// The last row that was written: COMMIT can fail, and leave it behind all the same.
    written: Mutex<Option<Written>>,
}

impl Attempt {
    fn new(leases: &Leases, request: LeaseRequest) -> Result<Self> {
        let driver = leases.database().driver();
        let now = driver.now_ms();
        let (lock, slots) = match leases.scheme() {
            Some(scheme) => slots::lock(scheme, &request.target)?,
            None => Default::default(),
        };
        let (first, rows) = match driver {
            Driver::Mysql => (format!("{lock}; SELECT {now}"), slots + 1),
            Driver::Postgres | Driver::Sqlite => (lock, slots),
        };
        let ancestors = vec!["?"; request.target.level()].join(", ");
        // Two searches rather than one with OR: each is a range of the index for every engine.
        let free =
            format!("NOT EXISTS (SELECT 1 FROM hier_leases WHERE {IS_WITHIN} AND owner <> ?)");
        let (free_above, is_above) = match request.target.level() {
            0 => Default::default(),
            _ => (
                format!(
                    " AND NOT EXISTS (SELECT 1 FROM hier_leases WHERE node IN ({ancestors}) AND owner <> ?)"
                ),
                format!(" OR node IN ({ancestors})"),
            ),
        };
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
             ORDER BY expires_ms DESC, token LIMIT {BATCH}",
            info::columns(driver, now)
        );
        Ok(Self { request, first, rows, insert, others, written: Mutex::default() })
    }

    async fn run(self: &Arc<Self>, leases: &Leases) -> Result<Outcome> {
        *self.written.lock() = None;
        let database = leases.database();
        if database.driver() == Driver::Sqlite {
            let rows = database.fetch(&self.insert, &self.values(None)).await;
            let rows = SCHEMA.checked(database, "write a lease", rows).await?;
            if let Some(row) = rows.first() {
                return Ok(Outcome::Gained(Written::read(row)?));
            }
        }
        let ran = database.run_with(&self.first, |tx, rows| {
            let attempt = self.clone();
            Box::pin(async move { attempt.run_in(tx, rows).await })
        });
        let ran = SCHEMA.diagnosed(database, ran.await).await;
        let written = *self.written.lock();
        if let (Err(_), Some(row)) = (&ran, written) {
            let (attempt, leases) = (self.clone(), leases.clone());
            let token = leases.database().tasks().token();
            let undo = tokio::spawn(async move {
                attempt.undo(&leases, row).await;
                drop(token);
            });
            let _ = timeout(UNDONE_WITHIN, undo).await;
        }
        ran
    }

    /// Removes a lease that nobody was told of; tries until its time is over, for the database may be gone.
    async fn undo(self: &Arc<Self>, leases: &Leases, row: Written) {
        let over = Instant::now() + self.request.ttl;
        let mut pause = PAUSES[0];
        while let Err(why) = self.remove_written(leases, row).await {
            tracing::warn!(token = row.token, %why, "cannot take back a lease that nobody has; trying again");
            let is_closed = matches!(why.sql_source(), Some(sqlx::Error::PoolClosed));
            if is_closed || Instant::now() >= over {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Its COMMIT may still be under way, and PostgreSQL would not wait for a row that it does not see: so the
    /// slots come first, which the transaction that wrote it has until its end. The token alone might have
    /// been given to another lease: SQLite counts anew what was rolled back.
    async fn remove_written(self: &Arc<Self>, leases: &Leases, row: Written) -> Result<()> {
        let removed = leases.database().run_with(&self.first, |tx, _| {
            let values = [row.token.into(), (&self.request.owner).into(), row.acquired_ms.into()];
            Box::pin(async move {
                let sql =
                    "DELETE FROM hier_leases WHERE token = ? AND owner = ? AND acquired_ms = ?";
                tx.execute(sql, values).await.map(drop)
            })
        });
        removed.await
    }

    async fn run_in(&self, tx: &mut Transaction, rows: Vec<Row>) -> Result<Outcome> {
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
                return Ok(Outcome::Gained(row));
            }
            let mut others = self.others(&mut tx.connection()).await?;
            if let Some(first) = others.first()
                && !first.is_expired
            {
                return Ok(Outcome::Held(Box::new(others.swap_remove(0))));
            }
            for other in others {
                if !remove(&mut tx.connection(), other.token).await? {
                    return Ok(Outcome::Held(Box::new(other)));
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
    ) -> Result<Option<Written>> {
        let (values, doing) = (self.values(now), failed("write a lease"));
        let Some(acquired_ms) = now else {
            let rows = connection.fetch(&self.insert, values).await.map_err(doing)?;
            return rows.first().map(Written::read).transpose();
        };
        let done = connection.execute(&self.insert, values).await.map_err(doing)?;
        Ok((done.rows > 0).then_some(Written { token: done.last_insert_id, acquired_ms }))
    }

    /// Leases of other owners that are in the way; what lasts longest first.
    async fn others(&self, connection: &mut DatabaseConnection<'_>) -> Result<Vec<LeaseInfo>> {
        let LeaseRequest { target, owner, .. } = &self.request;
        let values = [owner.into()].into_iter().chain(within(target)).chain(above(target));
        let rows = connection.fetch(&self.others, values).await;
        let rows = rows.map_err(failed("look for leases in the way"))?;
        rows.iter().map(LeaseInfo::read).collect()
    }
}

/// Removes a lease whose time is over, unless it is locked.
async fn remove(connection: &mut DatabaseConnection<'_>, token: i64) -> Result<bool> {
    let driver = connection.driver();
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Exclusive, Busy::Skip));
    let expired =
        format!("SELECT token FROM hier_leases WHERE token = ? AND expires_ms <= {now}{lock}");
    let doing = "remove a lease that has expired";
    let is_ours =
        !connection.fetch(&expired, [token.into()]).await.map_err(failed(doing))?.is_empty();
    if is_ours {
        let delete = "DELETE FROM hier_leases WHERE token = ?";
        connection.execute(delete, [token.into()]).await.map_err(failed(doing))?;
    }
    Ok(is_ours)
}
