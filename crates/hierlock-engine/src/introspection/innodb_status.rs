//! Parses the transactions and locks of `SHOW ENGINE INNODB STATUS`. Unreadable parts are left out. Pure.

use super::conflict::{innodb_records_conflict, tables_conflict};
use super::deadlock_dump::DeadlockLock;
use super::dictionary::Dictionary;
use super::{LockKind, LockTarget, SessionLock};
use crate::row::{CellRow, cell};

/// The query for the status. The text is in the third column of the only row.
pub const QUERY: &str = "SHOW ENGINE INNODB STATUS";

pub(super) fn text(rows: &[CellRow]) -> &str {
    rows.first().map_or("", |row| cell(row, 2))
}

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnodbTransaction {
    /// The process id of its session.
    pub thread: Option<i64>,
    /// The query id of its statement.
    pub query: Option<u64>,
    /// The lock that it waits for, and the duration, in the unit of the server.
    pub waits: Option<(InnodbLock, u64)>,
    /// The number of locks, as the status reports it.
    pub count: usize,
    /// The listed locks. If all are listed, they include the one it waits for.
    pub locks: Vec<InnodbLock>,
    /// Whether there are more locks than are listed.
    pub is_cut: bool,
}

impl InnodbTransaction {
    /// Returns the reason why not all of its locks are listed, if that is so.
    pub fn incomplete(&self) -> Option<&'static str> {
        if self.is_cut {
            Some("MariaDB lists only ten locks of a transaction")
        } else if self.count > 0 && self.locks.is_empty() {
            Some("MariaDB lists locks only with innodb_status_output_locks, which is off")
        } else {
            None
        }
    }
}

/// A lock on a table, or on records of one page of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnodbLock {
    /// The database.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The index. None for a table lock.
    pub index: Option<String>,
    /// The tablespace id and page number.
    pub page: (u64, u64),
    /// The mode in the format of MySQL's `data_locks`: `X,REC_NOT_GAP`.
    pub mode: String,
    /// Whether the lock is not granted yet.
    pub is_waiting: bool,
    /// The transaction id; 0 before the transaction has changed anything.
    pub owner: u64,
    /// The locked records; none for a table lock, or if the page was not in memory.
    pub records: Vec<InnodbRecord>,
}

/// A record on a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnodbRecord {
    /// The heap number on the page. The supremum record has 1.
    pub heap: u64,
    /// The fields in hexadecimal, as far as they are listed. An ellipsis marks a truncated field, None is NULL.
    pub fields: Vec<Option<String>>,
}

/// The heap number of the supremum record, the end of an index.
const SUPREMUM: u64 = 1;

/// Returns all transactions. The section of the last deadlock has the same format, and comes earlier.
pub fn transactions(status: &str) -> Vec<InnodbTransaction> {
    let Some((_, section)) = status.split_once("\nTRANSACTIONS\n") else { return Vec::new() };
    let section = section.split_once("\nFILE I/O\n").map_or(section, |(section, _)| section);
    section.split("\n---TRANSACTION ").skip(1).map(transaction).collect()
}

/// Parses one block, after `TRANSACTION `.
fn transaction(text: &str) -> InnodbTransaction {
    let mut transaction = InnodbTransaction::default();
    let (mut waited, mut wanted, mut in_wait) = (0, Vec::new(), false);
    for line in text.lines() {
        if let (None, Some((_, rest))) = (transaction.thread, line.split_once(" thread id ")) {
            transaction.thread = rest.split(',').next().and_then(|id| id.parse().ok());
            transaction.query = rest.split_once("query id ").and_then(|(_, id)| first_number(id));
        } else if line.contains(" lock struct(s)") {
            let words = line.trim_start_matches("LOCK WAIT ");
            transaction.count = first_number(words).unwrap_or(0) as usize;
        } else if let Some(rest) = line.strip_prefix("------- TRX HAS BEEN WAITING ") {
            (waited, in_wait) = (first_number(rest).unwrap_or(0), true);
        } else if line.starts_with("------------------") {
            in_wait = false;
        } else if line.contains("SUPPRESSING FURTHER PRINTS") {
            transaction.is_cut = true;
        } else {
            parse_lock(if in_wait { &mut wanted } else { &mut transaction.locks }, line);
        }
    }
    transaction.waits = wanted.pop().map(|lock| (lock, waited));
    transaction
}

