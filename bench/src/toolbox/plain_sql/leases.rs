//! Leases a resource and releases it: locks the slots of the resource and its ancestors, searches for conflicting leases,
//! inserts the lease, and deletes it again.

use super::PlainSql;
use crate::toolbox::{Result, TTL};
use hierlock::{Buckets, Target};
use sqlx::{Connection as _, Row as _};

/// The number of lock rows of leases on each level.
const BUCKETS: u32 = 256;

/// The statements of one engine.
struct LeaseStatements {
    /// Locks the slots. Six values: level and bucket of each node.
    lock: &'static str,
    /// Finds leases of other owners. Six values: the owner, three nodes, the last of them again, and the upper bound
    /// of its descendants.
    others: &'static str,
    /// Inserts the lease. Five values: node, path, owner, and the time to live twice.
    insert: &'static str,
    /// Deletes the lease. One value: the token.
    delete: &'static str,
}

const MYSQL: LeaseStatements = LeaseStatements {
    lock: "(SELECT 1 FROM hier_lease_slots WHERE level = ? AND bucket = ? LOCK IN SHARE MODE) UNION ALL \
           (SELECT 1 FROM hier_lease_slots WHERE level = ? AND bucket = ? LOCK IN SHARE MODE) UNION ALL \
           (SELECT 1 FROM hier_lease_slots WHERE level = ? AND bucket = ? FOR UPDATE)",
    others: "SELECT owner FROM hier_leases WHERE owner <> ? AND expires_ms > (TIMESTAMPDIFF(MICROSECOND, \
             '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000) AND (node IN (?, ?, ?) OR (node > ? AND \
             node < ?))",
    insert: "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) SELECT ?, ?, ?, \
             n.now, n.now + ?, ? FROM (SELECT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', \
             UTC_TIMESTAMP(3)) DIV 1000) AS now) n",
    delete: "DELETE FROM hier_leases WHERE token = ?",
};

const POSTGRES: LeaseStatements = LeaseStatements {
    lock: "SELECT pg_advisory_xact_lock_shared($1, $2), pg_advisory_xact_lock_shared($3, $4), \
           pg_advisory_xact_lock($5, $6)",
    others: "SELECT owner FROM hier_leases WHERE owner <> $1 AND expires_ms > (EXTRACT(EPOCH FROM \
             clock_timestamp()) * 1000)::bigint AND (node IN ($2, $3, $4) OR (node > $5 AND node < $6))",
    insert: "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) SELECT $1, $2, $3, \
             n.now, n.now + $4, $5 FROM (SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint AS \
             now) n RETURNING token",
    delete: "DELETE FROM hier_leases WHERE token = $1",
};

const SQLITE: LeaseStatements = LeaseStatements {
    // SQLite has one writer at a time.
    lock: "",
    others: "SELECT owner FROM hier_leases WHERE owner <> ? AND expires_ms > CAST(unixepoch('subsec') * 1000 \
             AS INTEGER) AND (node IN (?, ?, ?) OR (node > ? AND node < ?))",
    insert: "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) SELECT ?, ?, ?, \
             n.now, n.now + ?, ? FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now) n",
    delete: "DELETE FROM hier_leases WHERE token = ?",
};

/// A resource in the form of the tables.
struct Node {
    path: String,
    /// The keys of the user, the account and the resource.
    keys: Vec<Vec<u8>>,
    /// The key of the resource.
    own: Vec<u8>,
    /// The upper bound of the keys of its descendants.
    after: Vec<u8>,
    slots: Vec<(i32, i32)>,
}

impl Node {
    fn new(target: &Target) -> Self {
        let ancestors = (0..target.level()).map(|level| target.ancestor(level));
        let nodes: Vec<Target> = ancestors.chain([target.clone()]).collect();
        let buckets = Buckets::new(BUCKETS).unwrap_or_default();
        let slot = |node: &Target| (node.level() as i32, node.bucket(buckets) as i32);
        // The IDs with their lengths, the root first.
        let key = |node: &Target| {
            let ids = node.ids().map(|id| format!("{}:{id},", id.len()));
            ids.collect::<String>().into_bytes()
        };
        let own = key(target);
        Self {
            path: target.to_string(),
            keys: nodes.iter().map(key).collect(),
            after: [&own[..], b":"].concat(),
            own,
            slots: nodes.iter().map(slot).collect(),
        }
    }
}

/// Locks the slots, fails if another owner has a conflicting lease, and returns the statement that inserts the lease.
macro_rules! check_and_insert {
    ($sql:expr, $node:expr, $owner:expr, $tx:expr) => {{
        if !$sql.lock.is_empty() {
            let lock = sqlx::query($sql.lock);
            let lock = $node.slots.iter().fold(lock, |lock, slot| lock.bind(slot.0).bind(slot.1));
            lock.fetch_all(&mut *$tx).await?;
        }
        let others = sqlx::query($sql.others).bind($owner);
        let others = $node.keys.iter().fold(others, |others, key| others.bind(key));
        let others = others.bind(&$node.own).bind(&$node.after).fetch_all(&mut *$tx).await?;
        if !others.is_empty() {
            return Err("another owner has a lease".into());
        }
        let ttl = TTL.as_millis() as i64;
        let insert = sqlx::query($sql.insert).bind(&$node.own).bind(&$node.path).bind($owner);
        insert.bind(ttl).bind(ttl)
    }};
}

impl PlainSql {
    /// Leases a resource to `owner` and releases it.
    ///
    /// # Errors
    /// Fails if the database does, or if another owner has a lease on the resource, an ancestor or a descendant.
    pub async fn lease(&self, target: &Target, owner: &str) -> Result<()> {
        let node = Node::new(target);
        match self {
            PlainSql::Innodb(pool) => {
                let mut tx = pool.begin_with(super::MYSQL_BEGIN).await?;
                let done = check_and_insert!(MYSQL, node, owner, tx).execute(&mut *tx).await?;
                tx.commit().await?;
                let token = done.last_insert_id();
                sqlx::query(MYSQL.delete).bind(token).execute(pool).await?;
            }
            PlainSql::Postgres(pool) => {
                let mut tx = pool.begin().await?;
                let row = check_and_insert!(POSTGRES, node, owner, tx).fetch_one(&mut *tx).await?;
                tx.commit().await?;
                let token: i64 = row.try_get(0)?;
                sqlx::query(POSTGRES.delete).bind(token).execute(pool).await?;
            }
            PlainSql::Sqlite(pool) => {
                let mut connection = pool.acquire().await?;
                let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
                let done = check_and_insert!(SQLITE, node, owner, tx).execute(&mut *tx).await?;
                tx.commit().await?;
                let token = done.last_insert_rowid();
                sqlx::query(SQLITE.delete).bind(token).execute(&mut *connection).await?;
            }
        }
        Ok(())
    }
}
