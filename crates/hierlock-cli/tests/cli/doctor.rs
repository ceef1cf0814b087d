//! `hierlock doctor` finds each problem of servers that are set up with problems.

use crate::doctor_server::{DoctorServer, doctor, grants, lock};
use crate::rewriting_proxy::rewrite;
use crate::support::{code, hierlock, stderr, stdout};
use hierlock_sandbox::Engine;

#[test]
fn problems_of_mysql_are_found() {
    checks_find_the_problems_of_a_server(Engine::Mysql);
}

#[test]
fn problems_of_mariadb_are_found() {
    checks_find_the_problems_of_a_server(Engine::Mariadb);
}

#[test]
fn problems_of_postgres_are_found() {
    checks_find_the_problems_of_a_server(Engine::Postgres);
}

/// One server for all checks, because a start takes seconds.
fn checks_find_the_problems_of_a_server(engine: Engine) {
    // By default MariaDB does not show the labels of sessions.
    let options: &[&str] =
        if engine == Engine::Mariadb { &["--performance-schema=ON"] } else { &[] };
    let Some(server) = DoctorServer::start(engine, options) else { return };
    a_healthy_server_has_no_findings(&server);
    missing_privileges_are_reported(&server);
    a_client_that_disagrees_with_the_lock_table_is_reported(&server);
    too_few_connections_are_reported(&server);
    locks_that_do_not_exclude_are_found(&server);
    ignored_session_settings_are_found(&server);
    if engine == Engine::Mariadb {
        shared_locks_that_exclude_are_found(&server);
    }
    if engine == Engine::Postgres {
        advisory_functions_that_do_not_lock_are_found(&server);
        another_product_a_standby_and_a_wrong_clock_are_reported(&server);
        a_product_that_rejects_session_settings_is_named(&server);
    }
    broken_tables_are_found(&server);
}

fn a_healthy_server_has_no_findings(server: &DoctorServer) {
    let report = doctor(&server.url(""), &["--strict"]);
    assert_eq!((report.code, report.json["severity"].as_str()), (Some(0), Some("ok")));
    report.assert_rest_ok(&[]);
    report.assert(&[
        ("exclusion", "ok", "waited for each other"),
        ("agreement", "ok", "60 buckets"),
        ("provisioning", "ok", "rows were checked"),
        ("isolation", "ok", "READ COMMITTED"),
    ]);
    let [text, verbose] = [&[][..], &["--verbose"]].map(|options| {
        let output =
            hierlock(&["doctor", "--url", &server.url("")]).args(options).output().unwrap();
        assert_eq!(code(&output), Some(0), "{output:?}");
        stdout(&output)
    });
    assert!(text.contains("✓ exclusion") && text.contains("0 problems, 0 warnings"), "{text}");
    assert!(!text.contains("why") && verbose.contains("why"), "{verbose}");
    let output = lock(&server.url("&check_exclusion=true"));
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
}

fn missing_privileges_are_reported(server: &DoctorServer) {
    let engine = server.engine();
    let [locks, probes] = grants(engine);
    server.account("nobody", &[]);
    server.account("locker", locks);
    server.account("observer", &[locks, probes].concat());
    let report = doctor(&server.url_of("observer"), &["--strict"]);
    assert_eq!(report.code, Some(0), "{:#}", report.json);
    report.assert_rest_ok(&[]);
    report.assert(&[("exclusion", "ok", "as the server reported")]);

    let report = doctor(&server.url_of("locker"), &[]);
    assert_eq!(report.code, Some(0), "{:#}", report.json);
    let is_listed = engine == Engine::Postgres;
    let message = if is_listed { "as the server reported" } else { "were refused" };
    report.assert(&[("probes", "warning", "account"), ("exclusion", "ok", message)]);
    report.assert_rest_ok(&["probes"]);
    assert_eq!(doctor(&server.url_of("locker"), &["--strict"]).code, Some(65));

    if engine == Engine::Postgres {
        let report = doctor(&server.url_of("nobody"), &[]);
        assert_eq!(report.code, Some(65));
        report.assert(&[("lock-table", "problem", "may not read")]);
    }
    // MariaDB requires only SELECT.
    if engine != Engine::Mariadb {
        let readers = match engine {
            Engine::Postgres => ["SELECT ON hier_lock_meta", "SELECT ON hier_lock_buckets"],
            _ => ["SELECT ON hierlock.hier_lock_meta", "SELECT ON hierlock.hier_lock_buckets"],
        };
        server.account("reader", &readers);
        let report = doctor(&server.url_of("reader"), &[]);
        assert_eq!(report.code, Some(65));
        report.assert(&[("exclusion", "problem", "may not lock")]);
    }
}

