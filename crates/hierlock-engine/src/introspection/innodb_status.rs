//! Reads `SHOW ENGINE INNODB STATUS`: transactions and their locks. What cannot be read is left out. Pure.

use super::conflict::InnodbMode;
use super::dictionary::Dictionary;
use super::{LockKind, LockTarget, SessionLock};
use crate::row::{CellRow, cell};

/// Asks InnoDB for the text; it is in the third column of the only row.
pub const QUERY: &str = "SHOW ENGINE INNODB STATUS";

pub(super) fn text(rows: &[CellRow]) -> &str {
    rows.first().map_or("", |row| cell(row, 2))
}

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnodbTransaction {
    /// The number of its session.
    pub thread: Option<i64>,
    /// The server's number of its statement.
    pub query: Option<u64>,
    /// What it waits for, and for how long, in whatever unit the server counts.
    pub waits: Option<(InnodbLock, u64)>,
    /// How many locks it has, as it says.
    pub count: usize,
    /// Those that are listed: with what it waits for, if all are.
    pub locks: Vec<InnodbLock>,
    /// There are more than are listed.
    pub is_cut: bool,
}

impl InnodbTransaction {
    /// Why not all of its locks are listed, if so.
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
    /// Its database.
    pub schema: String,
    /// Its table.
    pub table: String,
    /// None for a whole table.
    pub index: Option<String>,
    /// Where the page is.
    pub page: (u64, u64),
    /// In the words of MySQL's table of locks, so that both say the same: `X,REC_NOT_GAP`.
    pub mode: String,
    /// Not granted yet.
    pub is_waiting: bool,
    /// The number of the transaction; 0 before it has changed anything.
    pub owner: u64,
    /// Those that it is on; none for a table, or if the page was not in memory.
    pub records: Vec<InnodbRecord>,
}

/// A record of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnodbRecord {
    /// Its number on the page; that of the end of the index is 1.
    pub heap: u64,
    /// Its fields in hexadecimal, as far as they are written; an ellipsis is behind one that is cut, null is none.
    pub fields: Vec<Option<String>>,
}

/// The number of the record that stands for the end of an index.
const SUPREMUM: u64 = 1;

/// All transactions. The section of the last deadlock looks the same, and comes before.
pub fn transactions(status: &str) -> Vec<InnodbTransaction> {
    let Some((_, section)) = status.split_once("\nTRANSACTIONS\n") else { return Vec::new() };
    let section = section.split_once("\nFILE I/O\n").map_or(section, |(section, _)| section);
    section.split("\n---TRANSACTION ").skip(1).map(transaction).collect()
}

/// Reads one block, from behind `TRANSACTION `.
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
            read_lock(if in_wait { &mut wanted } else { &mut transaction.locks }, line);
        }
    }
    transaction.waits = wanted.pop().map(|lock| (lock, waited));
    transaction
}

/// Reads a line that begins a lock, or belongs to the last one.
pub(super) fn read_lock(locks: &mut Vec<InnodbLock>, line: &str) {
    if let Some(lock) = lock_line(line) {
        locks.push(lock);
    } else if let Some(lock) = locks.last_mut() {
        lock.read_record(line);
    }
}

/// `RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 30 lock mode S
/// locks rec but not gap waiting`, or ``TABLE LOCK table `lab`.`t` trx id 30 lock mode IX``.
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
    lock.owner = first_number(rest)?;
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

/// Reads `` `lab`.`t` ``, however the settings of the server and the session quote it; a partition is left out.
fn names(text: &str) -> Option<(String, String)> {
    let (schema, rest) = name(text.trim())?;
    let (table, _) = name(rest.strip_prefix('.')?)?;
    Some((schema, table))
}

/// The name that a text begins with, and what stands behind it. A quote in a quoted name is doubled.
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

pub(super) fn first_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

impl InnodbLock {
    /// Reads ` 0: len 4; hex 80000001; asc     ;;`, below `Record lock, heap no 2 PHYSICAL RECORD: …`.
    fn read_record(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("Record lock, heap no ") {
            let heap = first_number(rest).unwrap_or(0);
            self.records.push(InnodbRecord { heap, fields: Vec::new() });
        } else if let Some(record) = self.records.last_mut()
            && let Some((number, field)) = line.strip_prefix(' ').and_then(|it| it.split_once(": "))
            && number.parse() == Ok(record.fields.len())
        {
            let hex = field.split_once("; hex ").and_then(|(_, hex)| hex.split_once(';'));
            // Of a long one only the beginning is written.
            let end = if field.contains("(total ") { "…" } else { "" };
            record.fields.push(hex.map(|(hex, _)| format!("{hex}{end}")));
        }
    }

