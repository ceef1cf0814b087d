//! Lists leases, ends leases of others, and deletes expired ones.

use super::info::{COLUMNS, LeaseInfo, NEXT_COLUMN, columns};
use super::node::{IS_WITHIN, within};
use super::request::{check_name, check_text};
use super::schema::SCHEMA;
use super::{ForcedRelease, Leases};
use crate::database::{LockWaitPolicy, Row, RowLock, Transaction, Value, time_from_ms};
use crate::{Result, Target};

const SWEEP_BATCH: usize = 100;

/// A filter of leases; by default all live leases.
///
/// ```
/// use hierlock::Target;
/// use hierlock::lease::LeaseFilter;
///
/// let filter = LeaseFilter::default().within(Target::user("u1")?).owner("ada").also_expired();
/// # let _ = filter;
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a filter does nothing by itself"]
pub struct LeaseFilter {
    within: Option<Target>,
    owner: Option<String>,
    session: Option<String>,
    also_expired: bool,
}

impl LeaseFilter {
    setters! {
        /// Only leases on this node or below it.
        within(target: Target) => within: Some(target);
        /// Only leases of this owner.
        owner(owner: impl Into<String>) => owner: Some(owner.into());
        /// Only leases of this session.
        session(session: impl Into<String>) => session: Some(session.into());
        /// Also expired leases that are not deleted yet.
        also_expired() => also_expired: true;
    }

    /// Returns the condition for a WHERE clause, with a value for each `?` in it.
    fn condition(&self, now: &str) -> (String, Vec<Value>) {
        let (mut conditions, mut values) = (vec!["1 = 1".to_owned()], Vec::new());
        if let Some(target) = &self.within {
            conditions.push(IS_WITHIN.to_owned());
            values.extend(within(target));
        }
        for (column, name) in [("owner", &self.owner), ("session", &self.session)] {
            if let Some(name) = name {
                conditions.push(format!("{column} = ?"));
                values.push(name.into());
            }
        }
        if !self.also_expired {
            conditions.push(format!("expires_ms > {now}"));
        }
        (conditions.join(" AND "), values)
    }
}

impl Leases {
    /// Returns the leases that match a filter, sorted by token.
    pub async fn list(&self, filter: LeaseFilter) -> Result<Vec<LeaseInfo>> {
        let now = self.database.driver().now_ms();
        let (condition, values) = filter.condition(now);
        let columns = columns(self.database.driver(), now);
        let sql = format!("SELECT {columns} FROM hier_leases WHERE {condition} ORDER BY token");
        let rows = self.database.fetch(SCHEMA.failed("list leases"), &sql, &values).await?;
        rows.iter().map(LeaseInfo::read).collect()
    }

    /// Releases all leases of a session, for example at its logout, and returns their number.
    pub async fn release_session(&self, session: &str) -> Result<u64> {
        self.release_all(LeaseFilter::default().session(session)).await
    }

    /// Releases all leases of an owner, for example those of an earlier login, and returns their number.
    pub async fn release_owner(&self, owner: &str) -> Result<u64> {
        self.release_all(LeaseFilter::default().owner(owner)).await
    }

    /// Releases leases one by one, since a transaction that has checked several could deadlock with one that releases
    /// them together.
    async fn release_all(&self, filter: LeaseFilter) -> Result<u64> {
        let leases = self.clone();
        let release = async move {
            let mut released = 0;
            for lease in leases.list(filter).await? {
                released += u64::from(leases.delete_row(lease.token).await?);
            }
            Ok(released)
        };
        self.database.run_to_end(|_| release).await
    }

    /// Ends a lease of another owner. The audit table stores the actor and the reason, and the owner gets them with the
    /// error of the next [`renew`](super::Lease::renew) or [`check_in`](super::Lease::check_in). Waits for a transaction
    /// that has checked the lease. Returns `None` if the lease was not held. Fails with
    /// [`is_usage`](crate::Error::is_usage) if the actor or the reason is missing or too long.
    pub async fn force_release(
        &self,
        token: i64,
        actor: &str,
        why: &str,
    ) -> Result<Option<LeaseInfo>> {
        check_name("actor", actor)?;
        check_text("reason for ending", why)?;
        let (leases, actor, why) = (self.clone(), actor.to_owned(), why.to_owned());
        let force = async move {
            let force =
                async |mut tx: Transaction, _| (force(&mut tx, token, &actor, &why).await, tx);
            leases.database.run((SCHEMA, ""), force).await
        };
        self.database.run_to_end(|_| force).await
    }

