//! What MariaDB tells. Its tables of waits sit on a cache that is renewed only when nobody has read it for 100 ms, so a
//! busy reader never sees a wait; what InnoDB says of itself is live. With `innodb_status_output_locks` it lists (up to ten
//! of) the locks of each transaction, from which follows who is in whose way. Only an administrator may switch that on;
//! else, and beyond ten, the tables are asked once for each wait, after the quiet they need.
//!
//! Of metadata locks it tells only who holds them, and that only if the plugin `metadata_lock_info` is there; who waits is
//! seen in the list of processes, and for what is seen in the statement.

use super::innodb_status::{self, InnodbLock, InnodbTransaction};
use super::metadata::{MetadataLock, Namespace};
use super::wait_list::WaitList;
use super::{
    IncompleteLocks, LockKind, LockList, LockTarget, Question, Result, ask_all, if_allowed,
};
use crate::row::{CellRow, cell, number_cell};
use crate::{Driver, StatementWords};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lists the locks of transactions from now on, for everybody.
pub const ENABLE_LOCK_OUTPUT: &str = "SET GLOBAL innodb_status_output_locks = ON";
/// Lists them no more.
pub const DISABLE_LOCK_OUTPUT: &str = "SET GLOBAL innodb_status_output_locks = OFF";
/// Asks whether they are listed: `1` if so.
pub const IS_LOCK_OUTPUT_ENABLED: &str = "SELECT @@innodb_status_output_locks";

/// How long the tables of waits must be left alone to be renewed, and a little more.
const CACHE_PAUSE: Duration = Duration::from_millis(110);

/// How often they are read in vain. Others who read them too, with less patience, keep them old.
const MAX_CACHE_READS: u32 = 8;

/// When the tables of waits were last read, by anyone in this process. Everyone has to wait for it.
static LAST_READ: Mutex<Option<Instant>> = Mutex::const_new(None);

/// The sessions of those who wait, and of those who are in the way.
const LOCK_WAITS: &str = "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id \
     FROM information_schema.INNODB_LOCK_WAITS w \
     JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id \
     JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id";

/// A wait, told from another of the same session: session, statement, page and record.
type WaitKey = (i64, u64, (u64, u64), u64);

#[derive(Debug, Default)]
pub(super) struct MariadbMemory {
    blockers: HashMap<WaitKey, Vec<i64>>,
    pub(super) may_enable_lock_output: bool,
}

impl Question<'_, '_> {
    async fn transactions(&mut self) -> Result<Vec<InnodbTransaction>> {
        Ok(read_transactions(&self.session.cells(innodb_status::QUERY).await?))
    }

    /// Asks again if the listing of locks is off and may be switched on, and learns the indexes of the transactions.
    async fn complete(
        &mut self,
        mut transactions: Vec<InnodbTransaction>,
    ) -> Result<Vec<InnodbTransaction>> {
        let is_unlisted = |it: &InnodbTransaction| it.count > 0 && it.locks.is_empty();
        if self.memory.mariadb.may_enable_lock_output && transactions.iter().any(is_unlisted) {
            // Somebody else has switched it off.
            let enabled = if_allowed(self.session.cells(ENABLE_LOCK_OUTPUT).await)?;
            self.memory.mariadb.may_enable_lock_output = enabled.is_some();
            transactions = self.transactions().await?;
        }
        for transaction in &transactions {
            if transaction.thread.is_some_and(|pid| self.scope.has(pid)) {
                let wanted = transaction.waits.iter().map(|(lock, _)| lock);
                let locks = transaction.locks.iter().chain(wanted);
                for index in locks.filter_map(InnodbLock::index) {
                    self.memory.dictionary.learn(self.session, index).await?;
                }
            }
        }
        Ok(transactions)
    }

