//! What a server says about lock waits: for which slot a session waits, and whether that is held by someone else or only
//! waited for. Asked on the control session, with the shortest query.

use super::{Dialect, LockPool, Scheme, Strategy, updaters};
use crate::{Blocker, Result, SlotMode, Step};
use hierlock_engine::introspection::innodb_status;

impl LockPool {
    /// Returns the name of the slot that a session waits for, if it does.
    pub(super) async fn waits_for(&self, scheme: &Scheme, pid: i64) -> Result<Option<String>> {
        Ok(match scheme.dialect {
            Dialect::Mysql => self.ask(&mysql_wait(pid)).await?.map(mysql_slot_name),
            // Its tables of waits sit on a cache that a busy reader never sees renewed; the text is live.
            Dialect::Mariadb => {
                let status = self.innodb_status().await?;
                row_waits(&status).find(|wait| wait.pid == pid).map(|wait| wait.row)
            }
            Dialect::Postgres => self.ask(&postgres_wait(scheme, pid)).await?,
        })
    }

    /// Returns what keeps the session `pid` from the slot of a step. Only asked for a caller who is told.
    pub(super) async fn blocker(&self, scheme: &Scheme, step: &Step, pid: i64) -> Blocker {
        if pid == 0 {
            // The session of a caller's transaction is not known before it has waited.
            return Blocker::HolderOrWaiter;
        }
        if scheme.dialect == Dialect::Postgres && scheme.strategy != Strategy::Advisory {
            // Who comes later passes those who wait for a row, so a row is never only waited for; but the key that
            // updaters take before it may be.
            let is_update = step.mode == SlotMode::Update;
            return if is_update { Blocker::HolderOrWaiter } else { Blocker::Holder };
        }
        let blocker = async {
            // MariaDB's tables of locks sit on a cache, and list nothing that nobody waits for.
            if scheme.dialect == Dialect::Mariadb {
                let database = self.ask("SELECT DATABASE()").await?.unwrap_or_default();
                let status = self.innodb_status().await?;
                let (slot, table) =
                    (scheme.slot_name(step), (database, scheme.rows_table().to_owned()));
                let is_for_slot = |wait: RowWait| {
                    wait.pid != pid && wait.table == table && slot.starts_with(&wait.row)
                };
                if !row_waits(&status).any(is_for_slot) {
                    return Ok(Blocker::Holder);
                }
            }
            let answer = self.ask(&locks_of_others(scheme, step, pid)).await?;
            Ok(match answer.as_deref() {
                Some("held") => Blocker::Holder,
                Some("wanted") => Blocker::Waiter,
                // It is free by now, or the server does not show it.
                _ => Blocker::HolderOrWaiter,
            })
        };
        blocker.await.unwrap_or_else(|error: crate::Error| {
            tracing::debug!(%error, "who is in the way could not be asked");
            Blocker::HolderOrWaiter
        })
    }

    /// Returns the last column of the first row.
    async fn ask(&self, question: &str) -> Result<Option<String>> {
        let rows = self.server.ask_control(question).await?;
        Ok(rows.into_iter().next().and_then(|mut row| row.pop()))
    }

    async fn innodb_status(&self) -> Result<String> {
        Ok(self.ask(innodb_status::QUERY).await?.unwrap_or_default())
    }
}

/// Asks MySQL for the row that a session waits for; no row comes back if it does not.
fn mysql_wait(pid: i64) -> String {
    format!(
        "SELECT l.LOCK_DATA FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID \
         JOIN performance_schema.data_locks l ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         WHERE t.PROCESSLIST_ID = {pid} LIMIT 1"
    )
}

/// Returns the name of a slot from what MySQL says of its lock.
fn mysql_slot_name(lock_data: String) -> String {
    lock_data.strip_prefix("0x").map(str::to_ascii_lowercase).unwrap_or(lock_data)
}

