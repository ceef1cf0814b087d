//! Parses deadlocks in the status of InnoDB: the locks that each transaction held and wanted. Pure.

use super::deadlock_dump::{DeadlockDump, DeadlockMember};
use super::dictionary::Dictionary;
use super::innodb_status::{InnodbLock, first_number, parse_lock, transaction_number};
use super::pasted_text::time_stamp;
use super::{DeadlockReport, DeadlockWait};
use crate::Dialect;
use crate::redact_statement;

/// A deadlock in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InnodbDeadlock {
    /// The time and the query ids: distinguishes deadlocks.
    id: String,
    time: Option<String>,
    members: Vec<InnodbMember>,
    /// The number of the victim, from 1, as in the text.
    victim: Option<usize>,
}

/// A transaction in a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InnodbMember {
    dialect: Option<Dialect>,
    /// Its session and transaction, without statement and locks. The transaction id is None before the transaction has
    /// changed anything.
    details: DeadlockMember,
    /// The lines of its statement.
    statement: Vec<String>,
    wants: Vec<InnodbLock>,
    /// From MySQL: the lock that the previous member of the cycle waits for, held or queued.
    holds: Vec<InnodbLock>,
    /// From MariaDB: the granted locks on the wanted object, of any transaction, including itself.
    conflicts: Vec<InnodbLock>,
}

/// The subject of the lines below a title.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Outside,
    Heading,
    Transaction,
    Wants,
    Holds,
    Conflicts,
}

impl InnodbDeadlock {
    /// Parses the last deadlock in a status.
    pub(super) fn parse_last(status: &str) -> Option<Self> {
        let (_, section) = status.split_once("\nLATEST DETECTED DEADLOCK\n")?;
        let lines = std::iter::once("LATEST DETECTED DEADLOCK").chain(section.lines());
        let last = Self::parse_all(lines.map(|line| (None, line))).into_iter().next();
        last.filter(|deadlock| deadlock.members.len() > 1)
    }

