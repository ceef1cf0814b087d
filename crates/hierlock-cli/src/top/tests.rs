//! Figures, rows, keys and screens, without a server.

use super::draw::draw;
use super::explain::explain;
use super::history::{DeadlockFigures, Figures, History, LockSample, LongestWait, WaitRates};
use super::rows::{SortOrder, session_rows};
use super::state::{Dialog, KeyAction, TopState};
use hierlock::sql::lock_report::{
    LockSlot, LockSnapshot, ReportedLock, ReportedWait, SessionLocks,
};
use hierlock::sql::{ClientIdentity, SessionLabel};
use hierlock_engine::introspection::{LockKind, LockTarget, LockWait, wait_trees};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::{Duration, UNIX_EPOCH};

fn lock(path: &str, bucket: u32) -> ReportedLock {
    let target = LockTarget {
        schema: Some("app".to_owned()),
        record: Some(format!("2, {bucket}")),
        ..LockTarget::new(LockKind::Row, "hier_lock_buckets", "X")
    };
    let slot = LockSlot::Bucket { table: "hier_lock_buckets".to_owned(), level: 2, bucket };
    ReportedLock::on_slot(target, slot, vec![path.parse().unwrap()])
}

fn session(pid: i64, program: &str, state: &str) -> SessionLocks {
    let mut session = SessionLocks::default();
    session.info.pid = pid;
    session.info.user = Some("app".to_owned());
    session.info.state = Some(state.to_owned());
    session.info.statement = Some("SELECT 1\nFROM hier_lock_buckets FOR UPDATE".to_owned());
    session.info.in_transaction_for = Some(Duration::from_secs(90));
    let client = ClientIdentity {
        application: None,
        program: program.to_owned(),
        host: "web-3".to_owned(),
        pid: 4711,
    };
    session.label = Some(SessionLabel {
        client,
        since: None,
        claims: Vec::new(),
        cut_target: None,
        omitted: 0,
    });
    session
}

fn waiting(
    mut session: SessionLocks,
    wanted: ReportedLock,
    behind: i64,
    secs: u64,
) -> SessionLocks {
    let mut wait = ReportedWait::default();
    wait.wanted = Some(wanted);
    wait.blockers = vec![behind];
    session.wait = Some(wait);
    session.info.waiting_for = Some(Duration::from_secs(secs));
    session
}

/// Session 11 holds a path. 12 wants the same path, 13 another path in the same bucket. No session waits for 14.
fn sessions() -> Vec<SessionLocks> {
    let mut holder = session(11, "rebuild", "idle in transaction");
    holder.held = vec![lock("u1/a1/r1", 7)];
    let mut other = session(14, "import", "active");
    other.held = vec![lock("u2/a1/r1", 9)];
    vec![
        holder,
        waiting(session(12, "billing", "active"), lock("u1/a1/r1", 7), 11, 20),
        waiting(session(13, "evil\u{1b}[2J\nprogram", "active"), lock("u1/a1/r2", 7), 11, 65),
        other,
    ]
}

/// Returns a sample, taken `secs` after the first one.
fn sample(secs: u64, sessions: Vec<SessionLocks>, deadlocks: u64) -> LockSample {
    let mut snapshot = LockSnapshot::new("postgres at db:5432".to_owned());
    snapshot.taken = UNIX_EPOCH + Duration::from_secs(1_800_000_000 + secs);
    let waits: Vec<LockWait> = sessions
        .iter()
        .filter_map(|it| Some((it.info.pid, it.wait.as_ref()?.blockers.clone())))
        .map(|(waiter, blockers)| LockWait { waiter, blockers, wanted: None })
        .collect();
    snapshot.trees = wait_trees(&waits);
    snapshot.sessions = sessions;
    LockSample { snapshot, deadlocks: Some(deadlocks) }
}

fn state() -> TopState {
    let mut state = TopState::default();
    state.observe(Ok(sample(0, sessions(), 5)));
    state.observe(Ok(sample(2, sessions(), 6)));
    state
}

fn press(state: &mut TopState, keys: &str) -> Option<KeyAction> {
    keys.chars().fold(None, |_, key| {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        state.key(KeyEvent::new(code, KeyModifiers::NONE))
    })
}

fn screen(state: &TopState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, false)).unwrap();
    let buffer = terminal.backend().buffer();
    let control = buffer.content.iter().find(|cell| cell.symbol().chars().any(char::is_control));
    assert!(control.is_none(), "{control:?}");
    let rows = buffer.content.chunks(usize::from(width).max(1));
    let rows = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

