//! `hierlock top` on a terminal, with sessions that wait on real servers.

use crate::client_program::ClientProgram;
use crate::locks::{create_numbers, lock_row, waiters};
use crate::striped_server::StripedServer;
use crate::support::{TestDirectory, code, hierlock, stderr, stdout, until};
use crate::terminal::Shell;
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;

#[test]
fn sessions_of_mysql_are_watched_and_ended() {
    sessions_are_watched_and_ended(Engine::Mysql);
}

#[test]
fn sessions_of_postgres_are_watched_and_ended() {
    sessions_are_watched_and_ended(Engine::Postgres);
}

#[test]
fn sessions_of_mariadb_are_watched_and_ended() {
    sessions_are_watched_and_ended(Engine::Mariadb);
}

#[test]
fn fifty_sessions_of_mariadb_are_scrolled() {
    fifty_sessions_are_scrolled(Engine::Mariadb);
}

#[test]
fn fifty_sessions_of_postgres_are_scrolled() {
    fifty_sessions_are_scrolled(Engine::Postgres);
}

/// Starts `hierlock top` in a shell, which then prints its exit code and whether the terminal modes are restored.
fn start(shell: &mut Shell, url: &str, place: &TestDirectory, [rows, columns]: [usize; 2]) {
    let place = place.directory.path().display();
    shell.type_in(&format!("stty rows {rows} cols {columns}; modes=$(stty -g); cd {place}\n"));
    shell.wait_for_text("ready> ");
    shell.type_in(&format!(
        "sh -c 'echo $$ > pid; exec {} top --interval 200ms --log log --url {}'; echo co''de=$?; \
         test \"$modes\" = \"$(stty -g)\" && echo res''tored\n",
        env!("CARGO_BIN_EXE_hierlock"),
        url
    ));
}

fn has_restored_the_terminal(shell: &Shell, exit: i32) {
    shell.wait_for_text("restored");
    shell.wait_for_text(&format!("code={exit}"));
    // The escape sequence that leaves the alternate screen.
    shell.wait_for_text("\u{1b}[?1049l");
}

fn sessions_are_watched_and_ended(engine: Engine) {
    let Some(mut server) = StripedServer::start(engine, &[]) else { return };
    let place = TestDirectory::new();
    let mut holder = server.hold("u1/a1/r1");
    let mut waiter = server.wait_for("u1/a1/r1");
    let mut shell = Shell::start();
    start(&mut shell, &server.url, &place, [30, 170]);
    shell.wait_for_screen("wants u1/a1/r1 exclusive (bucket 2/");
    shell.wait_for_screen("holds u1/a1/r1");
    shell.wait_for_screen("hot slots");
    once_prints_the_same_figures(&server);
    shell.press("/nobody");
    shell.wait_for_screen("no session fits the filter");
    shell.press("\x7f\x7f\x7f\x7f\x7f\x7fA1/R1\r");
    shell.wait_for_screen("wants u1/a1/r1");
    // The session that was listed first stays selected, and it may be either of them. The key Home selects the root blocker.
    shell.press("\u{1b}[H\r");
    shell.wait_for_screen("Waiting directly behind it:");
    shell.wait_for_screen("frees 1 session");
    shell.press("x");
    shell.wait_for_screen("Why is session");
    shell.press("the nightly run waits\r");
    shell.wait_for_screen("Type yes and Enter");
    shell.press("no\r");
    shell.wait_for_screen("not confirmed; nothing was ended");
    // The rest of the screen may be drawn later than this line.
    shell.wait_for_no_text_on_screen("Type yes and Enter");
    assert_eq!(holder.process.try_wait().unwrap(), None);
    shell.press("xthe nightly run waits\r");
    shell.wait_for_screen("Type yes and Enter");
    shell.press("yes\r");
    // This wait has a limit. The waits below would never end if the session were not ended.
    shell.wait_for_screen("ended session");
    assert_eq!(waiter.0.wait().unwrap().code(), Some(0), "the waiter did not get the lock");
    assert_eq!(holder.wait().0, Some(76));
    let log = fs::read_to_string(place.directory.path().join("log")).unwrap();
    let record: Value = serde_json::from_str(&log).unwrap();
    assert_eq!(
        (&record["reason"], &record["gone"]),
        (&"the nightly run waits".into(), &true.into())
    );
    top_reconnects_after_a_server_restart(&mut server, &mut shell);
    shell.press("q");
    has_restored_the_terminal(&shell, 0);
    if engine == Engine::Postgres {
        a_signal_restores_the_terminal(&server, &place);
    }
}

