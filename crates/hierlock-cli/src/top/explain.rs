//! Explains a session: its locks, its wait, the sessions that wait for it, and advice. Pure.

use crate::locks::text::{
    PREPARED_TRANSACTION, client_text, lock_text, notable_locks, prepared_names, unconfirmed_paths,
    waited, wanted_text,
};
use crate::output::{cell, counted, short_list, statement_cell};
use crate::time::duration_text;
use hierlock::sql::lock_report::{FalseContention, LockSnapshot, ReportedWait, SessionLocks};
use std::collections::BTreeSet;

/// The number of locks, of blockers and of waiters in a list.
const MAX_ITEMS: usize = 8;

/// Returns the explanation as lines without control characters.
pub(super) fn explain(snapshot: &LockSnapshot, pid: i64) -> Vec<String> {
    if pid == 0 {
        return vec![
            "A prepared transaction has locks and no session.".to_owned(),
            "End it with COMMIT PREPARED or ROLLBACK PREPARED:".to_owned(),
            prepared_names(snapshot),
        ];
    }
    let Some(session) = snapshot.session(pid) else {
        return vec![format!("Session {pid} has no locks any more, or has ended.")];
    };
    let mut lines = vec![format!("Session {pid} is {}.", client_text(session))];
    let info = &session.info;
    if let Some(state) = &info.state {
        let since =
            info.in_state_for.map(|it| format!(" for {}", duration_text(it))).unwrap_or_default();
        lines.push(format!("State: {}{since}.", cell(state, 60)));
    }
    if let Some(open) = info.in_transaction_for {
        lines.push(format!("Its transaction has been open for {}.", duration_text(open)));
    }
    lines.push(String::new());
    if let Some(wait) = &session.wait {
        explain_wait(session, wait, snapshot, &mut lines);
    }
    explain_held(session, snapshot, &mut lines);
    let is_waiter =
        |it: &&SessionLocks| it.wait.as_ref().is_some_and(|wait| wait.blockers.contains(&pid));
    let waiters: Vec<&SessionLocks> = snapshot.sessions.iter().filter(is_waiter).collect();
    list(&mut lines, "Waiting directly behind it:", waiters.iter().map(|it| session_line(it)));
    lines.push(String::new());
    lines.push("What can be done:".to_owned());
    lines.extend(advice(session, &waiters, snapshot).into_iter().map(|it| format!("  {it}")));
    if let Some(statement) = &info.statement {
        lines.push(String::new());
        lines.push(format!("Statement: {}", statement_cell(statement, 400)));
    }
    lines
}

/// Returns `812  billing on web-3, process 4711, root from 10.0.0.7:51234`.
fn session_line(session: &SessionLocks) -> String {
    format!("{}  {}", session.info.pid, client_text(session))
}

fn list(lines: &mut Vec<String>, title: &str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return;
    }
    lines.push(title.to_owned());
    lines.extend(items.iter().take(MAX_ITEMS).map(|item| format!("  {item}")));
    if items.len() > MAX_ITEMS {
        lines.push(format!("  and {} more", items.len() - MAX_ITEMS));
    }
}

fn explain_wait(
    session: &SessionLocks,
    wait: &ReportedWait,
    snapshot: &LockSnapshot,
    lines: &mut Vec<String>,
) {
    let wanted = wanted_text(wait, None);
    let since = waited(session).map(|it| format!(" for {}", duration_text(it))).unwrap_or_default();
    lines.push(format!("It has been waiting{since}, and wants {wanted}."));
    if wait.blockers.is_empty() {
        lines.push("The server does not report the blocker.".to_owned());
    }
    let blocker = |pid: &i64| match snapshot.session(*pid) {
        Some(session) => session_line(session),
        None => PREPARED_TRANSACTION.to_owned(),
    };
    list(lines, "Blocked by:", wait.blockers.iter().map(blocker));
}

fn explain_held(session: &SessionLocks, snapshot: &LockSnapshot, lines: &mut Vec<String>) {
    let mut held = notable_locks(session, snapshot);
    held.sort_by_key(|lock| (lock.slot.is_none(), lock.is_shared()));
    list(lines, "It holds:", held.iter().map(|lock| lock_text(lock, None)));
    if session.has_unlisted_locks {
        lines.push("It holds locks that the server does not list.".to_owned());
    }
    let title = "Paths that it claims to lock, without a lock that proves it:";
    list(lines, title, unconfirmed_paths(session).into_iter());
}

fn advice(
    session: &SessionLocks,
    waiters: &[&SessionLocks],
    snapshot: &LockSnapshot,
) -> Vec<String> {
    let mut advice = Vec::new();
    let pid = session.info.pid;
    if let Some(wait) = &session.wait {
        let roots = root_blockers(pid, snapshot);
        let names: Vec<String> = roots.iter().map(i64::to_string).collect();
        advice.push(match &names[..] {
            [] if wait.blockers.is_empty() => {
                "Its blocker is not known, so nothing can be done from here.".to_owned()
            }
            [] => "It is in a cycle of waits that the server has not resolved: end one of the sessions (x)."
                .to_owned(),
            [one] => format!(
                "It continues when session {one} commits, rolls back or ends: look at that session."
            ),
            _ => {
                let names = short_list(&names, MAX_ITEMS);
                format!("It continues when the sessions {names} commit, roll back or end.")
            }
        });
        if snapshot.false_contention(pid) == FalseContention::Yes {
            advice.push(
                "It waits for another path in the same bucket: with more buckets it would not \
                 (`hierlock hot`, `hierlock size`)."
                    .to_owned(),
            );
        }
    }
    if waiters.is_empty() {
        advice.push("No session waits for it, so it can stay.".to_owned());
        return advice;
    }
    let state = session.info.state.as_deref().unwrap_or_default();
    let is_idle = state.starts_with("idle in transaction") || state.starts_with("Sleep");
    if is_idle && session.wait.is_none() {
        advice.push(
            "It does nothing inside an open transaction: its program works on something else, or has \
             forgotten to commit. Ask its owner."
                .to_owned(),
        );
    }
    let count = counted(waiters.len() as u64, "session");
    advice.push(format!("Ending it (x) rolls back what it has changed and frees {count}."));
    advice
}

/// Returns the sessions at the ends of the chains of blockers: those that do not wait.
fn root_blockers(pid: i64, snapshot: &LockSnapshot) -> BTreeSet<i64> {
    let (mut seen, mut queue, mut roots) = (BTreeSet::new(), vec![pid], BTreeSet::new());
    while let Some(next) = queue.pop() {
        if !seen.insert(next) {
            continue;
        }
        match snapshot.session(next).and_then(|session| session.wait.as_ref()) {
            Some(wait) => queue.extend(&wait.blockers),
            None => {
                roots.insert(next);
            }
        }
    }
    roots
}
