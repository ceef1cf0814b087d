//! Deadlocks as text: the statements, held locks and waits of each session, the victim, and advice.

use super::advice::advice;
use crate::output::{cell, counted, statement_cell};
use hierlock_engine::Dialect;
use hierlock_engine::introspection::{
    DeadlockDump, DeadlockLock, DeadlockMember, LockKind, RowContext, lock_words,
};
use hierlock_lab::member_name;

/// The maximum length of a printed statement, in characters.
const MAX_STATEMENT: usize = 400;

pub(super) fn deadlocks(deadlocks: &[DeadlockDump]) -> String {
    let count = deadlocks.len();
    let texts = deadlocks.iter().enumerate().map(|(index, deadlock)| {
        let number = if count > 1 { format!(" {} of {count}", index + 1) } else { String::new() };
        deadlock_text(&number, deadlock)
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn deadlock_text(number: &str, deadlock: &DeadlockDump) -> String {
    let server = deadlock.dialect.map_or("InnoDB", Dialect::product_name);
    let time = deadlock.time.as_deref().map(|time| format!(", {}", cell(time, 60)));
    let mut text = format!("deadlock{number}: {server}{}\n", time.unwrap_or_default());
    if let Some(cycle) = deadlock.cycle() {
        // `A ─► B ─► A`
        let names =
            cycle.iter().chain(cycle.first()).map(|member| member_name(*member).to_string());
        text += &format!("  {}\n", names.collect::<Vec<_>>().join(" ─► "));
    }
    for (index, member) in deadlock.members.iter().enumerate() {
        text += &member_text(deadlock, index, member);
    }
    if deadlock.is_cut {
        text += "\nnote: the text is cut off; there may be more than is shown\n";
    }
    if deadlock.has_guessed_keys {
        text += "\nnote: values of keys are guessed from their bytes; ask the server itself (--url) to be sure\n";
    }
    text += "\nadvice:\n";
    text.extend(advice(deadlock).iter().map(|advice| format!("  - {}\n", cell(advice, 1000))));
    text
}

fn member_text(deadlock: &DeadlockDump, index: usize, member: &DeadlockMember) -> String {
    let mut text = format!("\n{}  {}", member_name(index), member_description(deadlock, member));
    if deadlock.victim == Some(index) {
        text += "  ← victim, rolled back";
    }
    text.push('\n');
    let mut line = |label: &str, value: String| text += &format!("   {label:<6} {value}\n");
    let statement = member.statement.as_deref();
    let statement = statement.map(|sql| statement_cell(sql, MAX_STATEMENT));
    line("ran", statement.unwrap_or_else(|| "(not in the text)".to_owned()));
    for lock in &member.held {
        let label = if lock.granted { "holds" } else { "queued" };
        line(label, lock_line(lock));
    }
    let waiter = deadlock.members.iter().position(|other| other.waits_for == Some(index));
    if member.held.is_empty()
        && let Some(waiter) = waiter
    {
        let waiter = member_name(waiter);
        line("holds", format!("what {waiter} waits for (the text does not say more)"));
    }
    if let Some(lock) = &member.wanted {
        line("waits", lock_line(lock));
        if let Some(row) = &member.row {
            line("", row_line(row));
        }
    }
    if let Some(next) = member.waits_for {
        line("for", member_name(next).to_string());
    }
    text
}

/// Returns `session 23, root@127.0.0.1, transaction 1577, open for 3 s, 2 row locks`.
fn member_description(deadlock: &DeadlockDump, member: &DeadlockMember) -> String {
    let is_postgres = deadlock.dialect == Some(Dialect::Postgres);
    let session = member.session.map_or("session not in the text".to_owned(), |session| {
        format!("{} {session}", if is_postgres { "process" } else { "session" })
    });
    let host = member.host.as_ref().map(|host| format!("@{host}"));
    let account = member.user.as_ref().map(|user| format!("{user}{}", host.unwrap_or_default()));
    let parts = [
        Some(session),
        account,
        member.database.as_ref().map(|database| format!("database {database}")),
        member.program.as_ref().map(|program| format!("program {program}")),
        member.transaction.map(|number| format!("transaction {number}")),
        member.active_seconds.map(|seconds| format!("open for {seconds} s")),
        member.row_locks.map(|locks| counted(locks, "row lock")),
        member.changed_rows.map(|rows| format!("{} changed", counted(rows, "row"))),
    ];
    cell(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "), 400)
}

/// Returns the lock in plain words and, in brackets, in those of the server. The verb is left out, because the label of the
/// line has it.
fn lock_line(lock: &DeadlockLock) -> String {
    let words = lock_words(&lock.target, &lock.columns, lock.granted);
    let words =
        words.strip_prefix("waits ").or_else(|| words.strip_prefix("holds ")).unwrap_or(&words);
    let index = lock.target.index.as_ref().map(|index| format!(" on {index}")).unwrap_or_default();
    let kind = match lock.target.kind {
        LockKind::Row | LockKind::Gap => String::new(),
        kind => format!(" on {}", kind.name()),
    };
    cell(&format!("{words}  [{}{index}{kind}]", lock.target.mode), 600)
}

/// Returns `to update the row at (0,1) of accounts`.
fn row_line(row: &RowContext) -> String {
    let verb = match row.verb {
        "updating" => "to update",
        "deleting" => "to delete",
        "locking" => "to lock",
        "inserting" => "to insert",
        _ => "at",
    };
    cell(&format!("{verb} the row at {} of {}", row.ctid, row.relation), 400)
}
