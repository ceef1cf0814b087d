//! The rows of the list of sessions: filter and order. Pure.

use crate::locks::snapshot_view::SnapshotView;
use crate::locks::text::{
    PREPARED_TRANSACTION, client_text, lock_text, notable_locks, prepared_names, unconfirmed_paths,
    waited, wanted_text,
};
use crate::output::short_list;
use hierlock::sql::lock_report::{LockSnapshot, ReportedLock, SessionLocks};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of locks in the row of a session.
const MAX_LOCKS: usize = 3;

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortOrder {
    /// As a tree: each waiter is below its blocker.
    #[default]
    Tree,
    WaitTime,
    Session,
    Waiters,
}

impl SortOrder {
    pub(super) fn next(self) -> Self {
        match self {
            SortOrder::Tree => SortOrder::WaitTime,
            SortOrder::WaitTime => SortOrder::Session,
            SortOrder::Session => SortOrder::Waiters,
            SortOrder::Waiters => SortOrder::Tree,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            SortOrder::Tree => "tree",
            SortOrder::WaitTime => "wait time",
            SortOrder::Session => "session",
            SortOrder::Waiters => "waiters",
        }
    }
}

/// A session in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionRow {
    pub(super) pid: i64,
    /// The depth in the tree; 0 in other orders.
    pub(super) depth: usize,
    pub(super) is_waiting: bool,
    /// How long it has been waiting, if the server reports it.
    pub(super) waited: Option<Duration>,
    pub(super) blockers: Vec<i64>,
    /// The number of sessions that wait directly behind this one.
    pub(super) waiters: usize,
    /// The lock that the session waits for, else the locks that it holds.
    pub(super) lock: String,
    pub(super) client: String,
    /// The text that the filter is compared with, in lower case.
    search: String,
}

/// Returns the rows whose path, program, host, user or session id contains the filter, ignoring case.
pub(super) fn session_rows(
    snapshot: &LockSnapshot,
    order: SortOrder,
    filter: &str,
) -> Vec<SessionRow> {
    let view = SnapshotView::new(snapshot, None, false);
    let mut waiters: BTreeMap<i64, usize> = BTreeMap::new();
    for blocker in snapshot.sessions.iter().flat_map(|it| &it.wait).flat_map(|it| &it.blockers) {
        *waiters.entry(*blocker).or_default() += 1;
    }
    let in_trees = view.trees.iter().flat_map(|(_, rows)| rows);
    let in_trees = in_trees.map(|row| (row.session, row.depth));
    let holders = view.holders.iter().map(|session| (session.info.pid, 0));
    let row = |(pid, depth)| {
        let waiters = waiters.get(&pid).copied().unwrap_or_default();
        SessionRow::new(snapshot, pid, depth, waiters)
    };
    let filter = filter.to_lowercase();
    let mut rows: Vec<SessionRow> =
        in_trees.chain(holders).map(row).filter(|row| row.search.contains(&filter)).collect();
    if order != SortOrder::Tree {
        rows.iter_mut().for_each(|row| row.depth = 0);
    }
    match order {
        SortOrder::Tree => {}
        SortOrder::WaitTime => rows.sort_by_key(|row| Reverse((row.is_waiting, row.waited))),
        SortOrder::Session => rows.sort_by_key(|row| row.pid),
        SortOrder::Waiters => rows.sort_by_key(|row| Reverse(row.waiters)),
    }
    rows
}

impl SessionRow {
    fn new(snapshot: &LockSnapshot, pid: i64, depth: usize, waiters: usize) -> Self {
        let mut row = Self {
            pid,
            depth,
            is_waiting: false,
            waited: None,
            blockers: Vec::new(),
            waiters,
            lock: String::new(),
            client: PREPARED_TRANSACTION.to_owned(),
            search: String::new(),
        };
        let Some(session) = snapshot.session(pid) else {
            row.lock = prepared_names(snapshot);
            row.search = row.lock.to_lowercase();
            return row;
        };
        row.client = client_text(session);
        row.lock = held_text(session, snapshot);
        row.search = format!("{pid} {} {}", row.client, row.lock);
        if let Some(wait) = &session.wait {
            row.is_waiting = true;
            row.waited = waited(session);
            row.blockers.clone_from(&wait.blockers);
            row.lock = format!("wants {}", wanted_text(wait, None));
            row.search += &format!(" {}", row.lock);
        }
        row.search = row.search.to_lowercase();
        row
    }
}

/// Returns what a session holds: slots of hierlock, and paths that its label claims. Other locks only if there are no slots.
fn held_text(session: &SessionLocks, snapshot: &LockSnapshot) -> String {
    let mut locks = notable_locks(session, snapshot);
    locks.sort_by_key(|lock| lock.is_shared());
    let (slots, others): (Vec<_>, Vec<_>) = locks.into_iter().partition(|it| it.slot.is_some());
    let texts = |locks: &[&ReportedLock]| locks.iter().map(|it| lock_text(it, None)).collect();
    let others = if slots.is_empty() { texts(&others) } else { Vec::new() };
    let parts =
        [("holds", texts(&slots)), ("claims", unconfirmed_paths(session)), ("holds", others)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> =
        parts.map(|(verb, names)| format!("{verb} {}", short_list(&names, MAX_LOCKS))).collect();
    if parts.is_empty() {
        return "locks that the server does not list".to_owned();
    }
    parts.join("; ")
}
