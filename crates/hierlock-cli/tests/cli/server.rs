//! `hierlock run` with a lock on a server.

use crate::support::{Holder, code, hierlock, stderr, stdout, until};
use hierlock_sandbox::proxy::{Fault, FaultTrigger, Proxy};
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use std::process::{Command, Stdio};
use tokio::runtime::Runtime;

/// Returns a `hierlock run` on a server that needs no provisioning.
fn run(server: &Sandbox, arguments: &[&str]) -> Command {
    run_with(server, "keep_alive_ms=100", arguments)
}

/// Returns a `hierlock run` with these parameters in the URL.
fn run_with(server: &Sandbox, parameters: &str, arguments: &[&str]) -> Command {
    run_at(&format!("{}&{parameters}", url(server)), arguments)
}

fn url(server: &Sandbox) -> String {
    let strategy = match server.engine() {
        Engine::Postgres => "advisory",
        Engine::Mysql | Engine::Mariadb => "on-demand",
    };
    format!("{}?strategy={strategy}", server.url())
}

fn run_at(url: &str, arguments: &[&str]) -> Command {
    let mut command = hierlock(&["run", "--url", url]);
    command.args(arguments);
    command
}

const HOLD: [&str; 4] = ["--", "sh", "-c", "echo $$; exec cat"];

#[test]
fn mysql() {
    commands_hold_locks_on_a_server(Engine::Mysql);
}

#[test]
fn mariadb() {
    commands_hold_locks_on_a_server(Engine::Mariadb);
}

#[test]
fn postgres() {
    commands_hold_locks_on_a_server(Engine::Postgres);
}

/// One server for all checks, because a start takes seconds.
fn commands_hold_locks_on_a_server(engine: Engine) {
    let Some(mut server) = Sandbox::for_tests(engine) else { return };
    crate::plan::a_plan_shows_the_slots_that_a_client_locks(&server);
    two_commands_exclude_each_other(&server);
    a_killed_connection_ends_the_command(&server);
    a_loss_detected_at_the_release_exits_with_76(&server);
    a_reset_of_only_the_client_side_leaves_no_lock(&server);
    exit_codes_are_right_after_every_network_fault(&server);
    a_signal_while_waiting_leaves_no_wait(&server);
    a_waiter_survives_a_restart_of_the_server(&mut server);
    the_end_of_the_server_ends_the_command(server);
}

