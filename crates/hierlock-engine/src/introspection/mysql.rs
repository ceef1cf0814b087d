//! Introspection of MySQL, whose tables of locks and waits are live and complete.

use super::metadata::{MetadataLock, MetadataNamespace};
use super::wait_list::WaitList;
use super::{
    IncompleteLocks, IntrospectionQuery, IntrospectionScope, LockKind, LockList, LockTarget,
    Result, SessionLock, ask_all, mysql_flush,
};
use crate::row::{CellRow, cell, number_cell};

/// Names all queried tables and reads no rows.
pub(super) const ACCESS_CHECK: &str = "SELECT 1 FROM performance_schema.data_lock_waits, \
     performance_schema.data_locks, performance_schema.metadata_locks WHERE 1 = 0";

/// The process ids of transactions, in SQL. Computed once per query: a queue of fifty has more than a thousand waits.
///
/// The thread of a lock is the one that *created* it, which may not be its owner: the lock on a freshly inserted row is
/// created by the first session that waits for it, and an update that moves a record recreates all lock requests on it.
/// But the table lock, which every transaction takes before its rows, is created by the owner and never moved.
const OWNERS: &str = "WITH owners AS (SELECT h.ENGINE_TRANSACTION_ID AS id, MAX(o.PROCESSLIST_ID) AS pid \
     FROM performance_schema.data_locks h \
     JOIN performance_schema.threads o ON o.THREAD_ID = h.THREAD_ID \
     WHERE h.LOCK_TYPE = 'TABLE' GROUP BY h.ENGINE_TRANSACTION_ID)";

/// Row and table waits of InnoDB, one row per blocker.
fn row_waits(scope: &IntrospectionScope) -> String {
    format!(
        "{OWNERS} SELECT r.pid, b.pid, \
         l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, l.LOCK_MODE, l.LOCK_DATA \
         FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.data_locks l \
           ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         JOIN owners r ON r.id = w.REQUESTING_ENGINE_TRANSACTION_ID \
         LEFT JOIN owners b ON b.id = w.BLOCKING_ENGINE_TRANSACTION_ID \
         WHERE {}",
        scope.condition("r.pid")
    )
}

/// All metadata locks on the objects that `condition` selects.
fn metadata_locks(condition: &str) -> String {
    format!(
        "SELECT t.PROCESSLIST_ID, m.OBJECT_TYPE, m.OBJECT_SCHEMA, m.OBJECT_NAME, m.LOCK_TYPE, \
         m.LOCK_STATUS FROM performance_schema.metadata_locks m \
         JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
         WHERE t.PROCESSLIST_ID <> CONNECTION_ID() AND {condition}"
    )
}

impl IntrospectionQuery<'_, '_> {
    pub(super) async fn mysql_waits(&mut self) -> Result<WaitList> {
        let pending = format!(
            "EXISTS (SELECT 1 FROM performance_schema.metadata_locks p \
             JOIN performance_schema.threads q ON q.THREAD_ID = p.OWNER_THREAD_ID \
             WHERE p.LOCK_STATUS = 'PENDING' AND {} \
             AND p.OBJECT_TYPE = m.OBJECT_TYPE AND p.OBJECT_SCHEMA <=> m.OBJECT_SCHEMA \
             AND p.OBJECT_NAME <=> m.OBJECT_NAME)",
            self.scope.condition("q.PROCESSLIST_ID")
        );
        // Sessions that wait for a table of an engine without row locks. Their blockers are not reported.
        let table_level = format!(
            "SELECT PROCESSLIST_ID FROM performance_schema.threads \
             WHERE {} AND PROCESSLIST_STATE = 'Waiting for table level lock'",
            self.scope.condition("PROCESSLIST_ID")
        );
        let (rows, metadata) = (row_waits(self.scope), metadata_locks(&pending));
        let queries = [&*rows, &metadata, &table_level, &mysql_flush::waiters(self.scope)];
        let [data, metadata, states, flushes] = ask_all(self.session, queries).await?;
        let mut waits = WaitList::default();
        for row in &data {
            if let Some(waiter) = number_cell(row, 0) {
                waits.add(waiter, self.data_lock(&row[2..]).await?, number_cell(row, 1));
            }
        }
        let locks: Vec<MetadataLock> = metadata.iter().filter_map(metadata_lock).collect();
        for lock in locks.iter().filter(|lock| !lock.granted) {
            let blockers = lock.blockers(&locks);
            // Without blockers the lock was granted in the meantime, or the wait has ended.
            if !blockers.is_empty() {
                lock.add_wait(&blockers, &mut waits);
            }
        }
        for waiter in states.iter().filter_map(|row| number_cell(row, 0)) {
            if !waits.has(waiter) {
                waits.add(waiter, LockTarget::new(LockKind::Table, "table level lock", ""), []);
            }
        }
        if !flushes.is_empty() {
            let open = self.session.cells(mysql_flush::OPEN_TABLES).await?;
            mysql_flush::add_waits(&flushes, &open, &mut waits);
        }
        Ok(waits)
    }

