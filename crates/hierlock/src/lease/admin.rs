//! Listing leases, ending those of others, removing what has expired.

use super::info::{COLUMNS, LeaseInfo, NEXT_COLUMN, columns};
use super::node::{IS_WITHIN, within};
use super::request::{check_name, check_words};
use super::schema::SCHEMA;
use super::{ForcedRelease, Leases};
use crate::database::{LockWaitPolicy, Row, RowLock, Transaction, Value, time_from_ms};
use crate::error::Result;
use crate::target::Target;

const SWEEP_BATCH: usize = 100;

/// Which leases are listed; by default all that are live.
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
    /// On this node or below it.
    pub fn within(self, target: Target) -> Self {
        Self { within: Some(target), ..self }
    }

    /// Of this owner.
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Of this session.
    pub fn session(self, session: impl Into<String>) -> Self {
        Self { session: Some(session.into()), ..self }
    }

    /// Also those whose time is over, as long as nobody has removed them.
    pub fn also_expired(self) -> Self {
        Self { also_expired: true, ..self }
    }

    /// As a condition, with the values for its places.
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
    /// Lists the leases that a filter lets through, by token.
    pub async fn list(&self, filter: LeaseFilter) -> Result<Vec<LeaseInfo>> {
        let now = self.database().driver().now_ms();
        let (condition, values) = filter.condition(now);
        let columns = columns(self.database().driver(), now);
        let sql = format!("SELECT {columns} FROM hier_leases WHERE {condition} ORDER BY token");
        let rows = self.database().fetch(SCHEMA.failed("list leases"), &sql, &values).await?;
        rows.iter().map(LeaseInfo::read).collect()
    }

    /// Releases all leases of a session, at its logout; returns how many there were.
    pub async fn release_session(&self, session: &str) -> Result<u64> {
        self.release_all(LeaseFilter::default().session(session)).await
    }

    /// Releases all leases of an owner, such as those that an earlier login has left; returns how many there were.
    pub async fn release_owner(&self, owner: &str) -> Result<u64> {
        self.release_all(LeaseFilter::default().owner(owner)).await
    }

    /// One by one: a transaction that has checked several could be deadlocked with one that releases them.
    async fn release_all(&self, filter: LeaseFilter) -> Result<u64> {
        let release = |leases: Self| async move {
            let mut released = 0;
            for lease in leases.list(filter).await? {
                released += u64::from(leases.delete_row(lease.token).await?);
            }
            Ok(released)
        };
        self.run_to_end(release).await
    }

    /// Ends somebody else's lease. Who did it and why is kept in the audit table, and told to the owner at
    /// the next [`renew`](super::Lease::renew) or [`check_in`](super::Lease::check_in). Waits for a
    /// transaction that has checked the lease. `None` if no such lease was held. Fails with
    /// [`is_usage`](crate::Error::is_usage) if the actor or the reason is missing or too long.
    pub async fn force_release(
        &self,
        token: i64,
        actor: &str,
        why: &str,
    ) -> Result<Option<LeaseInfo>> {
        check_name("actor", actor)?;
        check_words("reason for ending", why)?;
        let (actor, why) = (actor.to_owned(), why.to_owned());
        let force = |leases: Self| async move {
            let force =
                async |mut tx: Transaction, _| (force(&mut tx, token, &actor, &why).await, tx);
            leases.database().run((SCHEMA, ""), force).await
        };
        self.run_to_end(force).await
    }

    /// Lists the last forced releases, the latest first.
    pub async fn audit(&self, limit: u32) -> Result<Vec<ForcedRelease>> {
        let columns = columns(self.database().driver(), "released_ms");
        let sql = format!(
            "SELECT {columns}, actor, why, released_ms FROM hier_lease_audit \
             ORDER BY id DESC LIMIT {limit}"
        );
        let rows = self.database().fetch(SCHEMA.failed("read the audit table"), &sql, &[]).await?;
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

    /// Removes leases whose time is over, except those that a transaction has checked and not ended; returns how
    /// many. Nothing but the size of the table depends on it.
    ///
    /// # Cancel safety
    /// Dropped, some are removed and some are not.
    pub async fn sweep(&self) -> Result<u64> {
        let mut swept = 0;
        loop {
            let sweep = async |mut tx: Transaction, _| {
                let all = ("", []);
                (remove_expired(&mut tx, "sweep leases", all, SWEEP_BATCH).await, tx)
            };
            let batch = self.database().run((SCHEMA, ""), sweep).await?;
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
    let failed = || SCHEMA.failed("end a lease");
    let mut connection = tx.connection();
    let driver = connection.driver();
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Exclusive, LockWaitPolicy::Wait));
    let columns = columns(driver, now);
    let held =
        format!("SELECT {columns} FROM hier_leases WHERE token = ? AND expires_ms > {now}{lock}");
    let held = connection.fetch(&held, [token.into()]).await.map_err(failed())?;
    let Some(row) = held.first() else { return Ok(None) };
    let lease = LeaseInfo::read(row)?;
    let note = format!(
        "INSERT INTO hier_lease_audit ({COLUMNS}, actor, why, released_ms) \
         SELECT {COLUMNS}, ?, ?, {now} FROM hier_leases WHERE token = ?"
    );
    connection.execute(&note, [actor.into(), why.into(), token.into()]).await.map_err(failed())?;
    let delete = "DELETE FROM hier_leases WHERE token = ?";
    connection.execute(delete, [token.into()]).await.map_err(failed())?;
    Ok(Some(lease))
}

/// Removes leases whose time is over, of those that the condition `which` names, with its values, unless they are
/// locked; returns how many.
pub(super) async fn remove_expired(
    tx: &mut Transaction,
    doing: &'static str,
    (which, values): (&str, impl IntoIterator<Item = Value>),
    most: usize,
) -> Result<usize> {
    let mut connection = tx.connection();
    let driver = connection.driver();
    let (now, lock) = (driver.now_ms(), driver.lock(RowLock::Exclusive, LockWaitPolicy::Skip));
    let expired = format!(
        "SELECT token FROM hier_leases WHERE {which}expires_ms <= {now} ORDER BY expires_ms LIMIT {most}{lock}"
    );
    let expired = connection.fetch(&expired, values).await.map_err(SCHEMA.failed(doing))?;
    // Each by its key: InnoDB may read, and wait for, more than is in a list.
    let delete = |token| format!("DELETE FROM hier_leases WHERE token = {token}");
    let deletes =
        expired.iter().map(|row| row.int(0).map(delete)).collect::<Result<Vec<_>, _>>()?;
    if !deletes.is_empty() {
        connection.run(&deletes.join("; ")).await.map_err(SCHEMA.failed(doing))?;
    }
    Ok(deletes.len())
}
