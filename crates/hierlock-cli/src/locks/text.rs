//! A snapshot as text: a tree of sessions, with the locks and the wait of each.

use super::snapshot_view::SnapshotView;
use crate::output::{cell, counted, has_colour, short_list, statement_cell, table_width};
use crate::time::duration_text;
use hierlock::lease::utc;
use hierlock::sql::ClientIdentity;
use hierlock::sql::lock_report::{
    LockSlot, LockSnapshot, PathFilter, PathRelation, ReportedLock, ReportedWait, SessionLocks,
};
use hierlock::{SlotMode, Target};
use hierlock_engine::introspection::{TreeRoot, TreeRow};
use std::time::Duration;

/// The numbers of locks and of further blockers that are shown for a session.
const MAX_LOCKS: usize = 8;
const MAX_BLOCKERS: usize = 5;
/// Sessions deeper than this have the same indentation, and their depth is printed.
const MAX_INDENTED_DEPTH: usize = 12;
/// The width of a line if standard output is not a terminal.
const DEFAULT_WIDTH: usize = 160;

pub(crate) const PREPARED_TRANSACTION: &str = "a prepared transaction, which has no session";

const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const DIM: &str = "\u{1b}[2m";

/// Renders sessions as lines.
pub(super) struct Renderer<'a> {
    snapshot: &'a LockSnapshot,
    filter: Option<&'a PathFilter>,
    has_colour: bool,
    width: usize,
    pub(super) lines: Vec<String>,
}