/// Parses a line that begins a lock or belongs to the last one.
pub(super) fn parse_lock(locks: &mut Vec<InnodbLock>, line: &str) {
    if let Some(lock) = lock_line(line) {
        locks.push(lock);
    } else if let Some(lock) = locks.last_mut() {
        lock.parse_record(line);
    }
}

/// Parses ``RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 30 lock mode S
/// locks rec but not gap waiting`` or ``TABLE LOCK table `lab`.`t` trx id 30 lock mode IX``.
fn lock_line(line: &str) -> Option<InnodbLock> {
    let mut lock = InnodbLock::default();
    let rest = if let Some(rest) = line.strip_prefix("RECORD LOCKS space id ") {
        lock.page = (first_number(rest)?, first_number(rest.split(" page no ").nth(1)?)?);
        let (index, rest) = rest.split_once(" index ")?.1.split_once(" of table ")?;
        lock.index = Some(index.trim_matches(['`', '"']).to_owned());
        rest
    } else {
        line.strip_prefix("TABLE LOCK table ")?
    };
    let (table, rest) = rest.split_once(" trx id ")?;
    (lock.schema, lock.table) = names(table)?;
    lock.owner = transaction_number(rest)?;
    let mode = rest.split_once("lock mode ").or_else(|| rest.split_once("lock_mode "))?.1;
    lock.mode = mode.split(' ').next()?.replace("AUTO-INC", "AUTO_INC");
    for (words, word) in [
        ("gap before rec", ",GAP"),
        ("rec but not gap", ",REC_NOT_GAP"),
        ("insert intention", ",INSERT_INTENTION"),
    ] {
        if mode.contains(words) {
            lock.mode.push_str(word);
        }
    }
    lock.is_waiting = mode.ends_with("waiting");
    Some(lock)
}

/// Parses `` `lab`.`t` `` in any quotes, which depend on the settings of server and session. A partition is left out.
fn names(text: &str) -> Option<(String, String)> {
    let (schema, rest) = name(text.trim())?;
    let (table, _) = name(rest.strip_prefix('.')?)?;
    Some((schema, table))
}

/// Returns the name at the start of a text, and the rest. A quote in a quoted name is doubled.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quote) = text.chars().next().filter(|c| ['`', '"'].contains(c)) else {
        let end = text.find(['.', ' ', '/']).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut name = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == quote && characters.next_if(|(_, next)| *next == quote).is_none() {
            return Some((name, &text[at + 1..]));
        }
        name.push(c);
    }
    None
}

/// Parses a transaction id. Old servers write its two halves, `0 1234`, or hexadecimal digits, `2F5C3`.
pub(super) fn transaction_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let number = word.parse().or_else(|_| u64::from_str_radix(word, 16)).ok()?;
    match rest.strip_prefix(' ').and_then(first_number) {
        Some(low) => Some(number << 32 | low & 0xffff_ffff),
        None => Some(number),
    }
}

pub(super) fn first_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

impl InnodbLock {
    /// Parses ` 0: len 4; hex 80000001; asc     ;;`, below `Record lock, heap no 2 PHYSICAL RECORD: …`.
    fn parse_record(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("Record lock, heap no ") {
            let heap = first_number(rest).unwrap_or(0);
            self.records.push(InnodbRecord { heap, fields: Vec::new() });
        } else if let Some(record) = self.records.last_mut()
            && let Some((number, field)) =
                line.strip_prefix(' ').and_then(|line| line.split_once(": "))
            && number.parse() == Ok(record.fields.len())
        {
            let hex = field.split_once("; hex ").and_then(|(_, hex)| hex.split_once(';'));
            // Only the beginning of a long field is listed.
            let end = if field.contains("(total ") { "…" } else { "" };
            record.fields.push(hex.map(|(hex, _)| format!("{hex}{end}")));
        }
    }

    /// Returns schema, table and index; None for a table lock.
    pub(super) fn index(&self) -> Option<[&str; 3]> {
        Some([&self.schema, &self.table, self.index.as_deref()?])
    }

