//! What is MariaDB's own.

use hierlock_engine::introspection::innodb_status;

/// Values that can be joined, as `v` with a column `x`.
pub(super) fn list(values: Vec<String>) -> String {
    let rows: Vec<String> = values.into_iter().map(|value| format!("({value})")).collect();
    // VALUES names its column after the first value; a common table expression may name it anew.
    format!("(WITH w(x) AS (VALUES {}) SELECT x FROM w) v", rows.join(", "))
}

/// Everything that InnoDB does, as text: its tables of waits sit on a cache that a busy reader never
/// sees renewed.
pub(super) const STATUS: &str = innodb_status::QUERY;

/// Finds in that text the row that a session waits for.
pub(super) fn slot_name(status: &str, pid: i64) -> Option<String> {
    waits(status).find(|wait| wait.pid == pid).map(|wait| wait.row)
}

/// A wait for a row.
pub(super) struct RowWait {
    pub(super) pid: i64,
    /// Without its database.
    pub(super) table: String,
    /// Its key, as of a slot; a long one is cut.
    pub(super) row: String,
}

/// Finds in that text which session waits for which row.
pub(super) fn waits(status: &str) -> impl Iterator<Item = RowWait> {
    innodb_status::transactions(status).into_iter().filter_map(|transaction| {
        let (pid, (wanted, _)) = (transaction.thread?, transaction.waits?);
        let row = key(&wanted.records.first()?.fields)?;
        Some(RowWait { pid, table: wanted.table, row })
    })
}

/// The key of a record, from its fields in hexadecimal: those of the key come first.
fn key(fields: &[Option<String>]) -> Option<String> {
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
    const SEEN: &str = "\
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
        assert_eq!(slot_name(SEEN, 7).as_deref(), Some("2, 1358050"));
        assert_eq!(slot_name(SEEN, 8).as_deref(), Some("307c323a75312c"));
        assert_eq!(slot_name(SEEN, 6), None);
        assert_eq!(slot_name("", 7), None);
    }
}
