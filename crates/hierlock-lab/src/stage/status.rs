//! Reads what InnoDB says of itself (`SHOW ENGINE INNODB STATUS`): transactions with the locks they hold
//! and wait for, and the last deadlock. Pure: text in, transactions out; what cannot be read is left out.

use super::dictionary::Dictionary;
use super::innodb;
use super::who::Who;
use crate::observation::Thing;

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transaction {
    /// The number of its connection.
    pub(super) thread: Option<i64>,
    /// The server's number of its statement.
    pub(super) query: Option<u64>,
    /// Its own number, as its locks name it; 0 before it has changed anything.
    pub(super) number: Option<u64>,
    /// What it waits for, and for how long, in whatever unit the server counts.
    pub(super) waits: Option<(StatusLock, u64)>,
    /// How many locks it has, as it says.
    pub(super) count: usize,
    /// Those that are listed: with what it waits for, if all are.
    pub(super) locks: Vec<StatusLock>,
    /// There are more than are listed.
    pub(super) is_cut: bool,
}

/// A lock on a table, or on records of one page of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StatusLock {
    pub(super) home: String,
    pub(super) table: String,
    /// None for a whole table.
    pub(super) index: Option<String>,
    /// Where the page is.
    pub(super) page: (u64, u64),
    /// `X`, `S`, `IX`, `IS`, `AUTO-INC`.
    pub(super) mode: String,
    pub(super) is_gap: bool,
    pub(super) is_record_only: bool,
    pub(super) is_insert: bool,
    pub(super) is_waiting: bool,
    /// The number of the transaction.
    pub(super) owner: u64,
    pub(super) records: Vec<StatusRecord>,
}

/// A record of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StatusRecord {
    /// Its number on the page; that of the end of the index is 1.
    pub(super) heap: u64,
    /// Its fields in hexadecimal, as far as they are written out; null is none.
    pub(super) fields: Vec<Option<String>>,
}

/// The number of the record that stands for the end of an index.
const SUPREMUM: u64 = 1;

/// All transactions. The section of the last deadlock looks the same, and comes before.
pub(super) fn transactions(status: &str) -> Vec<Transaction> {
    let Some((_, section)) = status.split_once("\nTRANSACTIONS\n") else { return Vec::new() };
    let section = section.split_once("\nFILE I/O\n").map_or(section, |(section, _)| section);
    section.split("\n---TRANSACTION ").skip(1).map(transaction).collect()
}

/// One block, from behind `TRANSACTION `.
fn transaction(text: &str) -> Transaction {
    let mut transaction = Transaction::default();
    let head: String = text.chars().take_while(char::is_ascii_digit).collect();
    transaction.number = head.parse().ok();
    let mut lines = text.lines();
    // Where the next lock goes.
    let mut waited = None;
    let mut in_wait = false;
    for line in lines.by_ref() {
        if let Some(rest) =
            line.split(" thread id ").nth(1).filter(|_| transaction.thread.is_none())
        {
            transaction.thread = rest.split(',').next().and_then(|id| id.parse().ok());
            transaction.query = line.split("query id ").nth(1).and_then(first_number);
        } else if line.contains(" lock struct(s)") {
            let words = line.trim_start_matches("LOCK WAIT ");
            transaction.count = first_number(words).unwrap_or(0) as usize;
        } else if let Some(rest) = line.strip_prefix("------- TRX HAS BEEN WAITING ") {
            waited = first_number(rest);
            in_wait = true;
        } else if line.starts_with("------------------") {
            in_wait = false;
        } else if line.contains("SUPPRESSING FURTHER PRINTS") {
            transaction.is_cut = true;
        } else if let Some(lock) = lock_line(line) {
            match in_wait {
                true => transaction.waits = Some((lock, waited.unwrap_or(0))),
                false => transaction.locks.push(lock),
            }
        } else {
            let lock = match in_wait {
                true => transaction.waits.as_mut().map(|(lock, _)| lock),
                false => transaction.locks.last_mut(),
            };
            if let Some(lock) = lock {
                lock.read_record(line);
            }
        }
    }
    transaction
}