/// Returns a snapshot as text, in colour on a terminal.
pub(crate) fn snapshot_text(view: &SnapshotView, path: Option<&Target>) -> String {
    let mut renderer = Renderer::new(view.snapshot, view.filter, has_colour());
    renderer.lines.extend([renderer.headline(view, path), String::new()]);
    for (tree, rows) in &view.trees {
        match tree.root {
            TreeRoot::Cycle => renderer.lines.push(renderer.colour(
                RED,
                "these sessions wait for each other in a cycle that the server has not resolved:",
            )),
            TreeRoot::Unknown => {
                let unknown = "the server does not report the blocker of this session:";
                renderer.lines.push(unknown.to_owned());
            }
            TreeRoot::Blocker => {}
        }
        for row in rows {
            renderer.row(row);
        }
        renderer.lines.push(String::new());
    }
    if !view.holders.is_empty() {
        renderer.lines.push("no session waits for:".to_owned());
        for session in &view.holders {
            renderer.session(session, 1, "");
        }
        renderer.lines.push(String::new());
    }
    let mut lines = renderer.lines;
    lines.extend(hidden_text(view));
    lines.extend(missing_texts(view.snapshot));
    lines.extend(view.snapshot.notes.iter().map(|note| format!("note: {note}")));
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

impl<'a> Renderer<'a> {
    pub(super) fn new(
        snapshot: &'a LockSnapshot,
        filter: Option<&'a PathFilter>,
        has_colour: bool,
    ) -> Self {
        let width = table_width().unwrap_or(DEFAULT_WIDTH).max(40);
        Self { snapshot, filter, has_colour, width, lines: Vec::new() }
    }

    fn colour(&self, colour: &str, text: &str) -> String {
        if self.has_colour { format!("{colour}{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn headline(&self, view: &SnapshotView, path: Option<&Target>) -> String {
        let snapshot = self.snapshot;
        let waiting: usize = view
            .trees
            .iter()
            .flat_map(|(_, rows)| rows)
            .filter(|row| snapshot.session(row.session).is_some_and(|it| it.wait.is_some()))
            .count();
        let about = path.map(|path| format!(" for {path}")).unwrap_or_default();
        let result = match (waiting, view.holders.len()) {
            _ if !snapshot.are_waits_visible => {
                "this account may see neither locks nor lock waits".to_owned()
            }
            (0, 0) if path.is_some() => {
                format!("no session waits{about}, and no holder is visible")
            }
            (0, 0) => "no session waits, and no lock of hierlock is visible".to_owned(),
            (0, holders) => format!("no session waits{about}; {} locks", sessions(holders, "hold")),
            _ => sessions(waiting, "wait") + &about,
        };
        format!("{}, {}: {}", snapshot.server, utc(snapshot.taken), self.colour(BOLD, &result))
    }

    fn row(&mut self, row: &TreeRow) {
        if row.session == 0 {
            self.prepared();
            return;
        }
        let others: Vec<String> = row.other_blockers.iter().map(i64::to_string).collect();
        let others = match &others[..] {
            [] => String::new(),
            _ => format!(" (also behind {})", short_list(&others, MAX_BLOCKERS)),
        };
        let behind = match (row.depth, row.parent) {
            (0, Some(next)) => format!(" behind {next}"),
            _ => String::new(),
        };
        if let Some(session) = self.snapshot.session(row.session) {
            self.session(session, row.depth, &format!("{behind}{others}"));
        }
    }

    fn prepared(&mut self) {
        let advice = "end it with COMMIT PREPARED or ROLLBACK PREPARED";
        self.lines.push(self.colour(BOLD, &format!("{PREPARED_TRANSACTION}; {advice}")));
        for it in &self.snapshot.prepared {
            let words = [&it.name, &it.owner, &it.database, &it.since].map(|text| cell(text, 64));
            let [name, owner, database, since] = words;
            self.lines.push(format!("      '{name}' of {owner} in {database} since {since}"));
        }
    }

    /// Adds the lines of one session: its client, its wait, its locks, and its statement.
    pub(super) fn session(&mut self, session: &SessionLocks, depth: usize, wait_note: &str) {
        let info = &session.info;
        let indent = "  ".repeat(depth.min(MAX_INDENTED_DEPTH));
        let deep = if depth > MAX_INDENTED_DEPTH { format!("[{depth}] ") } else { String::new() };
        let mut head = format!("{indent}{deep}{}", self.colour(BOLD, &info.pid.to_string()));
        head += &format!("  {}", client_text(session));
        if let Some(open) = info.in_transaction_for {
            head += &format!(", transaction open for {}", duration_text(open));
        }
        if let Some(state) = &info.state {
            head += &format!(", {}", cell(state, 60));
        }
        let indent = format!("{indent}      ");
        let mut lines = vec![head];
        let mut line = |text: String| lines.push(format!("{indent}{text}"));
        if let Some(wait) = &session.wait {
            let waited = waited(session).map(|waited| format!(" {}", duration_text(waited)));
            let (waited, wanted) = (waited.unwrap_or_default(), wanted_text(wait, self.filter));
            line(self.colour(RED, &format!("waits{waited} for {wanted}{wait_note}")));
        }
        let held = notable_locks(session, self.snapshot);
        for lock in held.iter().take(MAX_LOCKS) {
            line(format!("holds {}", lock_text(lock, self.filter)));
        }
        match (held.len().saturating_sub(MAX_LOCKS), session.has_unlisted_locks) {
            (0, false) => {}
            (0, true) => line("holds locks that the server does not list".to_owned()),
            (more, _) => line(format!("and {}", counted(more as u64, "more lock"))),
        }
        let unconfirmed = unconfirmed_paths(session).join(", ");
        if !unconfirmed.is_empty() {
            let label = session.label.as_ref();
            let is_cut = label.is_some_and(|it| it.omitted > 0 || it.cut_target.is_some());
            let more = if is_cut { " …" } else { "" };
            line(format!("claims to lock {unconfirmed}{more}, without a lock that proves it"));
        }
        let waiting = self.snapshot.wanted_from(info.pid).count();
        if session.wait.is_none() && waiting > 0 {
            line(format!("{} directly behind it", sessions(waiting, "wait")));
        }
        if let Some(statement) = &info.statement {
            let room = self.width.saturating_sub(indent.len() + 2);
            line(self.colour(DIM, &statement_cell(statement, room)));
        }
        self.lines.extend(lines);
    }
}

/// Returns a line that counts the sessions that are not shown. With a filter, only sessions that may hold the node are
/// counted: those with locks that the server does not list.
fn hidden_text(view: &SnapshotView) -> Option<String> {
    let is_unlisted = |session: &&&SessionLocks| session.has_unlisted_locks;
    let unlisted = view.hidden_holders.iter().filter(is_unlisted).count();
    let count = |count: usize| counted(count as u64, "other session");
    match (view.filter.is_some(), view.hidden_holders.len()) {
        (true, _) if unlisted > 0 => Some(format!(
            "{} with locks that the server does not list, maybe also on this node: --all lists them",
            count(unlisted)
        )),
        (false, 1..) => Some(format!(
            "{} with locks that no session waits for: --all lists them",
            count(view.hidden_holders.len())
        )),
        _ => None,
    }
}

/// Returns the locks of a session without those that every statement takes. These are included if a session waits for them,
/// or if there are no others.
pub(crate) fn notable_locks<'a>(
    session: &'a SessionLocks,
    snapshot: &LockSnapshot,
) -> Vec<&'a ReportedLock> {
    let is_wanted = |lock: &ReportedLock| {
        let mut wanted = snapshot.wanted_from(session.info.pid).map(|(_, wanted)| wanted);
        wanted.any(|wanted| {
            wanted.slot.is_none() && wanted.target.record.is_none() && wanted.is_on_object_of(lock)
        })
    };
    // An update lock is two locks on PostgreSQL: a shared one on the row, and a key.
    let is_part = |lock: &ReportedLock| {
        let is_whole = |other: &ReportedLock| {
            other.slot == lock.slot && other.slot_mode() == Some(SlotMode::Update)
        };
        lock.slot.is_some() && lock.is_shared() && session.held.iter().any(is_whole)
    };
    let is_notable =
        |lock: &&ReportedLock| (!lock.is_routine() && !is_part(lock)) || is_wanted(lock);
    let notable: Vec<_> = session.held.iter().filter(is_notable).collect();
    let is_only_routine = notable.is_empty() && session.wait.is_none();
    if is_only_routine { session.held.iter().collect() } else { notable }
}

/// Returns `1 session waits`, `3 sessions wait`.
fn sessions(count: usize, verb: &str) -> String {
    if count == 1 { format!("1 session {verb}s") } else { format!("{count} sessions {verb}") }
}

/// Returns how long a session has been waiting, if the server reports it.
pub(crate) fn waited(session: &SessionLocks) -> Option<Duration> {
    session.info.waiting_for.or(session.info.in_state_for)
}

/// Returns the lock that a session waits for.
pub(crate) fn wanted_text(wait: &ReportedWait, filter: Option<&PathFilter>) -> String {
    wait.wanted.as_ref().map_or("an unknown lock".to_owned(), |lock| lock_text(lock, filter))
}

/// Returns the paths that a session claims to lock, without a lock that proves it.
pub(crate) fn unconfirmed_paths(session: &SessionLocks) -> Vec<String> {
    session.unconfirmed_paths().map(|path| cell(&path.to_string(), 80)).collect()
}

pub(crate) fn prepared_names(snapshot: &LockSnapshot) -> String {
    snapshot.prepared.iter().map(|it| cell(&it.name, 64)).collect::<Vec<_>>().join(", ")
}

/// Returns what this account may not see, and the statements that permit it.
pub(crate) fn missing_texts(snapshot: &LockSnapshot) -> impl Iterator<Item = String> {
    snapshot.missing.iter().map(|missing| {
        let grant = missing.grant(&snapshot.account);
        format!("not visible to this account: {}; {grant}", missing.hidden())
    })
}

/// Returns `billing/rebuild-index on web-3, process 4711, root from 10.0.0.7:51234`.
pub(crate) fn client_text(session: &SessionLocks) -> String {
    let info = &session.info;
    let mut parts = Vec::new();
    match &session.label {
        Some(label) => {
            let ClientIdentity { application, program, host, pid } = &label.client;
            let application = application.as_ref().map(|it| format!("{it}/")).unwrap_or_default();
            parts.push(cell(&format!("{application}{program} on {host}"), 100));
            parts.push(format!("process {pid}"));
        }
        None => {
            parts.extend(info.program.as_ref().map(|program| cell(program, 100)));
            parts.extend(info.client_pid.map(|pid| format!("process {pid}")));
        }
    }
    let user = info.user.as_deref().unwrap_or("a user that this account may not see");
    let from = info.client.as_ref().map(|client| format!(" from {}", cell(client, 80)));
    parts.push(format!("{}{}", cell(user, 64), from.unwrap_or_default()));
    parts.join(", ")
}

/// Returns `u1/a1/r1 exclusive (bucket 2/1358050)` for a slot of hierlock, else the server's name of the lock.
pub(crate) fn lock_text(lock: &ReportedLock, filter: Option<&PathFilter>) -> String {
    let Some(slot) = &lock.slot else { return cell(&lock.target.to_string(), 200) };
    let mode = lock.slot_mode().map(|mode| format!(" {mode}")).unwrap_or_default();
    let relation = filter.and_then(|filter| filter.relation(lock));
    let note = match relation {
        Some(PathRelation::OtherPathInBucket) => ", another path in the same bucket",
        _ => "",
    };
    if lock.nodes.is_empty() {
        let node = filter.and_then(|filter| filter.node_in(slot)).map(|node| {
            let others = match slot {
                LockSlot::Bucket { .. } => " or another path in the same bucket",
                _ => "",
            };
            format!(", that of {}{others}", cell(&node.to_string(), 80))
        });
        return format!("{slot}{mode}{}", node.unwrap_or_default());
    }
    let nodes: Vec<String> = lock.nodes.iter().map(|node| cell(&node.to_string(), 80)).collect();
    format!("{}{mode} ({slot}{note})", nodes.join(" or "))
}