    pub(super) async fn mariadb_waits(&mut self) -> Result<WaitList> {
        let mut waits = WaitList::default();
        // Who of ours waits for something that is not InnoDB's, those who wait longest first.
        let processes = format!(
            "SELECT ID, STATE, INFO, DB FROM information_schema.PROCESSLIST WHERE {} \
             AND (STATE LIKE 'Waiting for %lock' OR STATE = 'User lock') ORDER BY TIME_MS DESC",
            self.scope.condition("ID")
        );
        let [status, processes] = ask_all(self.session, [innodb_status::QUERY, &processes]).await?;
        let transactions = self.complete(read_transactions(&status)).await?;
        for transaction in &transactions {
            let waiter = transaction.thread.filter(|pid| self.scope.has(*pid));
            let (Some(waiter), Some((wanted, waited))) = (waiter, &transaction.waits) else {
                continue;
            };
            let others = || transactions.iter().filter(|other| other.thread != Some(waiter));
            let is_in_way = |other: &&InnodbTransaction| {
                // Who waits in front is in the way too; the longer, the further in front.
                let is_in_front = |lock: &InnodbLock| {
                    !lock.is_waiting || other.waits.as_ref().is_some_and(|(_, at)| at > waited)
                };
                other.locks.iter().any(|lock| is_in_front(lock) && wanted.waits_for(lock))
            };
            let blockers = if others().all(|other| other.incomplete().is_none()) {
                others().filter(is_in_way).filter_map(|other| other.thread).collect()
            } else if let Some(blockers) = self.blockers(transaction).await? {
                blockers
            } else {
                // It is over.
                continue;
            };
            waits.add(waiter, wanted.wanted(&self.memory.dictionary), blockers);
        }
        if !processes.is_empty() {
            self.metadata_waits(&processes, &mut waits).await?;
        }
        Ok(waits)
    }

    /// Returns who is in the way of a transaction, by the tables; None if its wait is over by then.
    async fn blockers(&mut self, transaction: &InnodbTransaction) -> Result<Option<Vec<i64>>> {
        let Some(key) = wait_key(transaction) else { return Ok(None) };
        if let Some(known) = self.memory.mariadb.blockers.get(&key) {
            return Ok(Some(known.clone()));
        }
        let mut last_read = LAST_READ.lock().await;
        for attempt in 1..=MAX_CACHE_READS {
            if let Some(last_read) = *last_read {
                // Not for something to happen: the server would answer with what was.
                tokio::time::sleep_until(last_read + CACHE_PAUSE * attempt).await;
            }
            let rows = self.session.cells(LOCK_WAITS).await?;
            *last_read = Some(Instant::now());
            let ours = rows.iter().filter(|row| number_cell(row, 0) == transaction.thread);
            let blockers: Vec<i64> = ours.filter_map(|row| number_cell(row, 1)).collect();
            if !self.transactions().await?.iter().any(|now| wait_key(now) == Some(key)) {
                return Ok(None);
            }
            if !blockers.is_empty() {
                self.memory.mariadb.blockers.insert(key, blockers.clone());
                return Ok(Some(blockers));
            }
        }
        Ok(Some(Vec::new()))
    }

    pub(super) async fn mariadb_locks(&mut self) -> Result<LockList> {
        let transactions = self.transactions().await?;
        let transactions = self.complete(transactions).await?;
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
                list.locks.extend(lock.session_locks(session, &self.memory.dictionary));
            }
        }
        for lock in self.metadata_locks().await? {
            // Every statement has these.
            if self.scope.has(lock.owner) && !matches!(lock.namespace, Namespace::Other(_)) {
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
            match wanted(waiter, state, [cell(row, 2), cell(row, 3)], &locks) {
                Some(wanted) => {
                    wanted.add_wait(&wanted.blockers(&locks), waits);
                    // The next may be waiting behind it.
                    locks.push(wanted);
                }
                None => waits.add(waiter, unnamed(state), []),
            }
        }
        Ok(())
    }

    /// The metadata locks that are held; none if the plugin is not there.
    async fn metadata_locks(&mut self) -> Result<Vec<MetadataLock>> {
        let sql = "SELECT THREAD_ID, LOCK_TYPE, TABLE_SCHEMA, TABLE_NAME, LOCK_MODE \
                   FROM information_schema.METADATA_LOCK_INFO WHERE THREAD_ID <> CONNECTION_ID()";
        let rows = if_allowed(self.session.cells(sql).await)?.unwrap_or_default();
        Ok(rows.iter().filter_map(metadata_lock).collect())
    }
}