    /// Returns the last forced releases, the latest first.
    pub async fn audit(&self, limit: u32) -> Result<Vec<ForcedRelease>> {
        let columns = columns(self.database.driver(), "released_ms");
        let sql = format!(
            "SELECT {columns}, actor, why, released_ms FROM hier_lease_audit \
             ORDER BY id DESC LIMIT {limit}"
        );
        let rows = self.database.fetch(SCHEMA.failed("read the audit table"), &sql, &[]).await?;
        let read = |row: &Row| {
            Ok(ForcedRelease {
                lease: LeaseInfo::read(row)?,
                actor: row.text(NEXT_COLUMN)?,
                why: row.text(NEXT_COLUMN + 1)?,
                released: time_from_ms(row.int(NEXT_COLUMN + 2)?),
            })
        };
        rows.iter().map(read).collect()
    }

    /// Deletes expired leases, except those that an open transaction has checked, and returns their number. It only keeps
    /// the table small; nothing else depends on it.
    ///
    /// # Cancel safety
    /// If the future is dropped, some expired leases may be left.
    pub async fn sweep(&self) -> Result<u64> {
        let mut swept = 0;
        loop {
            let sweep = async |mut tx: Transaction, _| {
                (remove_expired(&mut tx, "sweep leases", None, SWEEP_BATCH).await, tx)
            };
            let batch = self.database.run((SCHEMA, ""), sweep).await?;
            swept += batch as u64;
            if batch < SWEEP_BATCH {
                return Ok(swept);
            }
        }
    }
}

async fn force(
    tx: &mut Transaction,
    token: i64,
    actor: &str,
    why: &str,
) -> Result<Option<LeaseInfo>> {
    let failed = || SCHEMA.failed("force the release of a lease");
    let mut connection = tx.connection();
    let driver = connection.driver();
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Exclusive, LockWaitPolicy::Wait));
    let columns = columns(driver, now);
    let held =
        format!("SELECT {columns} FROM hier_leases WHERE token = ? AND expires_ms > {now}{lock}");
    let held = connection.fetch(&held, [token.into()]).await.map_err(failed())?;
    let Some(row) = held.first() else { return Ok(None) };
    let lease = LeaseInfo::read(row)?;
    let audit = format!(
        "INSERT INTO hier_lease_audit ({COLUMNS}, actor, why, released_ms) \
         SELECT {COLUMNS}, ?, ?, {now} FROM hier_leases WHERE token = ?"
    );
    connection.execute(&audit, [actor.into(), why.into(), token.into()]).await.map_err(failed())?;
    let delete = "DELETE FROM hier_leases WHERE token = ?";
    connection.execute(delete, [token.into()]).await.map_err(failed())?;
    Ok(Some(lease))
}

/// Deletes at most `limit` expired leases that are not locked, or only that of a token, and returns their number.
pub(super) async fn remove_expired(
    tx: &mut Transaction,
    doing: &'static str,
    token: Option<i64>,
    limit: usize,
) -> Result<usize> {
    let mut connection = tx.connection();
    let driver = connection.driver();
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Exclusive, LockWaitPolicy::Skip));
    let condition = if token.is_some() { "token = ? AND " } else { "" };
    let expired = format!(
        "SELECT token FROM hier_leases WHERE {condition}expires_ms <= {now} ORDER BY expires_ms LIMIT {limit}{lock}"
    );
    let expired = connection.fetch(&expired, token.map(Value::from)).await;
    let expired = expired.map_err(SCHEMA.failed(doing))?;
    // One DELETE per key: with a list of keys InnoDB may read, and wait for, other rows.
    let delete = |token| format!("DELETE FROM hier_leases WHERE token = {token}");
    let deletes =
        expired.iter().map(|row| row.int(0).map(delete)).collect::<Result<Vec<_>, _>>()?;
    if !deletes.is_empty() {
        connection.run(&deletes.join("; ")).await.map_err(SCHEMA.failed(doing))?;
    }
    Ok(deletes.len())
}