/// Returns the first column of the list on the screen.
fn session_ids(screen: &str) -> Vec<&str> {
    let rows = screen.lines().skip_while(|line| !line.starts_with("SESSION")).skip(1);
    let rows = rows.map(|line| line.split_whitespace().next().unwrap_or_default());
    rows.take_while(|first| first.parse::<i64>().is_ok()).collect()
}

/// A chain of fifty sessions on a terminal of 80 columns and 24 rows: each holds a row and waits for the row of the session
/// before it.
fn fifty_sessions_are_scrolled(engine: Engine) {
    let Some(server) = Sandbox::for_tests(engine) else { return };
    let mut admin = ClientProgram::start(&server);
    create_numbers(&mut admin);
    let mut root = ClientProgram::start(&server);
    root.run(&format!("START TRANSACTION; {}", lock_row(1)));
    let clients = waiters(&server, (2..=51).map(|id| [lock_row(id), lock_row(id - 1)]));
    let ids: Vec<String> =
        [&root].into_iter().chain(&clients).map(|client| client.id.to_string()).collect();
    let place = TestDirectory::new();
    let mut shell = Shell::start();
    start(&mut shell, server.url(), &place, [24, 80]);
    // PostgreSQL lists no row locks of other programs. Only sessions that block another are known to hold one.
    let holding = if engine == Engine::Postgres { 50 } else { 51 };
    shell.wait_for_screen(&format!("50 waiting  {holding} holding"));
    let begins_with = |shell: &Shell, expected: &[String]| {
        let event = format!("the list begins with {expected:?}");
        shell.wait_for_condition(&event, |screen| {
            session_ids(screen).get(..expected.len()).is_some_and(|rows| rows == expected)
        });
    };
    // The session that was listed first stays selected, which may be any of them.
    shell.press("\u{1b}[H");
    begins_with(&shell, &ids[..10]);
    shell.wait_for_condition("the screen fits into 80 columns and 24 rows", |screen| {
        let lines: Vec<&str> = screen.trim_end().lines().collect();
        lines.len() == 24 && lines.iter().all(|line| line.chars().count() <= 80)
    });
    // The deadlocks are the last figure.
    shell.wait_for_condition("all figures are shown", |screen| screen.contains("in all)"));
    let assert_selected = |shell: &mut Shell, id: &str| {
        shell.press("\r");
        shell.wait_for_screen(&format!("Session {id} is "));
        shell.press("q");
        shell.wait_for_no_text_on_screen(&format!("Session {id} is "));
    };
    assert_selected(&mut shell, &ids[0]);
    // End selects the last session. Moving a few rows up does not scroll.
    shell.press("\u{1b}[F");
    shell.wait_for_condition("the last session is on the screen", |screen| {
        session_ids(screen).last() == Some(&&*ids[50])
    });
    assert_selected(&mut shell, &ids[50]);
    shell.press("kkk");
    assert_selected(&mut shell, &ids[47]);
    shell.wait_for_condition("the last session is on the screen", |screen| {
        session_ids(screen).last() == Some(&&*ids[50])
    });
    shell.press("\u{1b}[5~\u{1b}[5~");
    assert_selected(&mut shell, &ids[27]);
    shell.wait_for_condition("the list is scrolled by a page", |screen| {
        session_ids(screen).first() == Some(&&*ids[27])
    });
    // The key s changes the order: by wait time, with the session that does not wait at the end; by session; by waiters;
    // as a tree again.
    shell.press("s\u{1b}[F");
    shell.wait_for_screen("by wait time");
    assert_selected(&mut shell, &ids[0]);
    let mut sorted = ids.clone();
    sorted.sort_by_key(|id| id.parse::<i64>().unwrap());
    shell.press("s\u{1b}[H");
    shell.wait_for_screen("by session");
    begins_with(&shell, &sorted[..10]);
    shell.press("s");
    shell.wait_for_screen("by waiters");
    shell.press("s\u{1b}[H");
    shell.wait_for_screen("by tree");
    begins_with(&shell, &ids[..10]);
    // Only sessions that hold the row of session 30 or wait for it.
    let row = if engine == Engine::Postgres { "(0,30)" } else { "300" };
    shell.press(&format!("/row {row} of\r"));
    shell.wait_for_condition("the list is filtered", |screen| {
        let ids_on_screen = session_ids(screen);
        ids_on_screen.contains(&&*ids[30]) && ids_on_screen.len() <= 2
    });
    shell.press(&format!("/{}\r", "\x7f".repeat(20)));
    shell.press("\u{1b}[H");
    begins_with(&shell, &ids[..10]);
    // When the root blocker is ended, the next session is at the top.
    shell.press("xthe chain is too long\r");
    shell.wait_for_screen("Type yes and Enter");
    shell.press("yes\r");
    shell.wait_for_screen("49 waiting");
    shell.press("\u{1b}[H");
    begins_with(&shell, &ids[1..10]);
    shell.press("q");
    has_restored_the_terminal(&shell, 0);
}

