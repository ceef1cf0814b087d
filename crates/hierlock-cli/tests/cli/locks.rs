//! `hierlock locks` on sessions of other programs, compared with the server's own views.

use crate::client_program::ClientProgram;
use crate::locks_paths::locks_of_hierlock_are_shown_by_path;
use crate::support::{code, hierlock, stderr, stdout, until};
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn mysql() {
    locks_of_a_server_are_listed(Engine::Mysql);
}

#[test]
fn mariadb() {
    locks_of_a_server_are_listed(Engine::Mariadb);
}

#[test]
fn postgres() {
    locks_of_a_server_are_listed(Engine::Postgres);
}

/// Makes the table whose rows are locked.
pub(crate) fn create_numbers(admin: &mut ClientProgram) {
    let rows: Vec<String> = (1..=60).map(|id| format!("({})", 10 * id)).collect();
    admin.run("CREATE TABLE numbers (id INT PRIMARY KEY, password INT);");
    admin.run(&format!("INSERT INTO numbers (id) VALUES {};", rows.join(", ")));
}

/// One server for all checks, because a start takes seconds.
fn locks_of_a_server_are_listed(engine: Engine) {
    let Some(server) = Sandbox::for_tests(engine) else { return };
    let mut admin = ClientProgram::start(&server);
    create_numbers(&mut admin);
    let checks: [fn(&Sandbox, &mut ClientProgram); 8] = [
        other_programs_are_listed_without_a_lock_table,
        |server, _| waits_for_tables_keys_and_definitions_are_listed(server),
        cycles_and_prepared_transactions_are_marked,
        fifty_waiters_of_one_session_are_listed,
        a_chain_of_fifty_waiters_is_listed,
        |server, _| locks_of_hierlock_are_shown_by_path(server, server.engine() != Engine::Mariadb),
        missing_privileges_are_reported_with_a_grant,
        |server, _| crate::locks_kill::sessions_are_ended(server),
    ];
    for check in checks {
        check(&server, &mut admin);
        wait_until_free(&server);
    }
    a_killed_server_exits_with_69(&server);
}

pub(crate) fn locks(server: &Sandbox, arguments: &[&str]) -> String {
    let output =
        hierlock(&[&["locks", "--url", server.url()][..], arguments].concat()).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(!stdout(&output).contains('\u{1b}'), "colours only on a terminal");
    stdout(&output)
}

pub(crate) fn locks_json(server: &Sandbox, arguments: &[&str]) -> Value {
    serde_json::from_str(&locks(server, &[arguments, &["--json"]].concat())).unwrap()
}

/// Returns the rows of the trees in order: session and depth.
pub(crate) fn rows(snapshot: &Value) -> Vec<(i64, u64)> {
    let trees = snapshot["trees"].as_array().unwrap();
    let rows = trees.iter().flat_map(|tree| tree["sessions"].as_array().unwrap());
    rows.map(|row| (row["id"].as_i64().unwrap(), row["depth"].as_u64().unwrap())).collect()
}

pub(crate) fn session(snapshot: &Value, id: i64) -> Value {
    let sessions = snapshot["sessions"].as_array().unwrap();
    let found = sessions.iter().find(|session| session["id"] == id);
    found.unwrap_or_else(|| panic!("no session {id} in {snapshot}")).clone()
}

/// Returns all pairs of a waiter and its blocker in a snapshot.
fn blockers(snapshot: &Value) -> BTreeSet<(i64, i64)> {
    let sessions = snapshot["sessions"].as_array().unwrap().iter();
    let pairs = sessions.flat_map(|session| {
        let blocked_by = session["blocked_by"].as_array().unwrap().iter();
        blocked_by.map(|id| (session["id"].as_i64().unwrap(), id.as_i64().unwrap()))
    });
    pairs.collect()
}

/// Returns all pairs of a waiter and its blocker from the server's own views.
fn blockers_by_server(server: &Sandbox, admin: &mut ClientProgram) -> BTreeSet<(i64, i64)> {
    let pairs = match server.engine() {
        Engine::Postgres => {
            "SELECT COALESCE(string_agg(pid || ' ' || blocker, ','), '') FROM \
             (SELECT DISTINCT pid, unnest(pg_blocking_pids(pid)) AS blocker FROM pg_locks) b;"
        }
        Engine::Mysql => {
            "SET SESSION group_concat_max_len = 1000000; SELECT COALESCE(GROUP_CONCAT(DISTINCT \
             waiting_pid, ' ', blocking_pid), '') FROM sys.innodb_lock_waits;"
        }
        Engine::Mariadb => {
            "SET SESSION group_concat_max_len = 1000000; SELECT COALESCE(GROUP_CONCAT(DISTINCT \
             r.trx_mysql_thread_id, ' ', b.trx_mysql_thread_id), '') \
             FROM information_schema.INNODB_LOCK_WAITS w \
             JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id \
             JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id;"
        }
    };
    let pairs = admin.ask(pairs);
    let pair = |text: &str| {
        let (waiter, blocker) = text.split_once(' ').unwrap();
        (waiter.parse().unwrap(), blocker.parse().unwrap())
    };
    pairs.split(',').filter(|text| !text.is_empty()).map(pair).collect()
}