    /// Returns whether a request for this lock waits for the other, by the rules of InnoDB.
    pub fn waits_for(&self, other: &Self) -> bool {
        let (wanted, held) = (&self.mode, &other.mode);
        let is_waiting = if self.index != other.index {
            None
        } else if self.index.is_some() {
            let record = self.shared_record(other);
            record.and_then(|it| innodb_records_conflict(wanted, held, it.heap == SUPREMUM))
        } else {
            let is_same = (&self.schema, &self.table) == (&other.schema, &other.table);
            tables_conflict(wanted, held).filter(|_| is_same)
        };
        is_waiting == Some(true)
    }

    fn shared_record(&self, other: &Self) -> Option<&InnodbRecord> {
        let is_shared =
            |record: &&InnodbRecord| other.records.iter().any(|r| r.heap == record.heap);
        self.records.iter().find(is_shared).filter(|_| self.page == other.page)
    }

    /// Returns the part of the other lock that is on the same record as this one.
    pub(super) fn shared_part(&self, other: &Self) -> Self {
        let mut part = other.clone();
        if let Some(shared) = self.shared_record(other) {
            part.records.retain(|record| record.heap == shared.heap);
        }
        part
    }

    /// Returns the lock as locks of a deadlock member: one per record, or the table.
    pub(super) fn dump_locks(&self, dictionary: &Dictionary) -> impl Iterator<Item = DeadlockLock> {
        let columns =
            self.index().map(|index| dictionary.names(index).to_vec()).unwrap_or_default();
        self.session_locks(0, dictionary).map(move |lock| DeadlockLock {
            target: lock.target,
            columns: columns.clone(),
            granted: lock.granted,
        })
    }

    fn target(&self, record: Option<&InnodbRecord>, dictionary: &Dictionary) -> LockTarget {
        let Some(index) = self.index() else {
            return LockTarget::of_table(LockKind::Table, &self.schema, &self.table, &self.mode);
        };
        let name = record.and_then(|record| match record.heap {
            SUPREMUM => Some("supremum".to_owned()),
            _ => dictionary.record(index, &record.fields),
        });
        LockTarget::of_record(index, name, &self.mode)
    }

    /// Returns the target of a wait, which is for one record or for a table.
    pub(super) fn wanted(&self, dictionary: &Dictionary) -> LockTarget {
        self.target(self.records.first(), dictionary)
    }

