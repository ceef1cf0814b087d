//! The sessions that block a slot, for error messages. The queries run on the control session. If the account lacks the
//! privilege for one, the message leaves out its result.

use super::lock_waits::{RowWait, row_waits};
use super::{Dialect, LockPool, Scheme, SessionLabel, Strategy};
use crate::{Blocker, BlockingSession, Result, SlotMode, Step};
use hierlock_engine::introspection::{IntrospectionScope, SessionInfo};
use hierlock_engine::sessions;

/// The maximum number of sessions in a message.
const MAX_SESSIONS: usize = 20;

/// The blockers of a slot.
pub(super) struct SlotBlockers {
    pub(super) blocker: Blocker,
    pub(super) sessions: Vec<BlockingSession>,
}

impl From<Blocker> for SlotBlockers {
    fn from(blocker: Blocker) -> Self {
        Self { blocker, sessions: Vec::new() }
    }
}

impl LockPool {
    /// Returns what blocks the session `pid` on the slot of a step.
    pub(super) async fn slot_blockers(
        &self,
        scheme: &Scheme,
        step: &Step,
        pid: i64,
    ) -> SlotBlockers {
        if pid == 0 {
            // The process id of a caller's transaction is unknown until it waits.
            return Blocker::HolderOrWaiter.into();
        }
        let (blocker, pids) = self.blocking_pids(scheme, step, pid).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "the blockers of a slot could not be listed");
            (Blocker::HolderOrWaiter, Vec::new())
        });
        let sessions = self.describe_blockers(scheme, step, pid, pids).await;
        let sessions = sessions.unwrap_or_else(|error| {
            tracing::debug!(%error, "the blocking sessions could not be described");
            Vec::new()
        });
        SlotBlockers { blocker, sessions }
    }

    /// Returns whether a holder or a waiter blocks the slot, and the process ids that the server lists.
    async fn blocking_pids(
        &self,
        scheme: &Scheme,
        step: &Step,
        pid: i64,
    ) -> Result<(Blocker, Vec<i64>)> {
        if scheme.dialect == Dialect::Postgres && scheme.strategy != Strategy::Advisory {
            // A new request for a row passes those that wait for it, so only a holder blocks a row. But a waiter can block
            // the advisory key of an update lock.
            let is_update = step.mode == SlotMode::Update;
            let blocker = if is_update { Blocker::HolderOrWaiter } else { Blocker::Holder };
            // `pg_locks` does not list row locks, but the server knows the blockers of a waiting session.
            let sql = format!("SELECT unnest(pg_blocking_pids({pid}))::text");
            let rows = self.server.ask_control(&sql).await?;
            return Ok((blocker, rows.iter().filter_map(|row| row[0].parse().ok()).collect()));
        }
        let mut are_holders = false;
        // MariaDB caches its tables of locks, and they list only locks that others wait for.
        if scheme.dialect == Dialect::Mariadb {
            let database = self.ask("SELECT DATABASE()").await?.unwrap_or_default();
            let status = self.innodb_status().await?;
            let (slot, table) =
                (scheme.slot_name(step), (database, scheme.rows_table().to_owned()));
            let is_for_slot = |wait: &RowWait| wait.table == table && slot.starts_with(&wait.row);
            let waits: Vec<i64> =
                row_waits(&status).filter(is_for_slot).map(|wait| wait.pid).collect();
            if waits.is_empty() {
                return Ok((Blocker::Holder, Vec::new()));
            }
            // If no other session waits, the blockers are holders.
            are_holders = waits == [pid];
        }
        let locks = self.server.ask_control(&locks_of_others(scheme, step, pid)).await?;
        let with = |status: &str| -> Vec<i64> {
            let locks = locks.iter().filter(|lock| are_holders || lock[1] == status);
            locks.filter_map(|lock| lock[0].parse().ok()).collect()
        };
        Ok(match (with("held"), with("wanted")) {
            (held, _) if are_holders || !held.is_empty() => (Blocker::Holder, held),
            // The waiters wait for the sessions that hold the slot in shared mode.
            (_, wanted) if !wanted.is_empty() => {
                (Blocker::Waiter, [wanted, with("shared")].concat())
            }
            // The slot is now free, or the server does not list the lock.
            _ => (Blocker::HolderOrWaiter, Vec::new()),
        })
    }

    /// Describes the sessions `pids`. If the list is empty, describes the holders whose label names the slot.
    async fn describe_blockers(
        &self,
        scheme: &Scheme,
        step: &Step,
        pid: i64,
        pids: Vec<i64>,
    ) -> Result<Vec<BlockingSession>> {
        let is_listed = !pids.is_empty();
        let scope = if is_listed {
            IntrospectionScope::of_sessions(pids)
        } else {
            IntrospectionScope::default()
        };
        let database = self.ask(sessions::current_database(scheme.dialect)).await?;
        let slot = scheme.slot_name(step);
        let describe = |info: SessionInfo| {
            let label = info.label.as_deref().and_then(SessionLabel::parse);
            let target = label.as_ref().and_then(|label| label.target_of_slot(scheme, &slot));
            let is_holder = info.in_transaction_for.is_some() && info.waiting_for.is_none();
            let is_claimed = target.as_ref().zip(label.as_ref()).is_some_and(|(target, label)| {
                // The label's targets are exclusive, their ancestors shared.
                step.mode != SlotMode::Shared || label.targets().any(|named| named == target)
            });
            let is_named = is_holder && is_claimed && info.database == database;
            if info.pid == pid || !(is_listed || is_named) {
                return None;
            }
            let host = info.client.as_deref().map(without_port);
            let account = match (info.user, host) {
                (Some(user), Some(host)) => Some(format!("{user}@{host}")),
                (user, host) => user.or(host.map(str::to_owned)),
            };
            let client = label.map(|label| label.client.to_string());
            let SessionInfo { pid, in_transaction_for: age, waiting_for, .. } = info;
            Some(BlockingSession { pid, client, account, age, waiting_for, target })
        };
        let list = self.server.list_sessions(&scope).await?;
        Ok(list.sessions.into_iter().filter_map(describe).take(MAX_SESSIONS).collect())
    }
}

