//! Introspection of MariaDB. Its tables of waits are cached, and the cache is refreshed only after 100 ms without a
//! read, so a busy reader never sees a wait. The InnoDB status is live. With `innodb_status_output_locks` it lists up
//! to ten locks of each transaction, from which the blockers follow. Only an administrator may switch that on. Without
//! it, and beyond ten locks, the tables are read once for each wait, after the necessary pause.
//!
//! The holders of metadata locks are listed only by the plugin `metadata_lock_info`. Waiters are found in the process
//! list, and the object that they wait for in their statements.

use super::innodb_status::{self, InnodbLock, InnodbTransaction};
use super::metadata::{MetadataLock, MetadataNamespace};
use super::wait_list::WaitList;
use super::{
    IncompleteLocks, IntrospectionQuery, LockKind, LockList, LockTarget, Result, ask_all,
    if_allowed, rows_if_allowed,
};
use crate::row::{CellRow, cell, number_cell};
use crate::{Driver, StatementWords};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Switches the lock output on, for all clients.
pub const ENABLE_LOCK_OUTPUT: &str = "SET GLOBAL innodb_status_output_locks = ON";
/// Switches the lock output off.
pub const DISABLE_LOCK_OUTPUT: &str = "SET GLOBAL innodb_status_output_locks = OFF";
/// The query for whether the lock output is on: `1` if so.
pub const IS_LOCK_OUTPUT_ENABLED: &str = "SELECT @@innodb_status_output_locks";

/// The time without a read after which the tables of waits are refreshed, with a margin.
const CACHE_PAUSE: Duration = Duration::from_millis(110);

/// The maximum number of reads. Other readers of the tables may keep the cache from being refreshed.
const MAX_CACHE_READS: u32 = 8;

/// The time of the last read of the tables of waits in this process. All readers share it.
static LAST_READ: Mutex<Option<Instant>> = Mutex::const_new(None);

/// The process ids of waiters and blockers.
const LOCK_WAITS: &str = "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id \
     FROM information_schema.INNODB_LOCK_WAITS w \
     JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id \
     JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id";

/// Distinguishes the waits of a session: process id, query id, page and heap number.
type WaitKey = (i64, u64, (u64, u64), u64);

#[derive(Debug, Default)]
pub(super) struct MariadbState {
    blockers: HashMap<WaitKey, Vec<i64>>,
    pub(super) may_enable_lock_output: bool,
}

impl IntrospectionQuery<'_, '_> {
    async fn transactions(&mut self) -> Result<Vec<InnodbTransaction>> {
        Ok(parse_transactions(&self.session.cells(innodb_status::QUERY).await?))
    }

    /// Reads the status again if the lock output is off and may be switched on. Reads the indexes of the transactions.
    async fn complete_locks(
        &mut self,
        mut transactions: Vec<InnodbTransaction>,
    ) -> Result<Vec<InnodbTransaction>> {
        let is_unlisted =
            |transaction: &InnodbTransaction| transaction.count > 0 && transaction.locks.is_empty();
        if self.introspection.mariadb.may_enable_lock_output && transactions.iter().any(is_unlisted)
        {
            // Another client has switched the lock output off.
            let enabled = if_allowed(self.session.cells(ENABLE_LOCK_OUTPUT).await)?;
            self.introspection.mariadb.may_enable_lock_output = enabled.is_some();
            transactions = self.transactions().await?;
        }
        for transaction in &transactions {
            if transaction.thread.is_some_and(|pid| self.scope.has(pid)) {
                let wanted = transaction.waits.iter().map(|(lock, _)| lock);
                let locks = transaction.locks.iter().chain(wanted);
                for index in locks.filter_map(InnodbLock::index) {
                    self.introspection.dictionary.load(self.session, index).await?;
                }
            }
        }
        Ok(transactions)
    }