    pub(super) async fn mysql_locks(&mut self) -> Result<LockList> {
        let data = format!(
            "{OWNERS} SELECT o.pid, l.LOCK_STATUS, l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, \
             l.LOCK_TYPE, l.LOCK_MODE, l.LOCK_DATA FROM performance_schema.data_locks l \
             JOIN owners o ON o.id = l.ENGINE_TRANSACTION_ID{}",
            self.scope.max_locks.map(|limit| format!(" LIMIT {limit}")).unwrap_or_default()
        );
        let (mut locks, mut incomplete) = (Vec::new(), Vec::new());
        let rows = self.session.cells(&data).await?;
        if self.scope.max_locks == Some(rows.len()) {
            let reason = format!("only {} locks of InnoDB are listed", rows.len());
            incomplete.push(IncompleteLocks { session: None, reason });
        }
        for row in rows {
            if let Some(session) = number_cell(&row, 0).filter(|pid| self.scope.has(*pid)) {
                let target = self.data_lock(&row[2..]).await?;
                locks.push(SessionLock { session, target, granted: cell(&row, 1) == "GRANTED" });
            }
        }
        let sql = metadata_locks(&self.scope.condition("t.PROCESSLIST_ID"));
        let metadata = self.session.cells(&sql).await?;
        // Every statement has these, on all containers of its tables.
        let is_noise = |lock: &MetadataLock| {
            matches!(lock.namespace, MetadataNamespace::Other(_))
                && lock.mode == "INTENTION_EXCLUSIVE"
        };
        let metadata = metadata.iter().filter_map(metadata_lock).filter(|lock| !is_noise(lock));
        locks.extend(metadata.map(|lock| lock.session_lock()));
        Ok(LockList { locks, incomplete })
    }

    /// Returns the target of a lock. The columns are schema, table, index, type, mode and data.
    async fn data_lock(&mut self, row: &[Option<String>]) -> Result<LockTarget> {
        let [schema, table, index, kind, mode] = std::array::from_fn(|column| cell(row, column));
        Ok(match kind {
            "RECORD" => {
                let (index, dictionary) =
                    ([schema, table, index], &mut self.introspection.dictionary);
                dictionary.load(self.session, index).await?;
                let record = row[5].as_deref().map(|data| dictionary.record_of_data(index, data));
                LockTarget::of_record(index, record, mode)
            }
            "TABLE" => LockTarget::of_table(LockKind::Table, schema, table, mode),
            other => {
                let object = format!("{} {table}", other.to_lowercase());
                LockTarget::of_table(LockKind::Other, schema, &object, mode)
            }
        })
    }
}

fn metadata_lock(row: &CellRow) -> Option<MetadataLock> {
    let namespace = match cell(row, 1) {
        "TABLE" | "FUNCTION" | "PROCEDURE" | "TRIGGER" | "EVENT" => MetadataNamespace::Object,
        "USER LEVEL LOCK" => MetadataNamespace::User,
        other => MetadataNamespace::Other(other.to_owned()),
    };
    let [schema, name, mode] = [2, 3, 4].map(|column| cell(row, column).to_owned());
    let (owner, granted) = (number_cell(row, 0)?, cell(row, 5) == "GRANTED");
    Some(MetadataLock { owner, namespace, schema, name, mode, granted })
}
