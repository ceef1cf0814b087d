//! Whether a slot that could not be had is held by someone else, or only waited for by someone who came
//! first. Asked on the side, and only for a caller who is told.

use super::pool::LockPool;
use super::{Dialect, Scheme, Strategy, mariadb};
use crate::error::{Blocker, Result};
use crate::mode::SlotMode;
use crate::plan::Step;
use hierlock_engine::TextRow;

impl LockPool {
    /// What keeps the session `pid` from the slot of a step.
    pub(super) async fn blocker(&self, scheme: &Scheme, step: &Step, pid: i64) -> Blocker {
        let asked = match (scheme.dialect, scheme.strategy) {
            // The session of a caller's transaction is not known before it has waited.
            _ if pid == 0 => return Blocker::HolderOrWaiter,
            (Dialect::Postgres, Strategy::Advisory) => {
                self.asked(postgres(scheme, step, pid)).await
            }
            // Who comes later passes those who wait for a row, so a row is never only waited for; but the
            // key that updaters take before it may be.
            (Dialect::Postgres, _) if step.mode == SlotMode::Update => {
                return Blocker::HolderOrWaiter;
            }
            (Dialect::Postgres, _) => return Blocker::Holder,
            (Dialect::Mysql, _) => self.asked(mysql(scheme, step, pid)).await,
            (Dialect::Mariadb, _) => self.on_mariadb(scheme, step, pid).await,
        };
        asked.unwrap_or_else(|error| {
            tracing::debug!(%error, "who is in the way could not be asked");
            Blocker::HolderOrWaiter
        })
    }

    async fn asked(&self, question: String) -> Result<Blocker> {
        Ok(of_answer(&self.server.ask_on_the_side(&question).await?))
    }

    /// MariaDB's tables of locks sit on a cache, and list nothing that nobody waits for. The text that says
    /// who waits is live.
    async fn on_mariadb(&self, scheme: &Scheme, step: &Step, pid: i64) -> Result<Blocker> {
        let rows = self.server.ask_on_the_side(mariadb::STATUS).await?;
        let status = rows.first().and_then(|row| row.last()).map_or("", String::as_str);
        let (slot, table) = (scheme.slot_name(step), scheme.rows_table());
        let mut others = mariadb::waits(status).filter(|wait| wait.pid != pid);
        // A table of that name in another database counts too: then the tables of locks are asked.
        if !others.any(|wait| wait.table == table && slot.starts_with(&wait.row)) {
            return Ok(Blocker::Holder);
        }
        self.asked(mariadb_locks(scheme, step, pid)).await
    }
}

/// From two columns: is there one who holds it in a mode that is in the way, and is there any other lock on it?
fn of_answer(rows: &[TextRow]) -> Blocker {
    let answer = rows.last().map(|row| row.iter().map(|cell| cell == "1").collect::<Vec<bool>>());
    match answer.as_deref() {
        Some([true, _]) => Blocker::Holder,
        Some([false, true]) => Blocker::Waiter,
        // It is free by now, or the server does not show it.
        _ => Blocker::HolderOrWaiter,
    }
}

/// Which modes of others are in the way of a step.
fn conflicting(step: &Step, is_exclusive: &str) -> String {
    if step.mode == SlotMode::Shared { is_exclusive.to_owned() } else { "TRUE".to_owned() }
}

fn mysql(scheme: &Scheme, step: &Step, pid: i64) -> String {
    let (slot, conflicting) = (lock_data(scheme, step), conflicting(step, "l.LOCK_MODE LIKE 'X%'"));
    let table = scheme.rows_table();
    format!(
        "SELECT COALESCE(MAX(l.LOCK_STATUS = 'GRANTED' AND {conflicting}), 0), COUNT(*) > 0 \
         FROM performance_schema.data_locks l \
         JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID \
         WHERE l.OBJECT_SCHEMA = DATABASE() AND l.OBJECT_NAME = '{table}' AND l.LOCK_TYPE = 'RECORD' \
         AND l.LOCK_DATA = '{slot}' AND t.PROCESSLIST_ID <> {pid}"
    )
}

/// A lock that is both held and wanted more strongly by one transaction has one number: it counts as wanted.
fn mariadb_locks(scheme: &Scheme, step: &Step, pid: i64) -> String {
    let (slot, conflicting) = (lock_data(scheme, step), conflicting(step, "l.lock_mode LIKE 'X%'"));
    let table = scheme.rows_table();
    format!(
        "SELECT COALESCE(MAX(w.requested_lock_id IS NULL AND {conflicting}), 0), COUNT(*) > 0 \
         FROM information_schema.INNODB_LOCKS l \
         JOIN information_schema.INNODB_TRX t ON t.trx_id = l.lock_trx_id \
         LEFT JOIN (SELECT DISTINCT requested_lock_id FROM information_schema.INNODB_LOCK_WAITS) w \
         ON w.requested_lock_id = l.lock_id \
         WHERE l.lock_table = CONCAT('`', DATABASE(), '`.`{table}`') AND l.lock_data = '{slot}' \
         AND t.trx_mysql_thread_id <> {pid}"
    )
}

fn postgres(scheme: &Scheme, step: &Step, pid: i64) -> String {
    let (key, conflicting) = (scheme.slot_name(step), conflicting(step, "mode = 'ExclusiveLock'"));
    format!(
        "SELECT COALESCE(bool_or(granted AND {conflicting}), false)::int::text, \
         (count(*) > 0)::int::text FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND (classid::bigint << 32 | objid::bigint) = '{key}'::bigint AND pid <> {pid}"
    )
}

/// A slot as InnoDB writes it among its locks.
fn lock_data(scheme: &Scheme, step: &Step) -> String {
    let slot = scheme.slot_name(step);
    if scheme.strategy.is_by_id() { format!("0x{}", slot.to_uppercase()) } else { slot }
}