/// Asks PostgreSQL for the name of the slot that a session waits for; no row comes back if it does not. (The server holds
/// back the results of the statements before, so they do not tell.)
fn postgres_wait(scheme: &Scheme, pid: i64) -> String {
    let name = match scheme.strategy {
        Strategy::Striped => "level || ', ' || bucket",
        Strategy::PerId | Strategy::OnDemand => scheme.hex_key(),
        Strategy::Advisory => {
            return format!(
                "SELECT (classid::bigint << 32 | objid::bigint)::text FROM pg_locks \
                 WHERE pid = {pid} AND NOT granted AND locktype = 'advisory' LIMIT 1"
            );
        }
    };
    // Whoever waits for a row has, or waits for, its tuple's lock; except that a row which is held already
    // and wanted in a stronger mode has none, only the end of a transaction is waited for. A change of the
    // table may be waiting for the very session that asks this: it must not wait behind the change.
    let (table, updater) = (scheme.quoted_table(), updaters::NAME);
    format!(
        "SET lock_timeout = '20ms'; (SELECT 0 AS rank, {name} AS name FROM {table} \
         WHERE ctid = (SELECT format('(%s,%s)', page, tuple)::tid FROM pg_locks \
         WHERE pid = {pid} AND locktype = 'tuple' AND relation = '{table}'::regclass LIMIT 1) \
         UNION ALL SELECT 0, '{updater}' || objid FROM pg_locks WHERE pid = {pid} AND NOT granted \
         AND locktype = 'advisory' AND classid = '{table}'::regclass AND objsubid = 2 \
         UNION ALL SELECT 1, '' FROM pg_locks \
         WHERE pid = {pid} AND NOT granted AND locktype = 'transactionid') \
         ORDER BY rank LIMIT 1"
    )
}

/// Asks whether another session holds the slot of a step in a mode that is in the way (`held`), or else has any other lock
/// on it (`wanted`).
fn locks_of_others(scheme: &Scheme, step: &Step, pid: i64) -> String {
    let (slot, table) = (scheme.slot_name(step), scheme.rows_table());
    // As InnoDB writes it among its locks.
    let row = if scheme.strategy.is_by_id() { format!("0x{}", slot.to_uppercase()) } else { slot };
    let (is_granted, is_exclusive, others) = match scheme.dialect {
        Dialect::Mysql => (
            "l.LOCK_STATUS = 'GRANTED'",
            "l.LOCK_MODE LIKE 'X%'",
            format!(
                "performance_schema.data_locks l \
                 JOIN performance_schema.threads t ON t.THREAD_ID = l.THREAD_ID \
                 WHERE l.OBJECT_SCHEMA = DATABASE() AND l.OBJECT_NAME = '{table}' \
                 AND l.LOCK_TYPE = 'RECORD' AND l.LOCK_DATA = '{row}' AND t.PROCESSLIST_ID <> {pid}"
            ),
        ),
        // A lock that is both held and wanted more strongly by one transaction has one number: it counts as wanted.
        Dialect::Mariadb => (
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
            "granted",
            "mode = 'ExclusiveLock'",
            format!(
                "pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND (classid::bigint << 32 | objid::bigint) = '{row}'::bigint AND pid <> {pid}"
            ),
        ),
    };
    let is_in_the_way = if step.mode == SlotMode::Shared { is_exclusive } else { "TRUE" };
    format!(
        "SELECT CASE WHEN MAX(CASE WHEN {is_granted} AND {is_in_the_way} THEN 1 END) = 1 THEN 'held' \
         WHEN COUNT(*) > 0 THEN 'wanted' END FROM {others}"
    )
}

/// A session that waits for a row.
struct RowWait {
    pid: i64,
    /// Its database and its name.
    table: (String, String),
    /// Its key, as the name of a slot; a long one is cut.
    row: String,
}

/// Returns which session waits for which row, from the text of `SHOW ENGINE INNODB STATUS`.
fn row_waits(status: &str) -> impl Iterator<Item = RowWait> {
    innodb_status::transactions(status).into_iter().filter_map(|transaction| {
        let (pid, (wanted, _)) = (transaction.thread?, transaction.waits?);
        let row = record_key(&wanted.records.first()?.fields)?;
        Some(RowWait { pid, table: (wanted.schema, wanted.table), row })
    })
}