fn top_reconnects_after_a_server_restart(server: &mut StripedServer, shell: &mut Shell) {
    shell.press("/\x7f\x7f\x7f\x7f\x7f\r");
    let pid = server.sandbox.pid().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    shell.wait_for_screen("trying again");
    server.sandbox.restart().unwrap();
    let _holder = server.hold("u9/a9/r9");
    shell.wait_for_screen("u9/a9/r9");
    shell.wait_for_no_text_on_screen("trying again");
}

fn a_signal_restores_the_terminal(server: &StripedServer, place: &TestDirectory) {
    let mut shell = Shell::start();
    start(&mut shell, &server.url, place, [30, 170]);
    shell.wait_for_screen("deadlocks");
    let pid = fs::read_to_string(place.directory.path().join("pid")).unwrap();
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGTERM).unwrap();
    has_restored_the_terminal(&shell, 143);
}

fn once_prints_the_same_figures(server: &StripedServer) {
    let once = server.json(&["top", "--once", "--interval", "300ms", "--json"]);
    let figures = &once["figures"];
    assert_eq!(figures["waiting"], 1, "{once}");
    assert_eq!(figures["rates"]["begun_per_second"], 0.0, "{once}");
    assert!(figures["longest_wait"]["waiting_ms"].is_u64(), "{once}");
    assert!(figures["deadlocks"]["total"].is_u64(), "{once}");
    assert_eq!(once["hot_slots"][0]["false_contention"], "no", "{once}");
    assert_eq!(once["locks"]["trees"][0]["root"], "blocker", "{once}");
    let text = stdout(&server.output(&["top", "--once", "--interval", "300ms"]));
    for part in ["1 waiting", "deadlocks 0 in", "waits", "u1/a1/r1 exclusive", "hot slots:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn without_a_terminal_once_is_suggested() {
    let output = hierlock(&["top", "--url", "file:/nowhere"]).output().unwrap();
    assert_eq!(code(&output), Some(64));
    assert!(stderr(&output).contains("--once"), "{}", stderr(&output));
}

#[test]
fn holders_of_a_lock_file_are_shown() {
    let place = TestDirectory::new();
    let url = format!("file:{}", place.lock_file().display());
    let _holder = place.hold(&["u1"]);
    until("the holder is listed", || {
        let output =
            hierlock(&["top", "--once", "--interval", "200ms", "--url", &url]).output().unwrap();
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        stdout(&output).contains("holds u1 exclusive")
    });
}
