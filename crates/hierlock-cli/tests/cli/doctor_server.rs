//! A server for tests of `hierlock doctor`, and its report.

use crate::support::{code, hierlock, stderr};
use hierlock_engine::ServerAddress;
use hierlock_sandbox::{Engine, Sandbox};
use serde_json::Value;
use std::process::Output;

/// A server with a lock table.
pub(crate) struct DoctorServer {
    pub(crate) server: Sandbox,
}

/// The exit code and the JSON of the command.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) code: Option<i32>,
    pub(crate) json: Value,
}

impl Report {
    /// Returns the severity of a check; `none` if there is no such check.
    pub(crate) fn severity(&self, check: &str) -> &str {
        self.finding(check).map_or("none", |finding| finding["severity"].as_str().unwrap())
    }

    pub(crate) fn message(&self, check: &str) -> &str {
        self.finding(check).map_or("", |finding| finding["message"].as_str().unwrap())
    }

    pub(crate) fn finding(&self, check: &str) -> Option<&Value> {
        self.json["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == check)
    }

    /// Asserts severity and message of some checks. Each warning and problem must have a fix.
    pub(crate) fn assert(&self, expected: &[(&str, &str, &str)]) {
        for (check, severity, says) in expected {
            assert_eq!(self.severity(check), *severity, "{check}: {:#}", self.json);
            assert!(self.message(check).contains(says), "{check}: {}", self.message(check));
            let finding = self.finding(check).unwrap();
            let is_bad = ["warning", "problem"].contains(severity);
            assert_eq!(finding["fix"].is_string(), is_bad, "{finding}");
            assert!(!finding["why"].as_str().unwrap().is_empty(), "{finding}");
        }
    }

    /// Asserts that all other checks are ok.
    pub(crate) fn assert_rest_ok(&self, but: &[&str]) {
        for finding in self.json["findings"].as_array().unwrap() {
            let is_expected = but.contains(&finding["check"].as_str().unwrap());
            assert!(is_expected || finding["severity"] == "ok", "{finding:#}");
        }
    }
}

pub(crate) fn doctor(url: &str, arguments: &[&str]) -> Report {
    let output = hierlock(&["doctor", "--json", "--url", url]).args(arguments).output().unwrap();
    assert_eq!(stderr(&output), "", "{url}");
    Report { code: code(&output), json: serde_json::from_slice(&output.stdout).unwrap() }
}

pub(crate) fn run_sql(url: &str, statements: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = ServerAddress::from_url(&url.parse().unwrap()).unwrap();
        let mut connection = address.connect().await.unwrap();
        for sql in statements {
            let ran = connection.as_ref().run(sql).await;
            ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    });
}

impl DoctorServer {
    /// Starts a server with a lock table of 60 buckets.
    pub(crate) fn start(engine: Engine, options: &[&str]) -> Option<Self> {
        let server = Sandbox::for_tests_with(engine, options)?;
        let server = Self { server };
        let url = server.url("");
        let output = hierlock(&["provision", "--url", &url, "--buckets", "60"]).output().unwrap();
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        Some(server)
    }

    pub(crate) fn engine(&self) -> Engine {
        self.server.engine()
    }

    /// Returns the URL of the lock table, with more parameters.
    pub(crate) fn url(&self, more: &str) -> String {
        format!("{}?strategy=striped{more}", self.server.url())
    }

    /// Returns the URL of the lock table for an account without a password.
    pub(crate) fn url_of(&self, account: &str) -> String {
        let url = self.url("");
        let (scheme, rest) = url.split_once("://").unwrap();
        format!("{scheme}://{account}@{}", rest.split_once('@').unwrap().1)
    }

    pub(crate) fn run_sql(&self, statements: &[&str]) {
        run_sql(self.server.url(), statements);
    }

    /// Creates an account with these grants, which are in the SQL of the engine.
    pub(crate) fn account(&self, name: &str, grants: &[&str]) {
        let (create, host) = match self.engine() {
            Engine::Postgres => (format!("CREATE ROLE {name} LOGIN"), ""),
            _ => (format!("CREATE USER {name}@'127.0.0.1'"), "@'127.0.0.1'"),
        };
        let grants: Vec<String> =
            grants.iter().map(|grant| format!("GRANT {grant} TO {name}{host}")).collect();
        self.run_sql(&[&create]);
        self.run_sql(&grants.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Returns the grants that `docs/command.md` lists: for locks, and for the probes.
pub(crate) fn grants(engine: Engine) -> [&'static [&'static str]; 2] {
    match engine {
        Engine::Mysql => [
            &["SELECT ON hierlock.hier_lock_meta", "SELECT, UPDATE ON hierlock.hier_lock_buckets"],
            &["SELECT ON performance_schema.*", "PROCESS ON *.*"],
        ],
        Engine::Mariadb => [
            &["SELECT ON hierlock.hier_lock_meta", "SELECT ON hierlock.hier_lock_buckets"],
            &["PROCESS ON *.*", "SELECT ON performance_schema.*"],
        ],
        Engine::Postgres => [
            &["SELECT ON hier_lock_meta", "SELECT, UPDATE ON hier_lock_buckets"],
            &["pg_read_all_stats"],
        ],
    }
}

pub(crate) fn lock(url: &str) -> Output {
    hierlock(&["run", "--url", url, "u1", "--", "true"]).output().unwrap()
}
