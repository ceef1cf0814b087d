//! What MySQL tells: its tables of locks and of waits are live, and complete.

use super::metadata::{MetadataLock, Namespace};
use super::wait_list::WaitList;
use super::{
    IntrospectionScope, LockKind, LockList, LockTarget, Question, Result, SessionLock, ask_all,
    mysql_flush,
};
use crate::row::{CellRow, cell, number_cell};

pub(super) const PERMISSION_CHECK: &str = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";

/// The connection of a transaction, in SQL.
///
/// The thread of a lock is the one that *made* it, which need not be its owner: the lock of a row just inserted is made by
/// whoever first wants it, and an update that moves a record makes all requests for it anew. But the lock on the table,
/// which every transaction takes before its rows, is made by itself and never moved.
fn owner(transaction: &str) -> String {
    format!(
        "(SELECT MAX(o.PROCESSLIST_ID) FROM performance_schema.data_locks h \
         JOIN performance_schema.threads o ON o.THREAD_ID = h.THREAD_ID \
         WHERE h.ENGINE_TRANSACTION_ID = {transaction} AND h.LOCK_TYPE = 'TABLE')"
    )
}

/// Who waits for a row or a table of InnoDB, blocker by blocker.
fn row_waits(scope: &IntrospectionScope) -> String {
    format!(
        "SELECT {} AS waiter, {} AS blocker, \
         l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, l.LOCK_MODE, l.LOCK_DATA \
         FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.data_locks l \
           ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         HAVING {}",
        owner("w.REQUESTING_ENGINE_TRANSACTION_ID"),
        owner("w.BLOCKING_ENGINE_TRANSACTION_ID"),
        scope.condition("waiter")
    )
}

/// All metadata locks on anything that a session of ours has one on, or wants one on.
fn metadata_locks(only: &str) -> String {
    format!(
        "SELECT t.PROCESSLIST_ID, m.OBJECT_TYPE, m.OBJECT_SCHEMA, m.OBJECT_NAME, m.LOCK_TYPE, \
         m.LOCK_STATUS FROM performance_schema.metadata_locks m \
         JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
         WHERE t.PROCESSLIST_ID <> CONNECTION_ID() AND {only}"
    )
}

impl Question<'_, '_> {
    pub(super) async fn mysql_waits(&mut self) -> Result<WaitList> {
        let pending = format!(
            "EXISTS (SELECT 1 FROM performance_schema.metadata_locks p \
             JOIN performance_schema.threads q ON q.THREAD_ID = p.OWNER_THREAD_ID \
             WHERE p.LOCK_STATUS = 'PENDING' AND {} \
             AND p.OBJECT_TYPE = m.OBJECT_TYPE AND p.OBJECT_SCHEMA <=> m.OBJECT_SCHEMA \
             AND p.OBJECT_NAME <=> m.OBJECT_NAME)",
            self.scope.condition("q.PROCESSLIST_ID")
        );
        // Who waits for a table of an engine without row locks; for whom, it does not tell.
        let table_level = format!(
            "SELECT PROCESSLIST_ID FROM performance_schema.threads \
             WHERE {} AND PROCESSLIST_STATE = 'Waiting for table level lock'",
            self.scope.condition("PROCESSLIST_ID")
        );
        let (rows, metadata) = (row_waits(self.scope), metadata_locks(&pending));
        let questions = [&*rows, &metadata, &table_level, &mysql_flush::waiters(self.scope)];
        let [data, metadata, states, flushes] = ask_all(self.session, questions).await?;
        let mut waits = WaitList::default();
        for row in &data {
            if let Some(waiter) = number_cell(row, 0) {
                waits.add(waiter, self.data_lock(&row[2..]).await?, number_cell(row, 1));
            }
        }
        let locks: Vec<MetadataLock> = metadata.iter().filter_map(metadata_lock).collect();
        for lock in locks.iter().filter(|lock| !lock.granted) {
            let blockers = lock.blockers(&locks);
            // Else it was granted in the meantime, or given up.
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
            "SELECT {}, l.LOCK_STATUS, l.OBJECT_SCHEMA, l.OBJECT_NAME, l.INDEX_NAME, l.LOCK_TYPE, \
             l.LOCK_MODE, l.LOCK_DATA FROM performance_schema.data_locks l",
            owner("l.ENGINE_TRANSACTION_ID")
        );
        let mut locks = Vec::new();
        for row in self.session.cells(&data).await? {
            if let Some(session) = number_cell(&row, 0).filter(|pid| self.scope.has(*pid)) {
                let target = self.data_lock(&row[2..]).await?;
                locks.push(SessionLock { session, target, granted: cell(&row, 1) == "GRANTED" });
            }
        }
        let ours = metadata_locks(&self.scope.condition("t.PROCESSLIST_ID"));
        let metadata = self.session.cells(&ours).await?;
        // Every statement has these, on everything that contains its tables.
        let is_noise = |lock: &MetadataLock| {
            matches!(lock.namespace, Namespace::Other(_)) && lock.mode == "INTENTION_EXCLUSIVE"
        };
        let metadata = metadata.iter().filter_map(metadata_lock).filter(|lock| !is_noise(lock));
        locks.extend(metadata.map(|lock| lock.session_lock()));
        Ok(LockList { locks, ..LockList::default() })
    }

    /// What a lock is on. Its columns are schema, table, index, type, mode and data.
    async fn data_lock(&mut self, row: &[Option<String>]) -> Result<LockTarget> {
        let [schema, table, index, kind, mode] = std::array::from_fn(|column| cell(row, column));
        Ok(match kind {
            "RECORD" => {
                let (index, dictionary) = ([schema, table, index], &mut self.memory.dictionary);
                dictionary.learn(self.session, index).await?;
                let record = row[5].as_deref().map(|data| match data {
                    data if data.starts_with("supremum") => data.to_owned(),
                    data => dictionary.record_of_data(index, data),
                });
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
        "TABLE" | "FUNCTION" | "PROCEDURE" | "TRIGGER" | "EVENT" => Namespace::Object,
        "USER LEVEL LOCK" => Namespace::User,
        other => Namespace::Other(other.to_owned()),
    };
    let [schema, name, mode] = [2, 3, 4].map(|column| cell(row, column).to_owned());
    let (owner, granted) = (number_cell(row, 0)?, cell(row, 5) == "GRANTED");
    Some(MetadataLock { owner, namespace, schema, name, mode, granted })
}
