//! What is MariaDB's own.

/// Values that can be joined, as `v` with a column `x`.
pub(super) fn list(values: Vec<String>) -> String {
    let rows: Vec<String> = values.into_iter().map(|value| format!("({value})")).collect();
    // VALUES names its column after the first value; a common table expression may name it anew.
    format!("(WITH w(x) AS (VALUES {}) SELECT x FROM w) v", rows.join(", "))
}

/// Everything that InnoDB does, as text: its tables of waits sit on a cache that a busy reader never
/// sees renewed.
pub(super) const STATUS: &str = "SHOW ENGINE INNODB STATUS";

/// Finds in that text the row that a session waits for.
pub(super) fn slot_name(status: &str, pid: i64) -> Option<String> {
    waits(status).find(|wait| wait.pid == pid).map(|wait| wait.row)
}

/// A wait for a row.
pub(super) struct RowWait<'a> {
    pub(super) pid: i64,
    /// Such as `` `app`.`hier_lock_buckets` ``.
    pub(super) table: &'a str,
    /// Its key, as of a slot; a long one is cut.
    pub(super) row: String,
}

/// Finds in that text which session waits for which row.
///
/// A block a transaction; one that waits says `LOCK WAIT`, then whose it is, then the record, field by
/// field: the fields of the key come first. A long field is cut.
pub(super) fn waits(status: &str) -> impl Iterator<Item = RowWait<'_>> {
    // The section of the last deadlock looks the same, and comes before.
    let transactions = status.split_once("\nTRANSACTIONS\n").map_or("", |(_, behind)| behind);
    let waiting = |block: &&str| block.contains("LOCK WAIT");
    transactions.split("\n---TRANSACTION ").filter(waiting).filter_map(|block| {
        let (_, session) = block.split_once("MariaDB thread id ")?;
        let (pid, _) = session.split_once(',')?;
        let (_, record) = block.split_once("FOR THIS LOCK TO BE GRANTED:")?;
        let (table, _) = record.split_once(" of table ")?.1.split_once(" trx id ")?;
        Some(RowWait { pid: pid.parse().ok()?, table, row: key(record)? })
    })
}

/// The key of a record that is written field by field.
fn key(record: &str) -> Option<String> {
    let field = |number: usize| {
        let begin = format!("\n {number}: len ");
        let (_, field) = record.split_once(&begin)?;
        let (_, hex) = field.split_once("; hex ")?;
        hex.split_once(';').map(|(hex, _)| hex.to_owned())
    };
    // A bucket row has two fields of 1 and 4 bytes, before the six of a transaction's number.
    let (first, second) = (field(0)?, field(1)?);
    if first.len() == 2 && second.len() == 8 {
        let number = |hex: &str| u64::from_str_radix(hex, 16).ok();
        return Some(format!("{}, {}", number(&first)?, number(&second)?));
    }
    Some(first)
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
RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `hierlock`.`hl` trx id 32
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
RECORD LOCKS space id 6 page no 3 n bits 320 index PRIMARY of table `hierlock`.`hb` trx id 0
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