/// The key of a record, from its fields in hexadecimal: those of the key come first.
fn record_key(fields: &[Option<String>]) -> Option<String> {
    let field = |number: usize| fields.get(number)?.as_deref();
    let first = field(0)?.trim_end_matches('…');
    // A bucket row has two fields of 1 and 4 bytes, before the six of a transaction's number.
    match field(1) {
        Some(second) if first.len() == 2 && second.len() == 8 => {
            let number = |hex: &str| u64::from_str_radix(hex, 16).ok();
            Some(format!("{}, {}", number(first)?, number(second)?))
        }
        _ => Some(first.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As MariaDB 10.11 writes it, shortened.
    const INNODB_STATUS: &str = "\
LATEST DETECTED DEADLOCK
------------------------
---TRANSACTION 12, ACTIVE 1 sec
LOCK WAIT 2 lock struct(s)
MariaDB thread id 7, OS thread handle 1, query id 16
 FOR THIS LOCK TO BE GRANTED:
 0: len 1; hex 09; asc  ;;
 1: len 4; hex 00000009; asc     ;;
------------
TRANSACTIONS
------------
LIST OF TRANSACTIONS FOR EACH SESSION:
---TRANSACTION 32, ACTIVE 1 sec starting index read
mysql tables in use 1, locked 1
LOCK WAIT 2 lock struct(s), heap size 1128, 1 row lock(s)
MariaDB thread id 8, OS thread handle 139977752127168, query id 19 127.0.0.1 root Statistics
select * from hl where lock_key=x'307c323a75312c' for update
------- TRX HAS BEEN WAITING 718576 us FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `hierlock`.`hl` trx id 32 lock_mode X locks rec but not gap waiting
Record lock, heap no 2 PHYSICAL RECORD: n_fields 3; compact format; info bits 0
 0: len 7; hex 307c323a75312c; asc 0|2:u1,;;
 1: len 6; hex 000000000013; asc       ;;
 2: len 7; hex 84000001340110; asc     4  ;;

------------------
---TRANSACTION (0x7f4f303e2680), ACTIVE 1 sec starting index read
LOCK WAIT 2 lock struct(s), heap size 1128, 1 row lock(s)
MariaDB thread id 7, OS thread handle 139978084906688, query id 16 127.0.0.1 root Statistics
select of_10 from hb where level=2 and bucket=1358050 lock in share mode
------- TRX HAS BEEN WAITING 722799 us FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 6 page no 3 n bits 320 index PRIMARY of table `hierlock`.`hb` trx id 0 lock mode S locks rec but not gap waiting
Record lock, heap no 5 PHYSICAL RECORD: n_fields 5; compact format; info bits 0
 0: len 1; hex 02; asc  ;;
 1: len 4; hex 0014b8e2; asc     ;;
 2: len 6; hex 00000000001b; asc       ;;

------------------
---TRANSACTION 31, ACTIVE 1 sec
4 lock struct(s), heap size 1128, 2 row lock(s)
MariaDB thread id 6, OS thread handle 139978085213888, query id 13 127.0.0.1 root User sleep
select sleep(3)
--------
FILE I/O
";

    #[test]
    fn the_row_waited_for_is_found_in_the_text() {
        for (status, pid, row) in [
            (INNODB_STATUS, 7, Some("2, 1358050")),
            (INNODB_STATUS, 8, Some("307c323a75312c")),
            (INNODB_STATUS, 6, None),
            ("", 7, None),
        ] {
            let found = row_waits(status).find(|wait| wait.pid == pid).map(|wait| wait.row);
            assert_eq!(found.as_deref(), row, "{pid}");
        }
    }

    #[test]
    fn a_key_is_named_in_hexadecimal() {
        for (data, name) in [("0x307C31", "307c31"), ("2, 1358050", "2, 1358050")] {
            assert_eq!(mysql_slot_name(data.to_owned()), name);
        }
    }
}