/// Waits until the trees have `count` rows and agree with the server; returns the snapshot.
fn wait_for_rows(server: &Sandbox, admin: &mut ClientProgram, count: usize) -> Value {
    let mut snapshot = Value::Null;
    until("all sessions wait", || {
        snapshot = locks_json(server, &[]);
        rows(&snapshot).len() == count
    });
    until("the server lists the same blockers", || {
        // The tables with the waits of InnoDB are not refreshed if they are read too often.
        std::thread::sleep(std::time::Duration::from_millis(150));
        blockers_by_server(server, admin) == blockers(&snapshot)
    });
    snapshot
}

fn other_programs_are_listed_without_a_lock_table(server: &Sandbox, admin: &mut ClientProgram) {
    let [mut holder, mut waiter] = [(); 2].map(|()| ClientProgram::start(server));
    assert_eq!(rows(&locks_json(server, &[])), []);
    holder.run("START TRANSACTION; UPDATE numbers SET password = 1 WHERE id = 10;");
    waiter.send("UPDATE numbers SET password = 2 WHERE id = 10 AND 'hunter2' <> 'hunter3';");
    let mut snapshot = wait_for_rows(server, admin, 2);
    assert_eq!(rows(&snapshot), [(holder.id, 0), (waiter.id, 1)]);
    // InnoDB shows the times a little later than the wait.
    until("the times are known", || {
        snapshot = locks_json(server, &[]);
        session(&snapshot, waiter.id)["waiting_ms"].is_u64()
            && session(&snapshot, holder.id)["transaction_ms"].is_u64()
    });
    let waits = session(&snapshot, waiter.id);
    assert_eq!(waits["waits_for"]["object"], "numbers", "{waits}");
    assert_eq!(waits["waits_for"]["kind"], "row", "{waits}");
    assert!(waits["waiting_ms"].as_u64().is_some_and(|millis| millis < 60_000), "{waits}");
    let holds = session(&snapshot, holder.id);
    assert!(holds["transaction_ms"].as_u64().is_some_and(|millis| millis < 60_000), "{holds}");
    assert!(holds["client"].as_str().unwrap().contains("127.0.0.1:"), "{holds}");
    // MariaDB shows the program only with performance_schema, which is off by default.
    let program = match server.engine() {
        Engine::Mysql => "mysql".into(),
        Engine::Mariadb => Value::Null,
        Engine::Postgres => "psql".into(),
    };
    assert_eq!(holds["program"], program);
    let text = locks(server, &[]);
    assert!(text.contains("1 session waits\n"), "{text}");
    assert!(text.contains(&format!("\n{}  ", holder.id)), "{text}");
    assert!(text.contains(&format!("\n  {}  ", waiter.id)), "{text}");
    assert!(text.contains("UPDATE numbers SET password = 2 WHERE id = 10 AND …"), "{text}");
    assert!(!text.contains("hunter") && !snapshot.to_string().contains("hunter"), "{text}");
}

/// Waits until no session has a lock. A waiting session whose client has ended stays until its lock is granted.
pub(crate) fn wait_until_free(server: &Sandbox) {
    until("all sessions have ended", || {
        locks_json(server, &["--all"])["sessions"] == serde_json::json!([])
    });
}

/// Starts a session that holds a lock and one that waits for it; returns the lock that the second one waits for.
fn wanted_lock(server: &Sandbox, [held, wanted]: [&str; 2]) -> Value {
    let [mut holder, mut waiter] = [(); 2].map(|()| ClientProgram::start(server));
    holder.run(held);
    waiter.send(wanted);
    let mut snapshot = Value::Null;
    until(wanted, || {
        snapshot = locks_json(server, &[]);
        rows(&snapshot) == [(holder.id, 0), (waiter.id, 1)]
    });
    assert!(session(&snapshot, holder.id)["waits_for"].is_null());
    session(&snapshot, waiter.id)["waits_for"].clone()
}