fn a_client_that_disagrees_with_the_lock_table_is_reported(server: &DoctorServer) {
    for (url, options, check, message) in [
        (server.url("&table=elsewhere"), &[][..], "lock-table", "no lock table `elsewhere`"),
        (server.url("&buckets=7"), &[], "agreement", "60 buckets, not 7"),
        (server.url(""), &["--levels", "org,team"], "agreement", "not org/team"),
        (format!("{}?strategy=per-id", server.server.url()), &[], "agreement", "striped"),
    ] {
        let report = doctor(&url, options);
        assert_eq!(report.code, Some(65), "{url}");
        report.assert(&[(check, "problem", message), ("exclusion", "skipped", "nothing to lock")]);
        report.assert_rest_ok(&[check, "exclusion"]);
    }
    let url = format!("{}?strategy=on-demand&table=later", server.server.url());
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(0));
    report.assert(&[("lock-table", "ok", "creates it"), ("exclusion", "skipped", "")]);
}

fn too_few_connections_are_reported(server: &DoctorServer) {
    let report = doctor(&server.url("&connections=9"), &["--clients", "100"]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("max-connections", "problem", "1000 connections")]);
}

/// A proxy removes the locking clauses, so the server returns rows without locking them.
fn locks_that_do_not_exclude_are_found(server: &DoctorServer) {
    let clauses = ["FOR UPDATE", "FOR SHARE", "LOCK IN SHARE MODE"];
    let nowait = clauses.map(|clause| (format!("{clause} NOWAIT"), ""));
    let wait = clauses.map(|clause| (clause.to_owned(), ""));
    let url = rewrite(&server.url(""), nowait.into_iter().chain(wait));
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("exclusion", "problem", "locks do not exclude here")]);
    report.assert_rest_ok(&["exclusion"]);
    // A client refuses such a server only with check_exclusion=true.
    assert_eq!(code(&lock(&url)), Some(0));
    let output = lock(&format!("{url}&check_exclusion=true"));
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("locks do not exclude here"), "{}", stderr(&output));
}

/// A proxy changes the settings that a session sends.
fn ignored_session_settings_are_found(server: &DoctorServer) {
    let serializable = if server.engine() == Engine::Postgres {
        ("'read committed'", "'serializable'")
    } else {
        ("READ COMMITTED", "SERIALIZABLE")
    };
    let changes = [
        serializable,
        ("innodb_lock_wait_timeout = 100000000", "innodb_lock_wait_timeout = 000000030"),
        (" wait_timeout = 28800", " wait_timeout = 00030"),
    ];
    let url = rewrite(&server.url(""), changes.map(|(from, to)| (from.to_owned(), to)));
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("isolation", "problem", "runs at")]);
    if server.engine() != Engine::Postgres {
        report.assert(&[
            ("lock-wait-timeout", "warning", "after 30 s"),
            ("idle-timeout", "problem", "after 30 s"),
        ]);
    }
}

/// A proxy replaces shared locks by exclusive ones.
fn shared_locks_that_exclude_are_found(server: &DoctorServer) {
    let exclusive = [("LOCK IN SHARE MODE".to_owned(), "FOR UPDATE")];
    let report = doctor(&rewrite(&server.url(""), exclusive), &[]);
    assert_eq!(report.code, Some(0));
    report.assert(&[("exclusion", "warning", "shared locks exclude each other")]);
}

/// Advisory lock functions that do nothing, like those of CockroachDB.
fn advisory_functions_that_do_not_lock_are_found(server: &DoctorServer) {
    let mut statements = vec!["CREATE SCHEMA fake".to_owned()];
    for name in ["advisory_xact_lock", "advisory_xact_lock_shared"] {
        for (begin, returns, value) in [("pg_", "void", ""), ("pg_try_", "boolean", "true")] {
            statements.push(format!(
                "CREATE FUNCTION fake.{begin}{name}(bigint) RETURNS {returns} LANGUAGE sql AS 'SELECT {value}'"
            ));
        }
    }
    server.run_sql(&statements.iter().map(String::as_str).collect::<Vec<_>>());
    server.account("deceived", &["USAGE ON SCHEMA fake", "SELECT ON hier_lock_meta"]);
    server.run_sql(&["ALTER ROLE deceived SET search_path = fake, pg_catalog, public"]);
    let url = server.url_of("deceived").replace("?strategy=striped", "?strategy=advisory&table=x");
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("exclusion", "problem", "locks do not exclude here")]);
    let output = lock(&format!("{url}&check_exclusion=true"));
    assert_eq!(code(&output), Some(69), "{}", stderr(&output));
}

/// A server that reports another product name, that it is a standby, and a wrong time.
fn another_product_a_standby_and_a_wrong_clock_are_reported(server: &DoctorServer) {
    server.run_sql(&[
        "CREATE SCHEMA other",
        "CREATE FUNCTION other.version() RETURNS text LANGUAGE sql \
         AS $$ SELECT 'CockroachDB CCL v23.2.1 (x86_64-pc-linux-gnu)' $$",
        "CREATE FUNCTION other.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE FUNCTION other.clock_timestamp() RETURNS timestamptz LANGUAGE sql \
         AS $$ SELECT pg_catalog.clock_timestamp() - interval '1 hour' $$",
    ]);
    server.account("cockroach", &["USAGE ON SCHEMA other"]);
    server.run_sql(&["ALTER ROLE cockroach SET search_path = other, pg_catalog, public"]);
    let url = server.url_of("cockroach");
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[
        ("product", "problem", "CockroachDB"),
        ("read-only", "problem", "standby"),
        ("clock", "warning", "behind"),
    ]);
    // A client refuses a standby before all other checks.
    for (message, next) in [
        ("it is a standby", "DROP FUNCTION other.pg_is_in_recovery()"),
        ("it is CockroachDB", "DROP SCHEMA other CASCADE"),
    ] {
        let output = lock(&url);
        assert_eq!(code(&output), Some(69));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        server.run_sql(&[next]);
    }
}