#[test]
fn figures_are_computed_from_successive_observations() {
    let (first, all) = (|| sessions()[..2].to_vec(), sessions);
    let figures =
        |waiting, holding, longest: Option<(i64, u64)>, rates: Option<(f64, f64)>| Figures {
            waiting,
            holding,
            longest_wait: longest
                .map(|(session, secs)| LongestWait { session, waiting_ms: secs * 1000 }),
            rates: rates.map(|(begun_per_second, ended_per_second)| WaitRates {
                begun_per_second,
                ended_per_second,
            }),
            deadlocks: None,
        };
    let deadlocks =
        |total, recent, secs: u64| DeadlockFigures { total, recent, recent_ms: secs * 1000 };
    let mut history = History::default();
    for (secs, seen, count, expected, expected_deadlocks) in [
        (0, first(), 5, figures(1, 1, Some((12, 20)), None), deadlocks(5, 0, 0)),
        (2, all(), 6, figures(2, 2, Some((13, 65)), Some((0.5, 0.0))), deadlocks(6, 1, 2)),
        (4, vec![], 8, figures(0, 0, None, Some((0.0, 1.0))), deadlocks(8, 3, 4)),
        // Deadlocks of more than a minute ago do not count as recent.
        (63, vec![], 9, figures(0, 0, None, Some((0.0, 0.0))), deadlocks(9, 1, 59)),
        // The server was restarted.
        (64, vec![], 2, figures(0, 0, None, Some((0.0, 0.0))), deadlocks(2, 0, 0)),
    ] {
        history.add(&sample(secs, seen, count));
        let expected = Figures { deadlocks: Some(expected_deadlocks), ..expected };
        assert_eq!(history.figures, expected, "after {secs} s");
    }
}

#[test]
fn rows_are_sorted_and_filtered() {
    let snapshot = sample(0, sessions(), 0).snapshot;
    for (order, filter, expected) in [
        (SortOrder::Tree, "", &[(11, 0), (12, 1), (13, 1), (14, 0)][..]),
        (SortOrder::WaitTime, "", &[(13, 0), (12, 0), (11, 0), (14, 0)]),
        (SortOrder::Session, "", &[(11, 0), (12, 0), (13, 0), (14, 0)]),
        (SortOrder::Waiters, "", &[(11, 0), (12, 0), (13, 0), (14, 0)]),
        (SortOrder::Tree, "U1/a1/R1", &[(11, 0), (12, 1)]),
        (SortOrder::Tree, "import", &[(14, 0)]),
        (SortOrder::Tree, "WEB-3", &[(11, 0), (12, 1), (13, 1), (14, 0)]),
        (SortOrder::Tree, "nobody", &[]),
    ] {
        let rows = session_rows(&snapshot, order, filter);
        let rows: Vec<(i64, usize)> = rows.iter().map(|row| (row.pid, row.depth)).collect();
        assert_eq!(rows, expected, "{order:?} {filter:?}");
    }
    let waiters: Vec<usize> =
        session_rows(&snapshot, SortOrder::Tree, "").iter().map(|row| row.waiters).collect();
    assert_eq!(waiters, [2, 0, 0, 0]);
}

#[test]
fn keys_move_sort_filter_and_pause() {
    let mut state = state();
    assert_eq!(state.selected, Some(11));
    for (keys, selected) in
        [("j", 12), ("jjjjjjj", 14), ("kkkkkkkkk", 11), ("G", 14), ("g", 11), ("s", 11), ("g", 13)]
    {
        assert_eq!(press(&mut state, keys), None);
        assert_eq!(state.selected, Some(selected), "{keys:?}");
    }
    // In the filter, q is a letter and does not quit.
    assert_eq!(press(&mut state, "/import q"), None);
    assert!(state.rows.is_empty() && state.selected.is_none());
    press(&mut state, "\u{1b}");
    assert_eq!((state.filter.as_str(), state.rows.len()), ("", 4));
    press(&mut state, "/import\n");
    assert_eq!((state.selected, state.rows.len()), (Some(14), 1));
    press(&mut state, "/\u{1b}p");
    assert_eq!(state.rows.len(), 1, "Esc restores the filter before");
    state.observe(Ok(sample(4, vec![], 6)));
    assert_eq!((state.rows.len(), state.history.figures.waiting), (1, 0), "paused");
    press(&mut state, "p");
    state.observe(Ok(sample(5, vec![], 6)));
    assert_eq!((state.rows.len(), state.selected), (0, None));
    // No session is selected.
    assert_eq!((press(&mut state, "x\njk"), &state.dialog), (None, &Dialog::None));
    for keys in ["q", "\u{1b}"] {
        assert_eq!(press(&mut state, keys), Some(KeyAction::Quit));
    }
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    press(&mut state, "?");
    assert_eq!(state.key(control_c), Some(KeyAction::Quit), "in a dialog too");
}

