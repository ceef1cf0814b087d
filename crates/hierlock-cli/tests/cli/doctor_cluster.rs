//! `hierlock doctor` on servers that replicate: its findings for each role of a server, and that they are true.

use crate::doctor_server::{Report, doctor, grants, lock, run_sql};
use crate::support::{Holder, code, hierlock, stderr, stdout, until};
use hierlock_sandbox::{Engine, Sandbox, SandboxCluster, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::process::Stdio;

/// Starts two servers. Both have the same lock table of 60 buckets.
fn start(topology: Topology) -> Option<SandboxCluster> {
    let cluster = SandboxCluster::for_tests(topology, 2)?;
    let [first, second] = cluster.servers() else { panic!("there must be two servers") };
    let output =
        hierlock(&["provision", "--url", &url(first), "--buckets", "60"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    until("the lock table is replicated", || {
        doctor(&url(second), &[]).message("provisioning").contains("it is filled")
    });
    Some(cluster)
}

fn url(server: &Sandbox) -> String {
    format!("{}?strategy=striped", server.url())
}

/// Returns the result of a query, without column names.
fn query(server: &Sandbox, sql: &str) -> String {
    let mut client = server.client().unwrap();
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    stdout(&client.wait_with_output().unwrap()).trim().to_owned()
}

fn signal(server: &Sandbox, signal: Signal) {
    kill(Pid::from_raw(server.pid().unwrap() as i32), signal).unwrap();
}

/// Checks a finding in the JSON and in the text, and the exit code of both.
fn assert_finding(server: &Sandbox, expected: (&str, &str, &str), exit_code: i32) -> Report {
    let report = doctor(&url(server), &[]);
    report.assert(&[expected]);
    assert_eq!(report.code, Some(exit_code), "{:#}", report.json);
    let (check, severity, message) = expected;
    let mark = match severity {
        "ok" => "✓",
        "warning" => "!",
        _ => "✗",
    };
    let output = hierlock(&["doctor", "--url", &url(server)]).output().unwrap();
    let text = stdout(&output);
    let line = text.lines().find(|line| line.trim().starts_with(&format!("{mark} {check} ")));
    assert!(line.is_some_and(|line| line.contains(message)), "{text}");
    assert_eq!(code(&output), Some(exit_code), "{text}");
    report
}

/// A client refuses to use the server, for this reason.
fn assert_refused(server: &Sandbox, reason: &str) {
    let output = lock(&url(server));
    let error = stderr(&output);
    assert_eq!(code(&output), Some(69), "{error}");
    assert!(error.contains("cannot be used: ") && error.contains(reason), "{error}");
}

fn hold(server: &Sandbox) -> Holder {
    let arguments = ["run", "--url", &url(server), "u1", "--", "sh", "-c", "echo $$; exec cat"];
    Holder::start(hierlock(&arguments))
}

fn assert_loss_is_reported(mut holder: Holder, reason: &str) {
    until("the holder has ended", || holder.process.try_wait().unwrap().is_some());
    let (exit_code, error) = holder.wait();
    assert!(exit_code == Some(76) && error.contains(reason), "{exit_code:?} {error}");
}

/// The finding is true: both servers grant the same exclusive lock at the same time.
fn assert_locks_are_not_shared(cluster: &SandboxCluster) {
    let [first, second] = cluster.servers() else { panic!("there must be two servers") };
    let try_lock = |server| {
        let arguments = ["run", "--try", "--url", &url(server), "u1", "--", "true"];
        code(&hierlock(&arguments).output().unwrap())
    };
    let holder = hold(first);
    assert_eq!(try_lock(first), Some(75), "the lock is not held by the first client");
    assert_eq!(try_lock(second), Some(0), "the second server refused the lock");
    assert_eq!(holder.finish().0, Some(0), "the first client lost its lock");
}

fn account_url(server: &Sandbox) -> String {
    url(server).replace("root@", "locker@")
}

/// One group for all checks, because a start takes seconds.
#[test]
fn a_group_of_mysql_is_checked() {
    let Some(cluster) = start(Topology::MultiPrimary) else { return };
    let [first, second] = cluster.servers() else { panic!("there must be two servers") };
    for server in [first, second] {
        let report = assert_finding(server, ("cluster", "warning", "group of 2 primaries"), 0);
        report.assert_rest_ok(&["cluster"]);
        assert_eq!(doctor(&url(server), &["--strict"]).code, Some(65));
    }
    let output = lock(&url(second));
    assert_eq!(code(&output), Some(0));
    assert!(stderr(&output).contains("do not share row locks"), "{}", stderr(&output));
    assert_locks_are_not_shared(&cluster);

    // The failure this prevents: an account with only the privileges for locks may not see the members of the group, and
    // `doctor` reported that there is no group.
    let [locks, _] = grants(Engine::Mysql);
    let grants = locks.iter().map(|grant| format!("GRANT {grant} TO locker@'127.0.0.1'"));
    for sql in ["CREATE USER locker@'127.0.0.1'".to_owned()].into_iter().chain(grants) {
        run_sql(first.url(), &[&sql]);
    }
    let report = doctor(&account_url(first), &[]);
    report.assert(&[("cluster", "warning", "by its settings"), ("probes", "warning", "")]);

    let primary = query(first, "SELECT @@server_uuid");
    run_sql(
        first.url(),
        &[&format!("SELECT group_replication_switch_to_single_primary_mode('{primary}')")],
    );
    let report = assert_finding(first, ("cluster", "ok", "primary of a replication group of 2"), 0);
    report.assert_rest_ok(&[]);
    assert_eq!(doctor(&url(first), &["--strict"]).code, Some(0));
    let report = doctor(&account_url(first), &[]);
    report.assert(&[("cluster", "ok", "with one primary")]);

    let report = assert_finding(second, ("read-only", "problem", "read-only"), 65);
    report.assert(&[("cluster", "ok", "whose primary is 127.0.0.1:")]);
    let fix = report.finding("read-only").unwrap()["fix"].as_str().unwrap();
    let port = query(first, "SELECT @@port");
    assert!(fix.contains(&format!("connect to the primary, 127.0.0.1:{port}")), "{fix}");
    assert_refused(second, "it is read-only, so it follows another");

    // The failure this prevents: a planned switchover ends no session. The holder kept its lock on the old primary, while
    // the new primary granted the same lock to another client.
    let holder = hold(first);
    let new_primary = query(second, "SELECT @@server_uuid");
    run_sql(first.url(), &[&format!("SELECT group_replication_set_as_primary('{new_primary}')")]);
    assert_eq!(code(&lock(&url(second))), Some(0));
    assert_loss_is_reported(holder, "can no longer be used: it is read-only");

    // The failure this prevents: a primary without a majority grants locks, and `doctor` reported no problem.
    signal(first, Signal::SIGSTOP);
    let unreachable = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
                WHERE MEMBER_STATE = 'UNREACHABLE'";
    until("the majority is lost", || query(second, unreachable) == "1");
    assert_finding(second, ("cluster", "problem", "1 of the 2 members"), 65);
    assert_refused(second, "which is not a majority");
}

#[test]
fn a_galera_cluster_is_checked() {
    let Some(cluster) = start(Topology::Galera) else { return };
    let [first, second] = cluster.servers() else { panic!("there must be two servers") };
    for server in [first, second] {
        let report = assert_finding(server, ("cluster", "warning", "Galera cluster of 2 nodes"), 0);
        report.assert_rest_ok(&["cluster", "performance-schema"]);
        assert_eq!(doctor(&url(server), &["--strict"]).code, Some(65));
    }
    let output = lock(&url(second));
    assert_eq!(code(&output), Some(0));
    assert!(stderr(&output).contains("do not share row locks"), "{}", stderr(&output));
    assert_locks_are_not_shared(&cluster);

    // The failure this prevents: the loss of a lock was reported only at its release.
    let holder = hold(first);
    signal(second, Signal::SIGSTOP);
    assert_loss_is_reported(holder, "1047");
    let status = "SHOW STATUS LIKE 'wsrep_cluster_status'";
    until("the majority is lost", || query(first, status).ends_with("non-Primary"));
    let report = assert_finding(first, ("cluster", "problem", "no majority"), 65);
    report.assert(&[("lock-table", "problem", "1047"), ("exclusion", "skipped", "")]);
    assert_refused(first, "no majority (non-Primary)");
}

#[test]
fn a_replica_of_mysql_is_checked() {
    let Some(cluster) = start(Topology::Replicas(Engine::Mysql)) else { return };
    check_replica(&cluster);
    let [source, replica] = cluster.servers() else { panic!("there must be two servers") };
    let state = "SELECT SERVICE_STATE FROM performance_schema.replication_connection_status";
    signal(source, Signal::SIGKILL);
    until("the replica has noticed the loss of its source", || {
        query(replica, state) == "CONNECTING"
    });
    assert_finding(replica, ("replication", "warning", "accepts writes itself"), 0);
}

#[test]
fn a_replica_of_mariadb_is_checked() {
    let Some(cluster) = start(Topology::Replicas(Engine::Mariadb)) else { return };
    check_replica(&cluster);
    let [source, replica] = cluster.servers() else { panic!("there must be two servers") };
    signal(source, Signal::SIGKILL);
    let state = "SELECT STATE FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_IO'";
    until("the replica has noticed the loss of its source", || {
        let state = query(replica, state);
        ["Reconnecting", "Waiting to reconnect"].iter().any(|begin| state.starts_with(begin))
    });
    assert_finding(replica, ("replication", "warning", "accepts writes itself"), 0);
}

/// Checks a read-only replica, then makes it writable and checks it again.
fn check_replica(cluster: &SandboxCluster) {
    let [source, replica] = cluster.servers() else { panic!("there must be two servers") };
    let report = assert_finding(source, ("replication", "ok", "connected replicas: 1"), 0);
    report.assert_rest_ok(&["performance-schema"]);
    let report = assert_finding(replica, ("read-only", "problem", "read-only"), 65);
    report.assert(&[("replication", "ok", "follows another")]);
    assert_refused(replica, "it is read-only, so it follows another");

    // On MySQL this also switches off super_read_only.
    run_sql(replica.url(), &["SET GLOBAL read_only = OFF"]);
    let report = assert_finding(replica, ("replication", "warning", "accepts writes itself"), 0);
    report.assert_rest_ok(&["replication", "performance-schema"]);
    assert_eq!(doctor(&url(replica), &["--strict"]).code, Some(65));
    assert_locks_are_not_shared(cluster);
}

#[test]
fn a_standby_of_postgres_is_checked() {
    let Some(cluster) = start(Topology::Replicas(Engine::Postgres)) else { return };
    let [primary, standby] = cluster.servers() else { panic!("there must be two servers") };
    let report = assert_finding(primary, ("replication", "ok", "connected replicas: 1"), 0);
    report.assert_rest_ok(&[]);
    let report = assert_finding(standby, ("read-only", "problem", "standby"), 65);
    report.assert(&[("exclusion", "problem", "refuses a lock")]);
    assert_refused(standby, "it is a standby, whose locks the primary does not see");
    // A standby grants advisory locks, but they exclude no client of the primary.
    let advisory = |server: &Sandbox| format!("{}?strategy=advisory&table=x", server.url());
    let report = doctor(&advisory(standby), &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("read-only", "problem", "standby"), ("exclusion", "ok", "each other")]);
    let output = lock(&advisory(standby));
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("it is a standby"), "{}", stderr(&output));
}
