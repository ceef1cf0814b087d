//! Deadlocks in texts: the status of InnoDB, error logs, logs of PostgreSQL, pasted as a whole or in part.
//!
//! ```text
//!   text ──► pasted_text: removes prompts, quotes, line numbers, time stamps ──► innodb_deadlock ──┐
//!     └────► postgres_log: stderr, CSV or JSON, in any language ──► postgres_wait ─────────────────┴─► DeadlockDump
//! ```
//!
//! Pure. Unreadable parts are left out; nothing is named that is not in the text.

use super::dictionary::Dictionary;
use super::innodb_deadlock::InnodbDeadlock;
use super::wait_forest::cycle_from;
use super::{LockTarget, pasted_text, postgres_log};
use crate::Dialect;
use serde::Serialize;

/// The details of a deadlock in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlockDump {
    /// The server; None if the text does not show whether it is MySQL or MariaDB.
    pub dialect: Option<Dialect>,
    /// The time, as the server wrote it.
    pub time: Option<String>,
    /// The transactions, in the order of the text.
    pub members: Vec<DeadlockMember>,
    /// The index of the member that was rolled back.
    pub victim: Option<usize>,
    /// Whether the text begins or ends within the deadlock.
    pub is_cut: bool,
    /// Whether key values are guessed from their bytes because the types of the columns are not known.
    pub has_guessed_keys: bool,
}

/// A transaction in a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlockMember {
    /// The process id of the session.
    pub session: Option<i64>,
    /// The transaction id.
    pub transaction: Option<u64>,
    /// The account.
    pub user: Option<String>,
    /// The client's host.
    pub host: Option<String>,
    /// The database of the connection.
    pub database: Option<String>,
    /// The application name of the connection.
    pub program: Option<String>,
    /// The age of the transaction in seconds.
    pub active_seconds: Option<u64>,
    /// The number of row locks.
    pub row_locks: Option<u64>,
    /// The number of changed rows.
    pub changed_rows: Option<u64>,
    /// The statement, without passwords.
    pub statement: Option<String>,
    /// The lock that it waited for.
    pub wanted: Option<DeadlockLock>,
    /// The index of the member that it waited for.
    pub waits_for: Option<usize>,
    /// The locks that it held, and requests queued ahead of others, as far as they are reported.
    pub held: Vec<DeadlockLock>,
    /// The row of its statement, on PostgreSQL.
    pub row: Option<RowContext>,
}

/// A lock of a deadlock member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlockLock {
    /// The object and mode.
    pub target: LockTarget,
    /// The key columns of the record, if known.
    pub columns: Vec<String>,
    /// Whether the lock was held, not only wanted.
    pub granted: bool,
}

/// The row at which a statement of PostgreSQL failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowContext {
    /// `updating`, `deleting`, `locking`, `inserting`; empty in an unknown language.
    pub verb: &'static str,
    /// The ctid of the row: `(0,2)`.
    pub ctid: String,
    /// The table or index.
    pub relation: String,
}

impl DeadlockDump {
    /// Returns the members of the cycle: each waits for the next, the last for the first. Begins with the one that comes
    /// first in the text. None if the text does not contain the whole cycle.
    pub fn cycle(&self) -> Option<Vec<usize>> {
        cycle_from(0, |member| self.members.get(member)?.waits_for)
    }
}

/// Returns the deadlocks in a text, in order.
pub fn read_deadlocks(text: &str) -> Vec<DeadlockDump> {
    // Most of a long log is about other things.
    let lines = if text.contains("*** ") { pasted_text::lines(text) } else { Vec::new() };
    let innodb = InnodbDeadlock::parse_all(lines.iter().map(|line| (line.stamp(), line.rest())));
    // No server is at hand to read the types of columns from.
    let mut dictionary = Dictionary::default();
    dictionary.guesses = true;
    let innodb = innodb.iter().map(|deadlock| deadlock.dump(&dictionary));
    innodb.chain(postgres_log::parse_all(text)).collect()
}

/// Returns whether a text is a server status or log that may contain deadlocks.
pub fn is_server_text(text: &str) -> bool {
    pasted_text::is_innodb(text) || postgres_log::is_log(text)
}

#[cfg(test)]
mod tests;