    pub(super) async fn mariadb_waits(&mut self) -> Result<WaitList> {
        let mut waits = WaitList::default();
        // The sessions in the scope that wait for locks outside of InnoDB, the longest wait first.
        let processes = format!(
            "SELECT ID, STATE, INFO, DB FROM information_schema.PROCESSLIST WHERE {} \
             AND (STATE LIKE 'Waiting for %lock' OR STATE = 'User lock') ORDER BY TIME_MS DESC",
            self.scope.condition("ID")
        );
        let [status, processes] = ask_all(self.session, [innodb_status::QUERY, &processes]).await?;
        let transactions = self.complete_locks(parse_transactions(&status)).await?;
        let waiting: HashSet<WaitKey> = transactions.iter().filter_map(wait_key).collect();
        self.introspection.mariadb.blockers.retain(|key, _| waiting.contains(key));
        for transaction in &transactions {
            let waiter = transaction.thread.filter(|pid| self.scope.has(*pid));
            let (Some(waiter), Some((wanted, waited))) = (waiter, &transaction.waits) else {
                continue;
            };
            let others = || transactions.iter().filter(|other| other.thread != Some(waiter));
            let is_blocker = |other: &&InnodbTransaction| {
                // Earlier waiters are blockers too; a longer wait means an earlier place in the queue.
                let is_ahead = |lock: &InnodbLock| {
                    !lock.is_waiting || other.waits.as_ref().is_some_and(|(_, at)| at > waited)
                };
                other.locks.iter().any(|lock| is_ahead(lock) && wanted.waits_for(lock))
            };
            let blockers = if others().all(|other| other.incomplete().is_none()) {
                others().filter(is_blocker).filter_map(|other| other.thread).collect()
            } else if let Some(blockers) = self.blockers(transaction, &waiting).await? {
                blockers
            } else {
                // The wait has ended.
                continue;
            };
            waits.add(waiter, wanted.wanted(&self.introspection.dictionary), blockers);
        }
        if !processes.is_empty() {
            self.metadata_waits(&processes, &mut waits).await?;
        }
        Ok(waits)
    }

    /// Returns the blockers of a transaction from the tables; None if its wait has ended. The blockers of other waits
    /// are cached, so that the tables are read once for all of them.
    async fn blockers(
        &mut self,
        transaction: &InnodbTransaction,
        waiting: &HashSet<WaitKey>,
    ) -> Result<Option<Vec<i64>>> {
        let Some(key) = wait_key(transaction) else { return Ok(None) };
        if let Some(cached) = self.introspection.mariadb.blockers.get(&key) {
            return Ok(Some(cached.clone()));
        }
        let mut last_read = LAST_READ.lock().await;
        for attempt in 1..=MAX_CACHE_READS {
            if let Some(last_read) = *last_read {
                // Earlier the server would return the old contents of the cache.
                tokio::time::sleep_until(last_read + CACHE_PAUSE * attempt).await;
            }
            let rows = self.session.cells(LOCK_WAITS).await?;
            *last_read = Some(Instant::now());
            let mut is_over = true;
            for current in self.transactions().await? {
                // A wait that has begun since may be mixed up with an earlier wait of its session.
                let Some(current_key) = wait_key(&current).filter(|key| waiting.contains(key))
                else {
                    continue;
                };
                is_over &= current_key != key;
                let blocking_rows = rows.iter().filter(|row| number_cell(row, 0) == current.thread);
                let blockers: Vec<i64> =
                    blocking_rows.filter_map(|row| number_cell(row, 1)).collect();
                if !blockers.is_empty() {
                    self.introspection.mariadb.blockers.insert(current_key, blockers);
                }
            }
            if is_over {
                return Ok(None);
            }
            if let Some(cached) = self.introspection.mariadb.blockers.get(&key) {
                return Ok(Some(cached.clone()));
            }
        }
        Ok(Some(Vec::new()))
    }

    pub(super) async fn mariadb_locks(&mut self) -> Result<LockList> {
        let transactions = self.transactions().await?;
        let transactions = self.complete_locks(transactions).await?;
        let mut list = LockList::default();
        for transaction in &transactions {
            let Some(session) = transaction.thread.filter(|pid| self.scope.has(*pid)) else {
                continue;
            };
            if let Some(reason) = transaction.incomplete() {
                let (session, reason) = (Some(session), reason.to_owned());
                list.incomplete.push(IncompleteLocks { session, reason });
            }
            for lock in &transaction.locks {
                list.locks.extend(lock.session_locks(session, &self.introspection.dictionary));
            }
        }
        for lock in self.metadata_locks().await? {
            // Every statement has locks of the other namespaces.
            if self.scope.has(lock.owner) && !matches!(lock.namespace, MetadataNamespace::Other(_))
            {
                list.locks.push(lock.session_lock());
            }
        }
        Ok(list)
    }

    async fn metadata_waits(&mut self, processes: &[CellRow], waits: &mut WaitList) -> Result<()> {
        let mut locks = self.metadata_locks().await?;
        for row in processes {
            let Some(waiter) = number_cell(row, 0).filter(|id| !waits.has(*id)) else { continue };
            let state = cell(row, 1);
            match wanted_lock(waiter, state, [cell(row, 2), cell(row, 3)], &locks) {
                Some(wanted) => {
                    wanted.add_wait(&wanted.blockers(&locks), waits);
                    // The next session may wait behind this one.
                    locks.push(wanted);
                }
                None => waits.add(waiter, target_of_state(state), []),
            }
        }
        Ok(())
    }

