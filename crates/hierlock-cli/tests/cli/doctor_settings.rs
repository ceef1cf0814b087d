//! `hierlock doctor` on servers with settings that can only be set at their start.

use crate::doctor_server::{DoctorServer, doctor, grants, lock};
use crate::support::{code, stderr};
use hierlock_sandbox::{Engine, Sandbox};

#[test]
fn mysql_with_everything_wrong() {
    let options = [
        "--innodb-deadlock-detect=OFF",
        "--innodb-rollback-on-timeout=ON",
        "--wait-timeout=10",
        "--max-connections=20",
        "--performance-schema=OFF",
    ];
    let Some(server) = DoctorServer::start(Engine::Mysql, &options) else { return };
    doctor(&server.url(""), &[]).assert(&[("exclusion", "ok", "no wait was listed")]);
    server.run_sql(&["SET GLOBAL super_read_only = ON"]);
    let report = doctor(&server.url(""), &["--clients", "2"]);
    assert_eq!(report.code, Some(65));
    report.assert(&[
        ("read-only", "problem", "read-only"),
        ("deadlock-detect", "warning", "OFF"),
        ("rollback-on-timeout", "ok", "ON"),
        ("idle-timeout", "warning", "10 s"),
        ("max-connections", "problem", "22 connections"),
        ("performance-schema", "warning", "OFF"),
        ("exclusion", "problem", "refuses a lock"),
    ]);
}

#[test]
fn mariadb_with_everything_wrong() {
    let options = [
        "--innodb-deadlock-detect=OFF",
        "--innodb-snapshot-isolation=ON",
        "--wait-timeout=10",
        "--max-connections=20",
        "--performance-schema=OFF",
    ];
    let Some(server) = DoctorServer::start(Engine::Mariadb, &options) else { return };
    server.run_sql(&["SET GLOBAL read_only = ON"]);
    let report = doctor(&server.url(""), &["--clients", "2"]);
    assert_eq!(report.code, Some(65));
    report.assert(&[
        ("read-only", "problem", "read-only"),
        ("deadlock-detect", "warning", "OFF"),
        ("snapshot-isolation", "warning", "REPEATABLE-READ"),
        ("idle-timeout", "warning", "10 s"),
        ("max-connections", "problem", "22 connections"),
        ("performance-schema", "ok", "hier_lock_sessions"),
        ("exclusion", "ok", "each other"),
    ]);
}

/// Holders write their labels to a table, if their account has the privilege.
#[test]
fn mariadb_without_performance_schema() {
    let Some(server) = DoctorServer::start(Engine::Mariadb, &[]) else { return };
    let [locks, probes] = grants(Engine::Mariadb);
    let label_grants = ["SELECT, INSERT ON hierlock.hier_lock_sessions"];
    server.account("labeller", &[locks, probes, &label_grants].concat());
    server.account("locker", &[locks, probes].concat());
    server.account("reader", &[locks, probes, &["SELECT ON hierlock.hier_lock_sessions"]].concat());
    let check = |account: &str, severity: &str, message: &str| {
        let report = doctor(&server.url_of(account), &[]);
        assert_eq!(report.code, Some(0), "{:#}", report.json);
        report.assert(&[("performance-schema", severity, message)]);
        report.assert_rest_ok(&["performance-schema"]);
    };
    check("labeller", "ok", "holders write their labels to `hier_lock_sessions`");
    check("locker", "warning", "INSERT command denied");
    check("reader", "warning", "INSERT command denied");
    // The check left no row in the table: the constraint would reject it.
    server.run_sql(&["ALTER TABLE hier_lock_sessions ADD CHECK (session < 0)"]);
    server.run_sql(&["DROP TABLE hier_lock_sessions"]);
    check("labeller", "warning", "hierlock.hier_lock_sessions");
}

/// One server reports the version of TiDB, the other has innodb_rollback_on_timeout. Clients refuse both.
#[test]
fn tidb_and_rollback_on_timeout_are_refused() {
    let options = ["--innodb-rollback-on-timeout=ON", "--version=8.0.11-TiDB-v8.5.0"];
    let Some(server) = Sandbox::for_tests_with(Engine::Mariadb, &options) else { return };
    let report = doctor(server.url(), &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("product", "problem", "TiDB"), ("lock-table", "problem", "")]);
    let output = lock(server.url());
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("it is TiDB"), "{}", stderr(&output));

    let options = ["--innodb-rollback-on-timeout=ON"];
    let Some(server) = Sandbox::for_tests_with(Engine::Mariadb, &options) else { return };
    let report = doctor(server.url(), &[]);
    report.assert(&[("rollback-on-timeout", "problem", "innodb_rollback_on_timeout")]);
    let output = lock(server.url());
    assert!(stderr(&output).contains("innodb_rollback_on_timeout"), "{}", stderr(&output));
}

#[test]
fn postgres_with_everything_wrong() {
    let options = [
        "-c",
        "deadlock_timeout=60s",
        "-c",
        "idle_in_transaction_session_timeout=5s",
        "-c",
        "idle_session_timeout=5s",
        "-c",
        "lock_timeout=1s",
        "-c",
        "default_transaction_isolation=serializable",
        "-c",
        "max_connections=20",
    ];
    let Some(server) = DoctorServer::start(Engine::Postgres, &options) else { return };
    let report = doctor(&server.url(""), &["--clients", "2"]);
    assert_eq!(report.code, Some(65));
    report.assert(&[
        ("deadlock-timeout", "warning", "60000 ms"),
        ("idle-transaction-timeout", "warning", "5000 ms"),
        ("idle-timeout", "warning", "5000 ms"),
        ("lock-wait-timeout", "ok", "1000 ms"),
        ("isolation", "ok", "serializable"),
        ("max-connections", "problem", "22 connections"),
        ("exclusion", "ok", "as the server reported"),
    ]);
    // A role may have its own connection limit.
    server.account("few", &[]);
    server.run_sql(&["ALTER ROLE few CONNECTION LIMIT 8"]);
    let url = server.url_of("few").replace("striped", "advisory&table=x");
    doctor(&url, &[]).assert(&[("max-connections", "problem", "the role allows 8")]);
}