    /// Its schema, table and index; none for a whole table.
    pub(super) fn index(&self) -> Option<[&str; 3]> {
        Some([&self.schema, &self.table, self.index.as_deref()?])
    }

    /// Returns whether one who waits for this lock waits because of the other. As InnoDB itself decides.
    pub fn waits_for(&self, other: &Self) -> bool {
        let (Some(wanted), Some(held)) =
            (InnodbMode::parse(&self.mode), InnodbMode::parse(&other.mode))
        else {
            return false;
        };
        if self.index.is_none() {
            let is_same = (&self.schema, &self.table) == (&other.schema, &other.table);
            return other.index.is_none() && is_same && !wanted.is_compatible(&held);
        }
        let record = self.shared_record(other).filter(|_| self.index == other.index);
        record.is_some_and(|record| wanted.waits_for(&held, record.heap == SUPREMUM))
    }

    fn shared_record(&self, other: &Self) -> Option<&InnodbRecord> {
        let is_shared =
            |record: &&InnodbRecord| other.records.iter().any(|r| r.heap == record.heap);
        self.records.iter().find(is_shared).filter(|_| self.page == other.page)
    }

    /// The other lock, as far as it is on the record that this one is for.
    pub(super) fn shared_part(&self, other: &Self) -> Self {
        let mut part = other.clone();
        if let Some(shared) = self.shared_record(other) {
            part.records.retain(|record| record.heap == shared.heap);
        }
        part
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

    /// What one who waits for it wants: a wait is for one record, or for a table.
    pub(super) fn wanted(&self, dictionary: &Dictionary) -> LockTarget {
        self.target(self.records.first(), dictionary)
    }

    /// The same as locks of its session: of each record, or of the table.
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

    /// A lock on records, each by its place on the page and its first field, as both servers write it.
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

    /// As MariaDB 10.11 writes it with its locks, shortened: a reader and an inserter wait for a holder.
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

    /// The waits of sessions in a mode with ANSI_QUOTES were not seen.
    #[test]
    fn names_are_read_however_they_are_quoted() {
        for (text, schema, table) in [
            ("`lab`.`t`", "lab", "t"),
            ("`lab`.`t` /* Partition `p0` */", "lab", "t"),
            ("\"lab\".\"t\"", "lab", "t"),
            ("lab.t", "lab", "t"),
            ("`a``b`.`t.u`", "a`b", "t.u"),
        ] {
            let read = names(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(read, (schema.to_owned(), table.to_owned()), "{text}");
        }
        for garbage in ["", "`lab", "`lab`", "`lab`.", ".t"] {
            assert_eq!(names(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn transactions_are_read_with_their_locks() {
        let transactions = transactions(&status());
        let threads: Vec<_> = transactions.iter().map(|it| it.thread).collect();
        assert_eq!(threads, [Some(11), Some(8), Some(7)], "not that of the deadlock");
        let [reader, inserter, holder] = &transactions[..] else { panic!("{transactions:?}") };
        assert_eq!((reader.query, reader.count, reader.is_cut), (Some(26), 2, false));
        assert_eq!((holder.waits.as_ref(), holder.locks.len(), holder.is_cut), (None, 3, true));
        let (wanted, waited) = reader.waits.as_ref().unwrap();
        assert_eq!((*waited, wanted.page, wanted.records.len()), (151_975, (5, 3), 1));
        assert_eq!(wanted.records[0].fields[0].as_deref(), Some("80000001"));
        let in_way = |wanted: &InnodbLock| {
            holder.locks.iter().map(|lock| wanted.waits_for(lock)).collect::<Vec<_>>()
        };
        assert_eq!(in_way(wanted), [false, true, false]);
        assert_eq!(in_way(&inserter.waits.as_ref().unwrap().0), [false, false, true]);
    }

    #[test]
    fn locks_are_written_in_the_words_of_mysql() {
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
        fn garbage_is_only_garbage(cuts in proptest::collection::vec((0usize..4000, 0usize..4000), 1..6)) {
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
