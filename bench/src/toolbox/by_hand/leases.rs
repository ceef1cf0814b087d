//! Leases: the slots of a resource and of those above it are locked, others are looked for, the lease is
//! written; and then it is deleted.

use super::ByHand;
use crate::toolbox::{Result, TTL};
use hierlock::{Buckets, Target};
use sqlx::{Connection as _, Row as _};

/// The lock rows of leases, a level.
const BUCKETS: u32 = 256;

/// The statements of one engine.
struct Words {
    /// Six values: level and bucket of each node.
    lock: &'static str,
    /// Six values: the owner, three nodes, the last of them again, and what comes after all below it.
    others: &'static str,
    /// Five values: node, path, owner, and the time twice.
    insert: &'static str,
    /// The token.
    delete: &'static str,
}

const MYSQL: Words = Words {
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

const POSTGRES: Words = Words {
    lock: "SELECT pg_advisory_xact_lock_shared($1, $2), pg_advisory_xact_lock_shared($3, $4), \
           pg_advisory_xact_lock($5, $6)",
    others: "SELECT owner FROM hier_leases WHERE owner <> $1 AND expires_ms > (EXTRACT(EPOCH FROM \
             clock_timestamp()) * 1000)::bigint AND (node IN ($2, $3, $4) OR (node > $5 AND node < $6))",
    insert: "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) SELECT $1, $2, $3, \
             n.now, n.now + $4, $5 FROM (SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint AS \
             now) n RETURNING token",
    delete: "DELETE FROM hier_leases WHERE token = $1",
};

const SQLITE: Words = Words {
    // A writer is alone.
    lock: "",
    others: "SELECT owner FROM hier_leases WHERE owner <> ? AND expires_ms > CAST(unixepoch('subsec') * 1000 \
             AS INTEGER) AND (node IN (?, ?, ?) OR (node > ? AND node < ?))",
    insert: "INSERT INTO hier_leases (node, path, owner, acquired_ms, expires_ms, ttl_ms) SELECT ?, ?, ?, \
             n.now, n.now + ?, ? FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now) n",
    delete: "DELETE FROM hier_leases WHERE token = ?",
};

/// A resource as the tables have it.
struct Node {
    path: String,
    /// The user, the account and the resource.
    keys: Vec<Vec<u8>>,
    own: Vec<u8>,
    after: Vec<u8>,
    slots: Vec<(i32, i32)>,
}

impl Node {
    fn new(target: &Target) -> Self {
        let above = (0..target.level()).map(|level| target.ancestor(level));
        let nodes: Vec<Target> = above.chain([target.clone()]).collect();
        let buckets = Buckets::new(BUCKETS).unwrap_or_default();
        let slot = |node: &Target| (node.level() as i32, node.bucket(buckets) as i32);
        // The IDs with their lengths, from the root.
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

/// Locks, looks for others, and comes back with the statement that writes the lease.
macro_rules! cleared {
    ($words:expr, $node:expr, $owner:expr, $tx:expr) => {{
        if !$words.lock.is_empty() {
            let lock = sqlx::query($words.lock);
            let lock = $node.slots.iter().fold(lock, |lock, slot| lock.bind(slot.0).bind(slot.1));
            lock.fetch_all(&mut *$tx).await?;
        }
        let others = sqlx::query($words.others).bind($owner);
        let others = $node.keys.iter().fold(others, |others, key| others.bind(key));
        let others = others.bind(&$node.own).bind(&$node.after).fetch_all(&mut *$tx).await?;
        if !others.is_empty() {
            return Err("somebody else has it".into());
        }
        let ttl = TTL.as_millis() as i64;
        let insert = sqlx::query($words.insert).bind(&$node.own).bind(&$node.path).bind($owner);
        insert.bind(ttl).bind(ttl)
    }};
}

impl ByHand {
    /// Leases a resource to `owner` if nobody else has it, what is above it or what is below it, and
    /// releases it.
    ///
    /// # Errors
    /// What the database says; somebody else has it.
    pub async fn lease(&self, target: &Target, owner: &str) -> Result<()> {
        let node = Node::new(target);
        match self {
            ByHand::Innodb(pool) => {
                let mut tx = pool.begin_with(super::MYSQL_BEGIN).await?;
                let done = cleared!(MYSQL, node, owner, tx).execute(&mut *tx).await?;
                tx.commit().await?;
                let token = done.last_insert_id();
                sqlx::query(MYSQL.delete).bind(token).execute(pool).await?;
            }
            ByHand::Postgres(pool) => {
                let mut tx = pool.begin().await?;
                let row = cleared!(POSTGRES, node, owner, tx).fetch_one(&mut *tx).await?;
                tx.commit().await?;
                let token: i64 = row.try_get(0)?;
                sqlx::query(POSTGRES.delete).bind(token).execute(pool).await?;
            }
            ByHand::Sqlite(pool) => {
                let mut connection = pool.acquire().await?;
                let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
                let done = cleared!(SQLITE, node, owner, tx).execute(&mut *tx).await?;
                tx.commit().await?;
                let token = done.last_insert_rowid();
                sqlx::query(SQLITE.delete).bind(token).execute(&mut *connection).await?;
            }
        }
        Ok(())
    }
}