    /// Parses all deadlocks in a text. Each line comes with its time stamp, if it has one.
    pub(super) fn parse_all<'a>(
        lines: impl Iterator<Item = (Option<&'a str>, &'a str)>,
    ) -> Vec<Self> {
        let mut deadlocks: Vec<Self> = Vec::new();
        let mut section = Section::Outside;
        // The lines before the first title: a truncated text may begin below it.
        let mut before: Vec<&str> = Vec::new();
        for (stamp, line) in lines {
            let begins = line.starts_with("LATEST DETECTED DEADLOCK")
                || line.contains("Transactions deadlock detected");
            let title = line.strip_prefix("*** ");
            let number = title.and_then(member_number);
            let is_next = |last: &Self| {
                title.is_some_and(|title| title.trim_end().ends_with(" TRANSACTION:"))
                    && number.is_some_and(|number| number <= last.members.len())
            };
            if begins
                || (title.is_some()
                    && deadlocks.last().is_none_or(|last| is_next(last) || last.victim.is_some()))
            {
                deadlocks.push(Self::default());
                section = Section::Heading;
            }
            let Some(deadlock) = deadlocks.last_mut() else {
                before.push(line);
                continue;
            };
            let beginning = std::mem::take(&mut before);
            if !begins {
                deadlock.parse_beginning(&beginning, number);
            }
            if deadlock.time.is_none() && section != Section::Outside {
                deadlock.time = stamp.map(str::to_owned);
            }
            if let Some(title) = title {
                section = deadlock.parse_title(title, number);
            } else if matches!(line, "TRANSACTIONS" | "FILE I/O")
                || line.starts_with("END OF INNODB")
            {
                section = Section::Outside;
            } else if !begins {
                deadlock.parse_line(section, line);
            }
        }
        let empty = InnodbMember::default();
        deadlocks.retain(|deadlock| deadlock.members.iter().any(|member| *member != empty));
        deadlocks
    }

    /// Parses the lines before the first title, which are the end of the first transaction.
    fn parse_beginning(&mut self, lines: &[&str], number: Option<usize>) {
        let thread = lines.iter().rposition(|line| line.contains(" thread id "));
        if let (Some(thread), None | Some(1)) = (thread, number) {
            let begin = lines[..thread].iter().rposition(|line| line.starts_with("TRANSACTION "));
            self.add_members(1);
            for line in &lines[begin.unwrap_or(thread)..] {
                self.parse_line(Section::Transaction, line);
            }
        }
    }

    /// Parses the text after `*** `. Returns the section below it.
    fn parse_title(&mut self, title: &str, number: Option<usize>) -> Section {
        if title.starts_with("WE ROLL BACK TRANSACTION") {
            self.victim = number;
            self.add_members(number.unwrap_or(0));
            return Section::Outside;
        }
        // MariaDB numbers only the transactions.
        self.add_members(number.unwrap_or(1));
        if title.contains("HOLDS THE LOCK") {
            Section::Holds
        } else if title.contains("WAITING FOR THIS LOCK") {
            Section::Wants
        } else if title.contains("CONFLICTING WITH") {
            Section::Conflicts
        } else {
            Section::Transaction
        }
    }

    /// Adds empty members up to this count. Members whose text is cut off stay empty.
    fn add_members(&mut self, count: usize) {
        // InnoDB does not search this deep.
        if count > self.members.len() && count <= 1000 {
            self.members.resize_with(count, InnodbMember::default);
        }
    }

    fn parse_line(&mut self, section: Section, line: &str) {
        if let Some((_, query)) = line.split_once(" query id ") {
            self.id.extend(query.split(' ').take(1));
        }
        match self.members.last_mut() {
            Some(member) => member.parse(section, line),
            None if section == Section::Heading
                && line.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                self.id.push_str(line);
                self.time = time_stamp(line).map(str::to_owned);
            }
            None => {}
        }
    }

    /// Returns schema, table and index of all locks, to read their columns.
    pub(super) fn indexes(&self) -> impl Iterator<Item = [&str; 3]> {
        let locks = self
            .members
            .iter()
            .flat_map(|member| [&member.wants, &member.holds, &member.conflicts]);
        locks.flatten().filter_map(InnodbLock::index)
    }

    /// Returns a report with process ids and targets; None if a process id is missing. Each member waits for the next
    /// in the text.
    pub(super) fn report(&self, dictionary: &Dictionary) -> Option<DeadlockReport> {
        let others = self.members.iter().cycle().skip(1);
        let wait = |(member, other): (&InnodbMember, &InnodbMember)| {
            let (waiter, holder) = (member.details.session?, other.details.session?);
            let wants = member.wants.first();
            let wanted = wants.map(|lock| lock.wanted(dictionary));
            let blocking =
                wants.map(|wants| other.blocking_locks(wants, member)).unwrap_or_default();
            let blocking = blocking.iter().flat_map(|lock| lock.session_locks(holder, dictionary));
            Some(DeadlockWait { waiter, holder, wanted, blocking: blocking.collect() })
        };
        let waits = self.members.iter().zip(others).map(wait).collect::<Option<_>>()?;
        Some(DeadlockReport { id: self.id.clone(), waits })
    }

    /// Returns all details in the text.
    pub(super) fn dump(&self, dictionary: &Dictionary) -> DeadlockDump {
        let count = self.members.len();
        let members = self.members.iter().enumerate().map(|(index, member)| {
            // After the last member there may be another, if the end is cut off.
            let next = if index + 1 < count { Some(index + 1) } else { self.victim.map(|_| 0) };
            let waits_for = next.filter(|next| *next != index);
            let others = self.members.iter().filter(|other| *other != member);
            let held = member.held(others.flat_map(|other| &other.conflicts));
            let held = held.iter().flat_map(|lock| lock.dump_locks(dictionary)).collect();
            let wanted = member.wants.first().and_then(|lock| lock.dump_locks(dictionary).next());
            let statement = member.statement.join("\n");
            let statement = Some(redact_statement(statement.trim()).into_owned());
            let statement = statement.filter(|statement| !statement.is_empty());
            DeadlockMember { statement, wanted, waits_for, held, ..member.details.clone() }
        });
        let victim = self.victim.and_then(|number| number.checked_sub(1));
        DeadlockDump {
            dialect: self.members.iter().find_map(|member| member.dialect),
            time: self.time.clone(),
            members: members.collect(),
            victim: victim.filter(|victim| *victim < count),
            is_cut: self.victim.is_none()
                || !self.members.iter().all(|member| member.details.session.is_some()),
            has_guessed_keys: self.indexes().any(|index| !dictionary.has_types(index)),
        }
    }
}