/// `RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 30 lock mode S
/// locks rec but not gap waiting`, or ``TABLE LOCK table `lab`.`t` trx id 30 lock mode IX``.
pub(super) fn lock_line(line: &str) -> Option<StatusLock> {
    let mut lock = StatusLock::default();
    let rest = if let Some(rest) = line.strip_prefix("RECORD LOCKS space id ") {
        lock.page = (first_number(rest)?, first_number(rest.split(" page no ").nth(1)?)?);
        let (index, rest) = rest.split_once(" index ")?.1.split_once(" of table ")?;
        lock.index = Some(index.trim_matches('`').to_owned());
        rest
    } else {
        line.strip_prefix("TABLE LOCK table ")?
    };
    let (table, rest) = rest.split_once(" trx id ")?;
    (lock.home, lock.table) = names(table)?;
    lock.owner = first_number(rest)?;
    let mode = rest.split_once("lock mode ").or_else(|| rest.split_once("lock_mode "))?.1;
    lock.mode = mode.split(' ').next()?.to_owned();
    lock.is_gap = mode.contains("gap before rec");
    lock.is_record_only = mode.contains("rec but not gap");
    lock.is_insert = mode.contains("insert intention");
    lock.is_waiting = mode.ends_with("waiting");
    Some(lock)
}

/// `` `lab`.`t` ``, and behind it a partition that is not asked for.
fn names(text: &str) -> Option<(String, String)> {
    let (home, table) = text.trim().strip_prefix('`')?.split_once("`.`")?;
    let table = table.split_once('`').map_or(table, |(table, _)| table);
    Some((home.to_owned(), table.to_owned()))
}

pub(super) fn first_number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

impl StatusLock {
    /// ` 0: len 4; hex 80000001; asc     ;;`, below `Record lock, heap no 2 PHYSICAL RECORD: …`.
    pub(super) fn read_record(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("Record lock, heap no ") {
            let heap = first_number(rest).unwrap_or(0);
            self.records.push(StatusRecord { heap, fields: Vec::new() });
            return;
        }
        let (Some(record), Some((number, field))) = (
            self.records.last_mut(),
            line.strip_prefix(' ').and_then(|line| line.split_once(": ")),
        ) else {
            return;
        };
        if number.parse() != Ok(record.fields.len()) {
            return;
        }
        let hex = field.split_once("; hex ").and_then(|(_, hex)| hex.split_once(';'));
        record.fields.push(hex.map(|(hex, _)| hex.to_owned()));
    }

    /// Its table and index; none for a whole table.
    pub(super) fn place(&self) -> Option<[&str; 3]> {
        Some([&self.home, &self.table, self.index.as_deref()?])
    }

    /// Does one who waits for this record wait because of the other lock? As InnoDB itself decides.
    pub(super) fn waits_for(&self, other: &Self) -> bool {
        if self.index != other.index || are_compatible(&self.mode, &other.mode) {
            return false;
        }
        if self.index.is_none() {
            return (&self.home, &self.table) == (&other.home, &other.table);
        }
        let is_shared =
            |record: &&StatusRecord| other.records.iter().any(|r| r.heap == record.heap);
        let Some(record) = self.records.iter().find(is_shared).filter(|_| self.page == other.page)
        else {
            return false;
        };
        let in_gap = self.is_gap || record.heap == SUPREMUM;
        !(in_gap && !self.is_insert
            || !self.is_insert && other.is_gap
            || in_gap && other.is_record_only
            || other.is_insert)
    }

    /// In the words of MySQL's tables of locks, so that both say the same.
    fn mode_words(&self) -> String {
        let mut words = self.mode.replace("AUTO-INC", "AUTO_INC");
        for (is, word) in [
            (self.is_gap, ",GAP"),
            (self.is_record_only, ",REC_NOT_GAP"),
            (self.is_insert, ",INSERT_INTENTION"),
        ] {
            if is {
                words.push_str(word);
            }
        }
        words
    }

    /// What it is on: a record each, or the table.
    pub(super) fn things(&self, who: &Who, dictionary: &Dictionary) -> Vec<Thing> {
        let mode = self.mode_words();
        let Some(index) = &self.index else {
            return vec![innodb::table(who, &self.home, &self.table, &mode)];
        };
        let place = [self.home.as_str(), &self.table, index];
        let named = |record: Option<&str>| innodb::record(who, place, record, &mode);
        match self.records.is_empty() {
            // The page was not in memory.
            true => vec![named(None)],
            false => self
                .records
                .iter()
                .map(|record| match record.heap {
                    SUPREMUM => named(Some("supremum")),
                    _ => named(dictionary.record(place, &record.fields).as_deref()),
                })
                .collect(),
        }
    }
}

/// Modes of InnoDB that can be held side by side.
fn are_compatible(a: &str, b: &str) -> bool {
    matches!(
        (a, b),
        ("IS", "IS" | "IX" | "S" | "AUTO-INC")
            | ("IX", "IS" | "IX" | "AUTO-INC")
            | ("S", "IS" | "S")
            | ("AUTO-INC", "IS" | "IX")
    )
}