    /// Returns the lock as locks of its session: one per record, or the table.
    pub(super) fn session_locks(
        &self,
        session: i64,
        dictionary: &Dictionary,
    ) -> impl Iterator<Item = SessionLock> {
        // Without records the page was not in memory.
        let records = self.records.iter().map(Some).chain(self.records.is_empty().then_some(None));
        records.map(move |record| {
            let (target, granted) = (self.target(record, dictionary), !self.is_waiting);
            SessionLock { session, target, granted }
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Formats a lock on records, given by heap number and first field, as both servers write it.
    pub(crate) fn lock_text(owner: u32, mode: &str, records: &[(u32, &str)]) -> String {
        let record = |(heap, hex): &(u32, &str)| {
            format!(
                "Record lock, heap no {heap} PHYSICAL RECORD: n_fields 5; compact format; info bits 0\n \
                 0: len 4; hex {hex}; asc     ;;\n 5: SQL NULL;\n\n"
            )
        };
        let records: String = records.iter().map(record).collect();
        format!(
            "RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` \
             trx id {owner} {mode}\n{records}"
        )
    }

    /// A shortened status of MariaDB 10.11 with lock output: a reader and an inserter wait for a holder.
    fn status() -> String {
        let transaction = |name: &str, count: &str, thread: u32, query: u32, waits: &str| {
            format!(
                "---TRANSACTION {name}, ACTIVE 0 sec starting index read\nmysql tables in use 1, locked 1\n\
                 {count} lock struct(s), heap size 1128, 1 row lock(s)\n\
                 MariaDB thread id {thread}, OS thread handle 139881247164096, query id {query} localhost root\n\
                 select 1\n{waits}TABLE LOCK table `lab`.`t` trx id 0 lock mode IX\n"
            )
        };
        let waits = |micros: u32, wanted: &str| {
            format!(
                "------- TRX HAS BEEN WAITING {micros} us FOR THIS LOCK TO BE GRANTED:\n\
                 {wanted}------------------\n"
            )
        };
        let (record, supremum) = ((2, "80000001"), (1, "73757072656d756d"));
        let read = lock_text(0, "lock mode S locks rec but not gap waiting", &[record]);
        let insert = lock_text(28, "lock_mode X insert intention waiting", &[supremum]);
        [
            "\nLATEST DETECTED DEADLOCK\n---TRANSACTION 1, ACTIVE 1 sec\nMariaDB thread id 99, query id 1\n",
            "------------\nTRANSACTIONS\n------------\nTrx id counter 31\n",
            "LIST OF TRANSACTIONS FOR EACH SESSION:\n",
            &transaction("(0x7f38a4eb5780)", "LOCK WAIT 2", 11, 26, &waits(151_975, &read)),
            &read,
            &transaction("28", "LOCK WAIT 2", 8, 23, &waits(621_109, &insert)),
            &transaction("27", "3", 7, 22, ""),
            &lock_text(27, "lock_mode X locks rec but not gap", &[record]),
            &lock_text(27, "lock_mode X", &[supremum, (4, "8000000a")]),
            "10 LOCKS PRINTED FOR THIS TRX: SUPPRESSING FURTHER PRINTS\n",
            "--------\nFILE I/O\n--------\n",
        ]
        .concat()
    }

    /// The failure this prevents: waits of sessions with ANSI_QUOTES were not found.
    #[test]
    fn names_are_parsed_in_any_quotes() {
        for (text, schema, table) in [
            ("`lab`.`t`", "lab", "t"),
            ("`lab`.`t` /* Partition `p0` */", "lab", "t"),
            ("\"lab\".\"t\"", "lab", "t"),
            ("lab.t", "lab", "t"),
            ("`a``b`.`t.u`", "a`b", "t.u"),
        ] {
            let parsed = names(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parsed, (schema.to_owned(), table.to_owned()), "{text}");
        }
        for garbage in ["", "`lab", "`lab`", "`lab`.", ".t"] {
            assert_eq!(names(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn transactions_are_parsed_with_their_locks() {
        let transactions = transactions(&status());
        let threads: Vec<_> = transactions.iter().map(|transaction| transaction.thread).collect();
        assert_eq!(threads, [Some(11), Some(8), Some(7)], "the deadlock section is not included");
        let [reader, inserter, holder] = &transactions[..] else { panic!("{transactions:?}") };
        assert_eq!((reader.query, reader.count, reader.is_cut), (Some(26), 2, false));
        assert_eq!((holder.waits.as_ref(), holder.locks.len(), holder.is_cut), (None, 3, true));
        let (wanted, waited) = reader.waits.as_ref().unwrap();
        assert_eq!((*waited, wanted.page, wanted.records.len()), (151_975, (5, 3), 1));
        assert_eq!(wanted.records[0].fields[0].as_deref(), Some("80000001"));
        let conflicts = |wanted: &InnodbLock| {
            holder.locks.iter().map(|lock| wanted.waits_for(lock)).collect::<Vec<_>>()
        };
        assert_eq!(conflicts(wanted), [false, true, false]);
        assert_eq!(conflicts(&inserter.waits.as_ref().unwrap().0), [false, false, true]);
    }

    #[test]
    fn locks_have_the_format_of_mysql() {
        let (transactions, dictionary) = (transactions(&status()), Dictionary::default());
        let (insert, _) = transactions[1].waits.as_ref().unwrap();
        let locks = [insert].into_iter().chain(&transactions[2].locks);
        let locks = locks.flat_map(|lock| lock.session_locks(7, &dictionary));
        assert_eq!(
            locks.map(|lock| lock.target.to_string()).collect::<Vec<_>>(),
            [
                "gap before supremum of lab.t (PRIMARY), X,INSERT_INTENTION",
                "table lab.t, IX",
                "row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP",
                "gap before supremum of lab.t (PRIMARY), X",
                "row 0x8000000A of lab.t (PRIMARY), X",
            ]
        );
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(cuts in proptest::collection::vec((0usize..4000, 0usize..4000), 1..6)) {
            let text = status();
            let glued: String =
                cuts.iter().filter_map(|(a, b)| text.get(*a.min(b)..*a.max(b))).collect();
            let status = format!("\nTRANSACTIONS\n\n---TRANSACTION {glued}");
            for transaction in transactions(&status) {
                for lock in &transaction.locks {
                    lock.session_locks(7, &Dictionary::default()).for_each(drop);
                }
            }
        }
    }
}