fn waits_for_tables_keys_and_definitions_are_listed(server: &Sandbox) {
    let postgres = [
        ("BEGIN; LOCK TABLE numbers;", "SELECT * FROM numbers;", "table", "numbers"),
        (
            "BEGIN; UPDATE numbers SET password = 3;",
            "ALTER TABLE numbers ADD x INT;",
            "table",
            "numbers",
        ),
        (
            "DO $$ BEGIN PERFORM pg_advisory_lock(77); END $$;",
            "SELECT pg_advisory_lock(77);",
            "advisory",
            "77",
        ),
        (
            "BEGIN; INSERT INTO numbers VALUES (5);",
            "INSERT INTO numbers VALUES (5);",
            "transaction",
            "",
        ),
    ];
    let innodb = [
        ("LOCK TABLES numbers WRITE;", "SELECT * FROM numbers;", "table", "numbers"),
        (
            "START TRANSACTION; UPDATE numbers SET password = 3 WHERE id = 20;",
            "ALTER TABLE numbers ADD x INT;",
            "metadata",
            "numbers",
        ),
        ("DO GET_LOCK('nightly', 1);", "DO GET_LOCK('nightly', 100);", "advisory", "nightly"),
        (
            "START TRANSACTION; DELETE FROM numbers WHERE id = 15;",
            "INSERT INTO numbers (id) VALUES (15);",
            "gap",
            "numbers",
        ),
        (
            "START TRANSACTION; SELECT id INTO @x FROM numbers WHERE id = 20 LOCK IN SHARE MODE;",
            "UPDATE numbers SET password = 1 WHERE id = 20;",
            "row",
            "numbers",
        ),
    ];
    let is_postgres = server.engine() == Engine::Postgres;
    for (held, waits, kind, object) in if is_postgres { &postgres[..] } else { &innodb } {
        let wanted = wanted_lock(server, [held, waits]);
        wait_until_free(server);
        assert_eq!(wanted["kind"], *kind, "{waits}: {wanted}");
        let is_named = object.is_empty() || wanted["object"] == *object;
        assert!(is_named, "{waits}: {wanted}");
    }
}

/// Starts sessions that each run a statement that takes a lock, and then one that waits.
pub(crate) fn waiters(
    server: &Sandbox,
    statements: impl Iterator<Item = [String; 2]>,
) -> Vec<ClientProgram> {
    let waiter = |[held, wanted]: [String; 2]| {
        let mut client = ClientProgram::start(server);
        client.run(&format!("START TRANSACTION; {held}"));
        client.send(&wanted);
        client
    };
    statements.map(waiter).collect()
}

pub(crate) fn lock_row(id: usize) -> String {
    format!("UPDATE numbers SET password = {id} WHERE id = {};", 10 * id)
}

/// InnoDB does not detect a cycle of a row lock and a `GET_LOCK`. PostgreSQL detects all cycles, but a prepared transaction
/// has no session.
fn cycles_and_prepared_transactions_are_marked(server: &Sandbox, _: &mut ClientProgram) {
    let [mut first, mut second] = [(); 2].map(|()| ClientProgram::start(server));
    if server.engine() == Engine::Postgres {
        first.run(&format!("BEGIN; {} PREPARE TRANSACTION 'nightly';", lock_row(1)));
        second.send(&lock_row(1));
        until("the waiter is listed", || {
            rows(&locks_json(server, &[])) == [(0, 0), (second.id, 1)]
        });
        let text = locks(server, &[]);
        assert!(text.contains("a prepared transaction") && text.contains("'nightly' of"), "{text}");
        assert_eq!(locks_json(server, &[])["prepared_transactions"][0]["name"], "nightly");
        first.run("ROLLBACK PREPARED 'nightly';");
        return;
    }
    first.run(&format!("START TRANSACTION; {}", lock_row(1)));
    second.run("DO GET_LOCK('cycle', 1);");
    second.send(&lock_row(1));
    first.send("DO GET_LOCK('cycle', 100);");
    let mut ids = [first.id, second.id];
    ids.sort_unstable();
    let mut snapshot = Value::Null;
    until("both wait", || {
        snapshot = locks_json(server, &[]);
        rows(&snapshot) == ids.map(|id| (id, 0))
    });
    assert_eq!(snapshot["trees"][0]["root"], "cycle");
    let text = locks(server, &[]);
    assert!(text.contains("these sessions wait for each other"), "{text}");
    assert!(text.contains(&format!(" behind {}\n", ids[0])), "{text}");
}

fn fifty_waiters_of_one_session_are_listed(server: &Sandbox, admin: &mut ClientProgram) {
    let mut holder = ClientProgram::start(server);
    holder.run(&format!("START TRANSACTION; {}", lock_row(1)));
    let clients = waiters(server, (2..=51).map(|id| [lock_row(id), lock_row(1)]));
    let snapshot = wait_for_rows(server, admin, 51);
    let rows = rows(&snapshot);
    assert_eq!(rows[0], (holder.id, 0));
    let waiting: BTreeSet<i64> = rows[1..].iter().map(|(id, _)| *id).collect();
    assert_eq!(waiting, clients.iter().map(|client| client.id).collect());
    // On PostgreSQL the first waiter holds the tuple lock, and the others wait for it.
    let deepest = if server.engine() == Engine::Postgres { 2 } else { 1 };
    assert!(rows[1..].iter().all(|(_, depth)| (1..=deepest).contains(depth)), "{rows:?}");
    assert!(locks(server, &[]).contains("50 sessions wait\n"));
}