fn two_commands_exclude_each_other(server: &Sandbox) {
    let holder = Holder::start(run(server, &[&["u1/a1/r1"][..], &HOLD].concat()));
    let output = run(server, &["--try", "u1/a1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(75), "{}", stderr(&output));
    let output = run(server, &["--within", "50ms", "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(75), "{}", stderr(&output));
    assert!(stderr(&output).contains("waiting for `u1`"), "{}", stderr(&output));
    let output = run(server, &["--try", "u1/a1/r2", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    // The command of the waiter checks that the process of the holder has ended.
    let is_gone = format!("! kill -0 {} 2>/dev/null", holder.command);
    let mut waiter = run(server, &["u1", "--", "sh", "-c", &is_gone]).spawn().unwrap();
    assert_eq!(holder.finish(), (Some(0), String::new()));
    assert_eq!(waiter.wait().unwrap().code(), Some(0));
    let output = run(server, &["--try", "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
}

/// A command must not continue without its lock.
fn a_killed_connection_ends_the_command(server: &Sandbox) {
    let arguments = [&["--json", "u1"][..], &HOLD].concat();
    let mut holder = Holder::start(run(server, &arguments));
    assert!(kill_all_sessions(server) > 0);
    let (code, printed) = holder.wait();
    assert_eq!(code, Some(76), "{printed}");
    assert!(printed.contains("lock of `u1` is lost"), "{printed}");
    // The command did not end by itself, so `lost` has no exit code. Its exit is reported by `exited`.
    let events: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&events[1]["event"], &events[1]["code"]),
        (&"lost".into(), &().into()),
        "{printed}"
    );
    assert_eq!(events[2], serde_json::json!({"event": "exited", "code": 143, "signal": 15}));
    let output = run(server, &["--try", "u1", "--", "true"]).output().unwrap();
    assert_eq!(self::code(&output), Some(0), "{}", stderr(&output));
}

/// The failure this prevents: the exit code was 69, which means that the command did not run, so a script would do the work
/// twice. And the output of the command was dropped.
fn a_loss_detected_at_the_release_exits_with_76(server: &Sandbox) {
    for (script, code, signal) in
        [("exit 3", 3, None), ("exit 0", 0, None), ("kill -TERM $$", 143, Some(15))]
    {
        let script = format!("echo $$; read word; {script}");
        let arguments = ["--json", "u1", "--", "sh", "-c", &script];
        let mut holder = Holder::start(run_with(server, "keep_alive_ms=3600000", &arguments));
        assert!(kill_all_sessions(server) > 0);
        holder.write_input("go\n");
        let (exit, printed) = holder.wait();
        assert_eq!(exit, Some(76), "{printed}");
        let events = printed.lines().map(|line| serde_json::from_str(line).unwrap());
        let [_, exited, lost]: [serde_json::Value; 3] =
            events.collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(
            (&exited["event"], &exited["code"]),
            (&"exited".into(), &code.into()),
            "{printed}"
        );
        assert_eq!((&lost["event"], &lost["code"]), (&"lost".into(), &code.into()), "{printed}");
        assert_eq!((&lost["exit"], lost["signal"].as_i64()), (&76.into(), signal), "{printed}");
    }
}

/// The failure this prevents: `run` exited with 76 before it had ended its session on the server, which kept the lock until
/// its own network timeout.
fn a_reset_of_only_the_client_side_leaves_no_lock(server: &Sandbox) {
    let network = Runtime::new().unwrap();
    let proxy = network.block_on(Proxy::start(&url(server)));
    // Detected by the keep-alive while the command runs, and by the release.
    for keep_alive in ["keep_alive_ms=100", "keep_alive_ms=3600000"] {
        let url = format!("{}&{keep_alive}", proxy.url);
        let holder = Holder::start(run_at(&url, &[&["u1"][..], &HOLD].concat()));
        network.block_on(proxy.reset_clients());
        let (code, printed) = holder.finish();
        assert_eq!(code, Some(76), "{printed}");
        let output = run(server, &["--within", "20s", "u1", "--", "true"]).output().unwrap();
        assert_eq!(self::code(&output), Some(0), "{}", stderr(&output));
    }
}

/// After any network fault: with exit code 69 the command has not run, with 0 and 76 it has, and the lock is free.
fn exit_codes_are_right_after_every_network_fault(server: &Sandbox) {
    let network = Runtime::new().unwrap();
    let proxy = network.block_on(Proxy::start(&url(server)));
    let url = format!("{}&keep_alive_ms=3600000&silence_ms=500&reconnect_ms=5000", proxy.url);
    let assert_free = |case: &str| {
        let output = run(server, &["--within", "20s", "u1", "--", "true"]).output().unwrap();
        assert_eq!(code(&output), Some(0), "{case}: {}", stderr(&output));
    };
    for fault in Fault::ALL {
        // Faults while it connects, locks or releases.
        for skip in [1, 4, 7] {
            let case = format!("{fault:?} after {skip}");
            proxy.inject(FaultTrigger::After(skip), fault);
            let output = run_at(&url, &["u1", "--", "echo", "ran"]).output().unwrap();
            let ran = stdout(&output) == "ran\n";
            match code(&output) {
                Some(0 | 76) => assert!(ran, "{case}: {}", stderr(&output)),
                Some(69) => assert!(!ran, "{case}: {}", stderr(&output)),
                other => panic!("{case}: {other:?}: {}", stderr(&output)),
            }
            assert_free(&case);
        }
        // A fault while it releases.
        let case = format!("{fault:?} at the release");
        let holder = Holder::start(run_at(&url, &[&["u1"][..], &HOLD].concat()));
        proxy.inject(FaultTrigger::After(0), fault);
        let (code, printed) = holder.finish();
        assert!(matches!(code, Some(0 | 76)), "{case}: {code:?}: {printed}");
        assert_free(&case);
    }
}

/// InnoDB would continue the wait of a client that is gone, and the lock would block others once it is granted.
fn a_signal_while_waiting_leaves_no_wait(server: &Sandbox) {
    let holder = Holder::start(run(server, &[&["u1"][..], &HOLD].concat()));
    let mut waiter = run(server, &["u1", "--", "true"]).spawn().unwrap();
    until("the waiter waits on the server", || waits(server) == 1);
    kill(Pid::from_raw(waiter.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(waiter.wait().unwrap().code(), Some(143));
    assert_eq!(waits(server), 0);
    assert_eq!(holder.finish().0, Some(0));
}

/// The failure this prevents: the waiter exited with 69 at once, long before its deadline.
fn a_waiter_survives_a_restart_of_the_server(server: &mut Sandbox) {
    let mut holder = Holder::start(run(server, &[&["u1"][..], &HOLD].concat()));
    let waiter = run(server, &["--within", "60s", "u1", "--", "true"]);
    let waiter = { waiter }.stderr(Stdio::piped()).spawn().unwrap();
    until("the waiter waits on the server", || waits(server) == 1);
    let shutdown_signal = match server.engine() {
        Engine::Postgres => Signal::SIGINT,
        Engine::Mysql | Engine::Mariadb => Signal::SIGTERM,
    };
    kill(Pid::from_raw(server.pid().unwrap() as i32), shutdown_signal).unwrap();
    assert_eq!(holder.wait().0, Some(76));
    server.restart().unwrap();
    let output = waiter.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
}

/// Returns the number of sessions that wait for a lock.
fn waits(server: &Sandbox) -> i64 {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        if server.engine() == Engine::Postgres {
            let mut session = PgConnection::connect(server.url()).await.unwrap();
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            return sqlx::query_scalar(waits).fetch_one(&mut session).await.unwrap();
        }
        let url = server.url().replacen("mariadb", "mysql", 1);
        let mut session = MySqlConnection::connect(&url).await.unwrap();
        let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND \
                     ID <> CONNECTION_ID() AND INFO LIKE '%hier_locks%FOR UPDATE%'";
        sqlx::query_scalar(waits).fetch_one(&mut session).await.unwrap()
    })
}

fn the_end_of_the_server_ends_the_command(server: Sandbox) {
    let mut holder = Holder::start(run(&server, &[&["u1"][..], &HOLD].concat()));
    drop(server);
    let (code, printed) = holder.wait();
    assert_eq!(code, Some(76), "{printed}");
    assert!(printed.contains("lock of `u1` is lost"), "{printed}");
}

/// Kills all sessions of hierlock on the server; returns their number.
fn kill_all_sessions(server: &Sandbox) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if server.engine() == Engine::Postgres {
            let mut session = PgConnection::connect(server.url()).await.unwrap();
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE \
                        application_name LIKE '%@%:%'";
            return sqlx::raw_sql(kill).fetch_all(&mut session).await.unwrap().len();
        }
        let url = server.url().replacen("mariadb", "mysql", 1);
        let mut session = MySqlConnection::connect(&url).await.unwrap();
        let list = "SELECT CAST(ID AS CHAR) FROM information_schema.PROCESSLIST WHERE \
                    DB = DATABASE() AND ID <> CONNECTION_ID()";
        let sessions: Vec<String> = sqlx::query_scalar(list).fetch_all(&mut session).await.unwrap();
        for id in &sessions {
            // The session may have ended already.
            let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(&mut session).await;
        }
        sessions.len()
    })
}

#[test]
fn a_missing_server_exits_with_69() {
    let url = "postgres://me:secret@127.0.0.1:1/x";
    let output = hierlock(&["run", "--url", url, "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("127.0.0.1:1"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
}
