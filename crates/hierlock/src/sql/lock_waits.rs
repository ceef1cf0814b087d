//! The slot that a session waits for: one short query of each server, on the control session.

use super::{Dialect, LockPool, Scheme, Strategy, update_keys};
use crate::Result;
use hierlock_engine::introspection::innodb_status;

impl LockPool {
    /// Returns the name of the slot that the session `pid` waits for, if it waits.
    pub(super) async fn waits_for(&self, scheme: &Scheme, pid: i64) -> Result<Option<String>> {
        Ok(match scheme.dialect {
            Dialect::Mysql => self.ask(&mysql_wait(pid)).await?.map(mysql_slot_name),
            // MariaDB caches its tables of waits, and frequent reads never see the cache renewed. The status is live.
            Dialect::Mariadb => {
                let status = self.innodb_status().await?;
                row_waits(&status).find(|wait| wait.pid == pid).map(|wait| wait.row)
            }
            Dialect::Postgres => self.ask(&postgres_wait(scheme, pid)).await?,
        })
    }

    /// Runs a query on the control session, and returns the last column of its first row.
    pub(super) async fn ask(&self, query: &str) -> Result<Option<String>> {
        let rows = self.server.ask_control(query).await?;
        Ok(rows.into_iter().next().and_then(|mut row| row.pop()))
    }

    pub(super) async fn innodb_status(&self) -> Result<String> {
        Ok(self.ask(innodb_status::QUERY).await?.unwrap_or_default())
    }
}

/// Returns MySQL's query for the row that a session waits for. Its result is empty if the session does not wait.
fn mysql_wait(pid: i64) -> String {
    format!(
        "SELECT l.LOCK_DATA FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID \
         JOIN performance_schema.data_locks l ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         WHERE t.PROCESSLIST_ID = {pid} LIMIT 1"
    )
}

/// Returns the name of a slot from the LOCK_DATA of its row.
fn mysql_slot_name(lock_data: String) -> String {
    lock_data.strip_prefix("0x").map(str::to_ascii_lowercase).unwrap_or(lock_data)
}

/// Returns PostgreSQL's query for the slot that a session waits for. Its result is empty if the session does not wait. (The
/// results of earlier statements cannot be used: the server buffers them while a later statement waits.)
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
    // A session that waits for a row has, or waits for, the row's tuple lock. But a session that holds a row and wants it
    // in a stronger mode has no tuple lock, and waits only for the end of a transaction. An ALTER TABLE may wait for that
    // session, and `lock_timeout` keeps this query from waiting behind it.
    let (table, updater) = (scheme.quoted_table(), update_keys::NAME_PREFIX);
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

/// A session that waits for a row.
pub(super) struct RowWait {
    pub(super) pid: i64,
    /// The database and the name of the table.
    pub(super) table: (String, String),
    /// The key of the row as the name of a slot. The status cuts long keys.
    pub(super) row: String,
}

/// Returns all waits for rows in the text of `SHOW ENGINE INNODB STATUS`.
pub(super) fn row_waits(status: &str) -> impl Iterator<Item = RowWait> {
    innodb_status::transactions(status).into_iter().filter_map(|transaction| {
        let (pid, (wanted, _)) = (transaction.thread?, transaction.waits?);
        let row = record_key(&wanted.records.first()?.fields)?;
        Some(RowWait { pid, table: (wanted.schema, wanted.table), row })
    })
}

/// Returns the key of a record from its fields in hexadecimal. The fields of the key come first.
fn record_key(fields: &[Option<String>]) -> Option<String> {
    let field = |number: usize| fields.get(number)?.as_deref();
    let first = field(0)?.trim_end_matches('…');
    // The key of a bucket row is two fields of 1 and 4 bytes. The 6 bytes of the transaction id come after it.
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

    /// A shortened status of MariaDB 10.11.
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
    fn the_row_of_a_wait_is_found_in_the_status() {
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
    fn a_slot_name_has_its_key_in_lower_case_hexadecimal() {
        for (data, name) in [("0x307C31", "307c31"), ("2, 1358050", "2, 1358050")] {
            assert_eq!(mysql_slot_name(data.to_owned()), name);
        }
    }
}