fn a_chain_of_fifty_waiters_is_listed(server: &Sandbox, admin: &mut ClientProgram) {
    // Each session holds its own row, and waits for the row of the session before it.
    let mut holder = ClientProgram::start(server);
    holder.run(&format!("START TRANSACTION; {}", lock_row(1)));
    let clients = waiters(server, (2..=51).map(|id| [lock_row(id), lock_row(id - 1)]));
    let snapshot = wait_for_rows(server, admin, 51);
    let ids = [holder.id].into_iter().chain(clients.iter().map(|client| client.id));
    let expected: Vec<(i64, u64)> = ids.zip(0..).collect();
    assert_eq!(rows(&snapshot), expected);
    let text = locks(server, &[]);
    assert!(text.contains(&format!("[50] {}  ", clients[49].id)), "{text}");
}

fn missing_privileges_are_reported_with_a_grant(server: &Sandbox, admin: &mut ClientProgram) {
    let (account, database) = match server.engine() {
        Engine::Postgres => ("low", "postgres"),
        _ => ("'low'@'127.0.0.1'", "hierlock"),
    };
    match server.engine() {
        Engine::Postgres => admin.run("CREATE ROLE low LOGIN PASSWORD 'hunter2';"),
        _ => admin.run(&format!(
            "CREATE USER {account} IDENTIFIED BY 'hunter2'; GRANT SELECT ON {database}.* TO {account};"
        )),
    }
    let [mut holder, mut waiter] = [(); 2].map(|()| ClientProgram::start(server));
    holder.run(&format!("START TRANSACTION; {}", lock_row(1)));
    waiter.send(&lock_row(1));
    until("the waiter is listed", || rows(&locks_json(server, &[])).len() == 2);
    let port = server.url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let url = format!("{}://low:hunter2@127.0.0.1:{port}/{database}", server.engine());
    let output = hierlock(&["locks", "--url", &url]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let grants: &[&str] = match server.engine() {
        Engine::Mysql => &["GRANT SELECT ON performance_schema.*", "GRANT PROCESS ON *.*"],
        Engine::Mariadb => &["GRANT PROCESS ON *.*"],
        Engine::Postgres => &["GRANT pg_read_all_stats"],
    };
    for grant in grants {
        assert!(text.contains(&format!("{grant} TO {account}\n")), "{text}");
    }
    if server.engine() == Engine::Postgres {
        // Every account may see which session waits for which.
        assert!(text.contains("1 session waits"), "{text}");
    } else {
        assert!(text.contains("this account may see neither locks nor lock waits"), "{text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    let id = holder.id.to_string();
    let output = hierlock(&["locks", "kill", &id, "--reason", "x", "--yes", "--url", &url]);
    let output = { output }.args(["--log", "/dev/null"]).output().unwrap();
    assert!(matches!(code(&output), Some(69 | 76)), "{output:?}");
    for grant in grants {
        admin.run(&format!("{grant} TO {account};"));
    }
    let output = hierlock(&["locks", "--url", &url]).output().unwrap();
    assert!(stdout(&output).contains("1 session waits"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("GRANT"), "{}", stdout(&output));
    let output = hierlock(&["locks", "kill", &id, "--reason", "x", "--yes", "--url", &url]);
    let output = { output }.args(["--log", "/dev/null"]).output().unwrap();
    let privilege = match server.engine() {
        Engine::Mysql => "GRANT CONNECTION_ADMIN ON *.* TO 'low'@'127.0.0.1'",
        Engine::Mariadb => "GRANT CONNECTION ADMIN ON *.* TO 'low'@'127.0.0.1'",
        Engine::Postgres => "GRANT pg_signal_backend TO low",
    };
    assert_eq!(code(&output), Some(69), "{output:?}");
    assert!(stderr(&output).contains(privilege), "{}", stderr(&output));
    assert_eq!(rows(&locks_json(server, &[])).len(), 2, "the session must not end");
}

fn a_killed_server_exits_with_69(server: &Sandbox) {
    kill(Pid::from_raw(server.pid().unwrap() as i32), Signal::SIGKILL).unwrap();
    let output = hierlock(&["locks", "--url", server.url()]).output().unwrap();
    assert_eq!(code(&output), Some(69), "{output:?}");
    assert!(stderr(&output).contains("cannot connect to"), "{}", stderr(&output));
}

#[test]
fn memory_is_refused_with_a_reason() {
    let output = hierlock(&["locks", "--url", "memory:"]).output().unwrap();
    assert_eq!(code(&output), Some(64));
    assert!(stderr(&output).contains("only that process can list them"), "{}", stderr(&output));
}