    /// Returns the granted metadata locks; none without the plugin.
    async fn metadata_locks(&mut self) -> Result<Vec<MetadataLock>> {
        let sql = "SELECT THREAD_ID, LOCK_TYPE, TABLE_SCHEMA, TABLE_NAME, LOCK_MODE \
                   FROM information_schema.METADATA_LOCK_INFO WHERE THREAD_ID <> CONNECTION_ID()";
        let rows = rows_if_allowed(self.session, sql).await?;
        Ok(rows.iter().filter_map(metadata_lock).collect())
    }
}

fn parse_transactions(status: &[CellRow]) -> Vec<InnodbTransaction> {
    innodb_status::transactions(innodb_status::text(status))
}

fn wait_key(transaction: &InnodbTransaction) -> Option<WaitKey> {
    let (wanted, _) = transaction.waits.as_ref()?;
    let heap = wanted.records.first().map_or(0, |record| record.heap);
    Some((transaction.thread?, transaction.query.unwrap_or(0), wanted.page, heap))
}

fn metadata_lock(row: &CellRow) -> Option<MetadataLock> {
    let (namespace, schema, name) = match (cell(row, 1), cell(row, 2), cell(row, 3)) {
        // The plugin lists the key as the schema.
        ("User lock", key, _) => (MetadataNamespace::User, "", key),
        (
            kind @ ("Schema metadata lock" | "Backup lock" | "Global read lock" | "Commit lock"),
            schema,
            name,
        ) => (MetadataNamespace::Other(kind.to_owned()), schema, name),
        (_, schema, name) => (MetadataNamespace::Object, schema, name),
    };
    let (owner, mode) = (number_cell(row, 0)?, cell(row, 4).trim_start_matches("MDL_"));
    let [schema, name, mode] = [schema, name, mode].map(str::to_owned);
    Some(MetadataLock { owner, namespace, schema, name, mode, granted: true })
}

/// Returns the metadata lock that a session waits for, from its state, statement and database. A name without a
/// database is in the session's database.
fn wanted_lock(
    waiter: i64,
    state: &str,
    [statement, schema]: [&str; 2],
    held: &[MetadataLock],
) -> Option<MetadataLock> {
    let words = StatementWords::of(Driver::Mysql, statement);
    let by_others = || held.iter().filter(|lock| lock.owner != waiter);
    let request = |lock: &MetadataLock, mode: &str| MetadataLock {
        owner: waiter,
        mode: mode.to_owned(),
        granted: false,
        ..lock.clone()
    };
    match state {
        "User lock" => {
            let mut keys = by_others().filter(|lock| lock.namespace == MetadataNamespace::User);
            let key = keys.find(|lock| statement.contains(lock.name.as_str()));
            key.map(|lock| request(lock, "SHARED_NO_WRITE"))
        }
        "Waiting for table metadata lock" => {
            let mode = wanted_mode(&words);
            let is_named = |lock: &&MetadataLock| {
                lock.namespace == MetadataNamespace::Object
                    && words.has_name(&lock.name)
                    && (lock.schema == schema || words.has_name(&lock.schema))
            };
            let requests = by_others().filter(is_named).map(|lock| request(lock, mode));
            // Of several tables, one that is blocked; preferably one whose database is named too.
            let requests = requests.filter(|request| !request.blockers(held).is_empty());
            requests.min_by_key(|request| !words.has_name(&request.schema))
        }
        "Waiting for backup lock" => {
            let is_stop = |lock: &&MetadataLock| {
                ["FTWRL", "BLOCK", "WAIT"].iter().any(|word| lock.mode.contains(word))
            };
            let backup = MetadataNamespace::Other("Backup lock".to_owned());
            let backups = || by_others().filter(|lock| lock.namespace == backup);
            let stop = backups().find(is_stop).or_else(|| backups().next());
            stop.map(|lock| request(lock, "BACKUP_DML"))
        }
        _ => None,
    }
}

/// Returns the mode of the metadata lock that a statement takes on its tables.
fn wanted_mode(words: &StatementWords) -> &'static str {
    match words.first() {
        "lock" if words.has("write") => "SHARED_NO_READ_WRITE",
        "lock" => "SHARED_READ_ONLY",
        "alter" | "drop" | "truncate" | "rename" | "create" | "optimize" | "flush" => "EXCLUSIVE",
        "insert" | "update" | "delete" | "replace" | "load" => "SHARED_WRITE",
        _ if words.has_all(&["for", "update"]) => "SHARED_WRITE",
        _ => "SHARED_READ",
    }
}

/// Returns the target for a state such as `Waiting for table level lock`.
fn target_of_state(state: &str) -> LockTarget {
    let object = state.strip_prefix("Waiting for ").unwrap_or(state);
    let kind = match object {
        "User lock" => LockKind::Advisory,
        "table level lock" => LockKind::Table,
        _ => LockKind::Metadata,
    };
    LockTarget::new(kind, object, "")
}