fn read_transactions(status: &[CellRow]) -> Vec<InnodbTransaction> {
    innodb_status::transactions(innodb_status::text(status))
}

fn wait_key(transaction: &InnodbTransaction) -> Option<WaitKey> {
    let (wanted, _) = transaction.waits.as_ref()?;
    let heap = wanted.records.first().map_or(0, |record| record.heap);
    Some((transaction.thread?, transaction.query.unwrap_or(0), wanted.page, heap))
}

fn metadata_lock(row: &CellRow) -> Option<MetadataLock> {
    let (namespace, schema, name) = match (cell(row, 1), cell(row, 2), cell(row, 3)) {
        // The key is where the schema would be.
        ("User lock", key, _) => (Namespace::User, "", key),
        (
            kind @ ("Schema metadata lock" | "Backup lock" | "Global read lock" | "Commit lock"),
            schema,
            name,
        ) => (Namespace::Other(kind.to_owned()), schema, name),
        (_, schema, name) => (Namespace::Object, schema, name),
    };
    let (owner, mode) = (number_cell(row, 0)?, cell(row, 4).trim_start_matches("MDL_"));
    let [schema, name, mode] = [schema, name, mode].map(str::to_owned);
    Some(MetadataLock { owner, namespace, schema, name, mode, granted: true })
}

/// What a session wants, by its state, its statement and its database. A name without a database is one of its own.
fn wanted(
    waiter: i64,
    state: &str,
    [statement, schema]: [&str; 2],
    held: &[MetadataLock],
) -> Option<MetadataLock> {
    let words = StatementWords::of(Driver::Mysql, statement);
    let by_others = || held.iter().filter(|lock| lock.owner != waiter);
    let want = |lock: &MetadataLock, mode: &str| MetadataLock {
        owner: waiter,
        mode: mode.to_owned(),
        granted: false,
        ..lock.clone()
    };
    match state {
        "User lock" => {
            let mut keys = by_others().filter(|lock| lock.namespace == Namespace::User);
            let key = keys.find(|lock| statement.contains(lock.name.as_str()));
            key.map(|lock| want(lock, "SHARED_NO_WRITE"))
        }
        "Waiting for table metadata lock" => {
            let mode = wanted_mode(&words);
            let is_named = |lock: &&MetadataLock| {
                lock.namespace == Namespace::Object
                    && words.has_name(&lock.name)
                    && (lock.schema == schema || words.has_name(&lock.schema))
            };
            let wants = by_others().filter(is_named).map(|lock| want(lock, mode));
            // Of several tables, the one that is not to be had; best one whose database is named too.
            let wants = wants.filter(|want| !want.blockers(held).is_empty());
            wants.min_by_key(|want| !words.has_name(&want.schema))
        }
        "Waiting for backup lock" => {
            let is_stop = |lock: &&MetadataLock| {
                ["FTWRL", "BLOCK", "WAIT"].iter().any(|word| lock.mode.contains(word))
            };
            let backup = Namespace::Other("Backup lock".to_owned());
            let backups = || by_others().filter(|lock| lock.namespace == backup);
            let stop = backups().find(is_stop).or_else(|| backups().next());
            stop.map(|lock| want(lock, "BACKUP_DML"))
        }
        _ => None,
    }
}

/// How strong a lock a statement takes on the definition of its tables.
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

/// `Waiting for table level lock`
fn unnamed(state: &str) -> LockTarget {
    let what = state.strip_prefix("Waiting for ").unwrap_or(state);
    let kind = match what {
        "User lock" => LockKind::Advisory,
        "table level lock" => LockKind::Table,
        _ => LockKind::Metadata,
    };
    LockTarget::new(kind, what, "")
}