/// Returns the host of a client address with or without a port.
fn without_port(client: &str) -> &str {
    match client.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => client,
    }
}

/// Returns the query for the locks of other sessions on the slot of a step: each process id, and `held` in a conflicting
/// mode, `wanted`, or `shared`.
fn locks_of_others(scheme: &Scheme, step: &Step, pid: i64) -> String {
    let (slot, table) = (scheme.slot_name(step), scheme.rows_table());
    // The LOCK_DATA of InnoDB.
    let row = if scheme.strategy.is_by_id() { format!("0x{}", slot.to_uppercase()) } else { slot };
    let (other, is_granted, is_exclusive, others) = match scheme.dialect {
        Dialect::Mysql => (
            "t.PROCESSLIST_ID",
            "l.LOCK_STATUS = 'GRANTED'",
            "l.LOCK_MODE LIKE 'X%'",
            format!(
                "performance_schema.data_locks l \
                 JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID \
                 WHERE l.OBJECT_SCHEMA = DATABASE() AND l.OBJECT_NAME = '{table}' \
                 AND l.LOCK_TYPE = 'RECORD' AND l.LOCK_DATA = '{row}' AND t.PROCESSLIST_ID <> {pid}"
            ),
        ),
        // A lock that one transaction holds and wants in a stronger mode has one lock id, and counts as wanted.
        Dialect::Mariadb => (
            "t.trx_mysql_thread_id",
            "w.requested_lock_id IS NULL",
            "l.lock_mode LIKE 'X%'",
            format!(
                "information_schema.INNODB_LOCKS l \
                 JOIN information_schema.INNODB_TRX t ON t.trx_id = l.lock_trx_id \
                 LEFT JOIN (SELECT DISTINCT requested_lock_id \
                 FROM information_schema.INNODB_LOCK_WAITS) w ON w.requested_lock_id = l.lock_id \
                 WHERE l.lock_table = CONCAT('`', DATABASE(), '`.`{table}`') \
                 AND l.lock_data = '{row}' AND t.trx_mysql_thread_id <> {pid}"
            ),
        ),
        Dialect::Postgres => (
            "pid",
            "granted",
            "mode = 'ExclusiveLock'",
            format!(
                "pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND (classid::bigint << 32 | objid::bigint) = '{row}'::bigint AND pid <> {pid}"
            ),
        ),
    };
    let conflicts = if step.mode == SlotMode::Shared { is_exclusive } else { "TRUE" };
    let text = if scheme.dialect == Dialect::Postgres { "text" } else { "char" };
    format!(
        "SELECT CAST({other} AS {text}), CASE WHEN NOT ({is_granted}) THEN 'wanted' \
         WHEN {conflicts} THEN 'held' ELSE 'shared' END FROM {others}"
    )
}