/// The error for a server that rejects the session settings names its product.
fn a_product_that_rejects_session_settings_is_named(server: &DoctorServer) {
    server.run_sql(&[
        "CREATE SCHEMA little",
        "CREATE FUNCTION little.version() RETURNS text LANGUAGE sql AS $$ SELECT 'CrateDB 5.6.2' $$",
        "CREATE FUNCTION little.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql \
         AS $$ BEGIN RAISE EXCEPTION 'unknown function'; END $$",
    ]);
    server.account("crate", &["USAGE ON SCHEMA little"]);
    server.run_sql(&["ALTER ROLE crate SET search_path = little, pg_catalog, public"]);
    let output = hierlock(&["doctor", "--url", &server.url_of("crate")]).output().unwrap();
    assert_eq!(code(&output), Some(69), "{output:?}");
    let error = stderr(&output);
    assert!(error.contains("it is CrateDB") && error.contains("unknown function"), "{error}");
}

fn broken_tables_are_found(server: &DoctorServer) {
    let is_innodb = server.engine() != Engine::Postgres;
    let url = server.url("");
    server.run_sql(&["UPDATE hier_lock_meta SET state = 'filling'"]);
    let report = doctor(&url, &[]);
    report.assert(&[("provisioning", "problem", "not filled"), ("exclusion", "ok", "")]);
    server.run_sql(&["UPDATE hier_lock_meta SET state = 'ready'"]);

    server.run_sql(&["DELETE FROM hier_lock_buckets WHERE level = 1 AND bucket >= 50"]);
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("provisioning", "problem", "missing")]);

    if is_innodb {
        server.run_sql(&["ALTER TABLE hier_lock_buckets ENGINE = MyISAM"]);
        let report = doctor(&url, &[]);
        assert_eq!(report.code, Some(65));
        report.assert(&[
            ("lock-table", "problem", "MyISAM"),
            ("exclusion", "problem", "locks do not exclude here"),
        ]);
        let fix = report.finding("lock-table").unwrap()["fix"].as_str().unwrap();
        assert!(fix.contains("ENGINE = InnoDB"), "{fix}");
    }
    let no_key = "ALTER TABLE hier_lock_buckets DROP CONSTRAINT hier_lock_buckets_pkey";
    let no_innodb_key = "ALTER TABLE hier_lock_buckets DROP PRIMARY KEY, ENGINE = InnoDB";
    server.run_sql(&[if is_innodb { no_innodb_key } else { no_key }]);
    doctor(&url, &[]).assert(&[("lock-table", "problem", "no primary key")]);

    server.run_sql(&["ALTER TABLE hier_lock_buckets RENAME COLUMN of_60 TO of_61"]);
    doctor(&url, &[]).assert(&[("lock-table", "problem", "61 buckets")]);
    server.run_sql(&["ALTER TABLE hier_lock_buckets RENAME COLUMN of_61 TO other"]);
    doctor(&url, &[]).assert(&[("lock-table", "problem", "not a lock table")]);
    server.run_sql(&["DROP TABLE hier_lock_buckets"]);
    doctor(&url, &[]).assert(&[("lock-table", "problem", "does not exist")]);
}

#[test]
fn lock_files_and_memory_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("deep/locks").display());
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(0));
    report.assert(&[("lock-file", "ok", "can be created"), ("exclusion", "ok", "each other")]);
    assert!(!directory.path().join("deep").exists(), "`doctor` must not create the directory");
    assert_eq!(code(&lock(&url)), Some(0));
    let report = doctor(&url, &[]);
    assert_eq!(report.code, Some(0));
    report.assert(&[("lock-file", "ok", "written"), ("exclusion", "ok", "each other")]);
    let report = doctor("file:/dev/null/locks", &[]);
    assert_eq!(report.code, Some(65));
    report.assert(&[("lock-file", "problem", "/dev/null")]);
    doctor("memory:", &[]).assert(&[("exclusion", "ok", "one process")]);
}

#[test]
fn a_usage_error_exits_with_64_a_missing_server_with_69() {
    for (arguments, expected, message) in [
        (&["--url", "mysql://127.0.0.1/x?tabel=y"][..], 64, "did you mean `table`?"),
        (&["--url", "mysql://127.0.0.1/x", "--clients", "0"], 64, "--clients"),
        (&["--url", "nowhere"], 64, "nowhere"),
        (&["--url", "mysql://me:secret@127.0.0.1:1/x"], 69, "cannot connect"),
    ] {
        let output = hierlock(&["doctor"]).args(arguments).output().unwrap();
        assert_eq!((code(&output), stdout(&output)), (Some(expected), String::new()));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(!stderr(&output).contains("secret"), "{}", stderr(&output));
    }
}