#[test]
fn a_session_is_ended_only_with_a_reason_and_a_confirmation() {
    let end = Some(KeyAction::End { reason: "too long".to_owned() });
    let prepare = Some(KeyAction::PrepareEnd { pid: 11 });
    for (answer, expected) in
        [("yes\n", end), ("y\n", None), ("\n", None), ("no\n", None), ("\u{1b}", None)]
    {
        let mut state = state();
        assert_eq!(press(&mut state, "x\n  \n"), None, "a reason is needed");
        assert_eq!(press(&mut state, "too long\n"), prepare);
        state.prepared(Ok("11 holds u1/a1/r1".to_owned()));
        assert_eq!(press(&mut state, answer), expected, "{answer:?}");
        assert_eq!(state.dialog, Dialog::None);
        assert!(state.message.is_some());
    }
    // The dialog is closed before the server answers.
    let mut state = state();
    assert_eq!(press(&mut state, "xwhy\n"), prepare);
    press(&mut state, "\u{1b}");
    state.prepared(Ok("11 holds u1/a1/r1".to_owned()));
    assert_eq!(state.dialog, Dialog::None);
    assert_eq!(press(&mut state, "xwhy\n"), prepare);
    state.prepared(Err("it is gone".to_owned()));
    assert_eq!((&state.dialog, state.message.as_deref()), (&Dialog::None, Some("it is gone")));
}

#[test]
fn sessions_are_explained() {
    let snapshot = sample(0, sessions(), 0).snapshot;
    let texts: Vec<String> =
        [11, 13, 14, 99].iter().map(|pid| explain(&snapshot, *pid).join("\n")).collect();
    insta::assert_snapshot!(texts.join("\n-----\n"));
}

#[test]
fn screens_are_drawn() {
    let mut state = state();
    let mut screens = vec![screen(&state, 110, 16), screen(&state, 20, 5)];
    press(&mut state, "/u1");
    state.observe(Err("postgres at db:5432 does not answer".to_owned()));
    screens.push(screen(&state, 80, 16));
    press(&mut state, "\nxtoo long\n");
    state.prepared(Ok("11  rebuild on web-3\n      holds u1/a1/r1\n".to_owned()));
    screens.push(screen(&state, 80, 16));
    insta::assert_snapshot!(screens.join("=====\n"));
}

/// A session deep in a chain keeps its id on the screen, and moving within a page does not scroll.
#[test]
fn a_long_chain_is_scrolled() {
    let chain = |length: i64| {
        let mut sessions = sessions()[..1].to_vec();
        for pid in 1_000_012..1_000_011 + length {
            let behind = if pid == 1_000_012 { 11 } else { pid - 1 };
            let session = session(pid, "billing", "active");
            sessions.push(waiting(session, lock("u1/a1/r1", 7), behind, 20));
        }
        sessions
    };
    let mut state = TopState::default();
    state.observe(Ok(sample(0, chain(51), 0)));
    for width in [40, 80] {
        let first = |text: &str| {
            let list = text.lines().skip_while(|line| !line.starts_with("SESSION")).skip(1);
            let row = list.map(|line| line.split_whitespace().next().unwrap_or_default());
            row.map(str::to_owned).collect::<Vec<_>>()
        };
        press(&mut state, "g");
        let before = first(&screen(&state, width, 24));
        assert_eq!((&*before[0], &*before[1]), ("11", "1000012"), "{before:?}");
        press(&mut state, "G");
        let bottom = first(&screen(&state, width, 24));
        assert!(bottom.contains(&"1000061".to_owned()) && bottom[0] != "11", "{bottom:?}");
        press(&mut state, "kkkkk");
        assert_eq!(first(&screen(&state, width, 24)), bottom);
        press(&mut state, "g");
        assert_eq!(first(&screen(&state, width, 24)), before);
    }
}

/// A terminal may have any size, and may be resized in any dialog.
#[test]
fn every_screen_is_drawn_at_every_size() {
    for keys in ["", "?", "/u1", "\n", "x", "xwhy\n"] {
        let mut state = state();
        press(&mut state, keys);
        let mut states = vec![state];
        if keys == "xwhy\n" {
            let mut state = self::state();
            press(&mut state, keys);
            state.prepared(Ok("a\nb\n".repeat(40)));
            states.push(state);
        }
        states.push(TopState::default());
        for state in &states {
            for (width, height) in
                [(0, 0), (0, 5), (1, 1), (2, 3), (5, 2), (9, 7), (20, 4), (21, 13)]
            {
                screen(state, width, height);
            }
            screen(state, 300, 90);
        }
    }
}