/// Parses the number in `(2) TRANSACTION:` or `WE ROLL BACK TRANSACTION (2)`.
fn member_number(title: &str) -> Option<usize> {
    let (_, number) = title.split_once('(')?;
    number.split_once(')')?.0.parse().ok()
}

impl InnodbMember {
    /// Returns the locks and queued requests of this member that block `waiter`. Empty if the text does not show them.
    fn blocking_locks(&self, wants: &InnodbLock, waiter: &Self) -> Vec<InnodbLock> {
        // MySQL lists exactly this lock, granted or not.
        if !self.holds.is_empty() {
            return self.holds.iter().map(|lock| wants.shared_part(lock)).collect();
        }
        // MariaDB lists all granted locks on the record, by transaction id, which only transactions with changes have.
        let Some(number) = self.details.transaction else { return Vec::new() };
        let is_blocking = |lock: &&InnodbLock| lock.owner == number && wants.waits_for(lock);
        let granted =
            waiter.conflicts.iter().filter(is_blocking).map(|lock| wants.shared_part(lock));
        let mut blocking: Vec<InnodbLock> = granted.collect();
        if blocking.is_empty() {
            // No granted lock blocks, so its request does, which is ahead in the queue.
            blocking.extend(self.wants.iter().filter(|lock| wants.waits_for(lock)).cloned());
        }
        blocking
    }

    /// Returns the locks that it holds: those that MySQL lists, or its own of those that MariaDB lists.
    fn held<'a>(&'a self, others: impl Iterator<Item = &'a InnodbLock>) -> Vec<&'a InnodbLock> {
        if !self.holds.is_empty() {
            return self.holds.iter().collect();
        }
        let mut held: Vec<&InnodbLock> = Vec::new();
        for lock in others.chain(&self.conflicts) {
            if self.details.transaction == Some(lock.owner) && !held.contains(&lock) {
                held.push(lock);
            }
        }
        held
    }

    /// Parses a line below a title: of a list of locks, or of the transaction itself.
    fn parse(&mut self, section: Section, line: &str) {
        match section {
            Section::Holds => parse_lock(&mut self.holds, line),
            Section::Wants => parse_lock(&mut self.wants, line),
            Section::Conflicts => parse_lock(&mut self.conflicts, line),
            Section::Transaction => self.parse_transaction(line),
            Section::Heading | Section::Outside => {}
        }
    }

    fn parse_transaction(&mut self, line: &str) {
        let details = &mut self.details;
        if details.session.is_some() {
            self.statement.push(line.to_owned());
        } else if let Some(rest) = line.strip_prefix("TRANSACTION ") {
            details.transaction = transaction_number(rest);
            details.active_seconds = number_after(rest, "ACTIVE ");
        } else if line.contains(" lock struct(s)") {
            details.row_locks = number_before(line, " row lock(s)");
            details.changed_rows = number_after(line, "undo log entries ");
        } else if let Some((server, rest)) = line.split_once(" thread id ") {
            details.session = first_number(rest).map(|id| id as i64);
            self.dialect = match server.trim() {
                "MariaDB" => Some(Dialect::Mariadb),
                "MySQL" => Some(Dialect::Mysql),
                _ => None,
            };
            let words = rest.split_once(" query id ").map_or("", |(_, rest)| rest);
            // `33 db1 10.0.0.7 app updating`: the address follows a resolved host name.
            let mut words = words.split_whitespace().skip(1);
            details.host = words.next().map(str::to_owned);
            let is_address = |word: &&str| word.parse::<std::net::IpAddr>().is_ok();
            details.user = words.find(|word| !is_address(word)).map(str::to_owned);
        }
    }
}

fn number_after(text: &str, words: &str) -> Option<u64> {
    first_number(text.split_once(words)?.1)
}

fn number_before(text: &str, words: &str) -> Option<u64> {
    text.split_once(words)?.0.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
