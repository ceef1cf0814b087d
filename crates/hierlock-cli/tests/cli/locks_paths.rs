//! `hierlock locks` shows the locks of hierlock by path.

use crate::client_program::ClientProgram;
use crate::locks::{locks, locks_json, rows, session, wait_until_free};
use crate::support::{Holder, code, hierlock, until};
use hierlock::{Buckets, Target};
use hierlock_sandbox::{Engine, Sandbox};
use serde_json::Value;

/// A small number, so that two nodes in the same bucket are found quickly.
const BUCKETS: u32 = 100;

/// MariaDB shows user variables only with performance_schema.
#[test]
fn locks_are_shown_by_path_on_mariadb_with_performance_schema() {
    let options = ["--performance-schema=ON"];
    let Some(server) = Sandbox::for_tests_with(Engine::Mariadb, &options) else { return };
    locks_of_hierlock_are_shown_by_path(&server, true);
}

/// Returns another node of the same level in the same bucket.
fn neighbour(node: &Target) -> Target {
    let buckets = Buckets::new(BUCKETS).unwrap();
    let ids = (0..).map(|number| Target::user(&format!("n{number}")).unwrap());
    let mut others = ids.filter(|other| other.bucket(buckets) == node.bucket(buckets));
    others.next().unwrap()
}

pub(crate) fn locks_of_hierlock_are_shown_by_path(server: &Sandbox, has_labels: bool) {
    // On PostgreSQL, clients without a table in their URL use advisory keys.
    let table = if server.engine() == Engine::Postgres { "&table=rows_by_bucket" } else { "" };
    let striped = format!("{}?strategy=striped{table}", server.url());
    let buckets = BUCKETS.to_string();
    let output = hierlock(&["provision", "--url", &striped, "--buckets", &buckets]).output();
    assert_eq!(code(&output.unwrap()), Some(0));
    let user = Target::user("u1").unwrap();
    let is_postgres = server.engine() == Engine::Postgres;
    // Imitates a session of hierlock: sets a label, and takes the slot of a node.
    let hold = |client: &mut ClientProgram, label: &str, node: &Target| {
        if is_postgres {
            let key = node.key_hash().cast_signed();
            client.run(&format!("SET application_name = '{label}';"));
            client.send(&format!("SELECT pg_advisory_lock({key});"));
        } else {
            let bucket = node.bucket(Buckets::new(BUCKETS).unwrap());
            client.run(&format!("SET @hierlock = '{label}'; START TRANSACTION;"));
            client.send(&format!(
                "SELECT bucket FROM hier_lock_buckets WHERE level = 0 AND bucket = {bucket} FOR UPDATE;"
            ));
        }
    };
    let mut clients = [(); 3].map(|()| ClientProgram::start(server));
    let ids = clients.each_ref().map(|client| client.id);
    let [holder, waiter, stale] = &mut clients;
    hold(holder, "billing/re%20index@web-3:4711 @1763418665 u1 u7/a1", &user);
    until("the holder is listed", || {
        let all = locks_json(server, &["--all"]);
        let mut sessions = all["sessions"].as_array().unwrap().iter();
        let session = sessions.find(|session| session["id"] == ids[0]);
        session.is_some_and(|session| {
            session["holds"][0].is_object() || session["has_unlisted_locks"] == true
        })
    });
    let other = if is_postgres { user.clone() } else { neighbour(&user) };
    hold(waiter, &format!("x@h:1 {other}"), &user);
    hold(stale, "x@h:2 u9/a9", &user);
    let mut snapshot = Value::Null;
    until("the waiters are listed", || {
        snapshot = locks_json(server, &["u1"]);
        rows(&snapshot).len() == 3
    });
    let shown = ids.map(|id| session(&snapshot, id));
    let text = locks(server, &["u1"]);
    if !has_labels {
        // The user variables that imitate labels are not visible, so the bucket is shown.
        let bucket = user.bucket(Buckets::new(BUCKETS).unwrap());
        assert_eq!(shown[1]["waits_for"]["slot"]["bucket"]["number"], bucket, "{snapshot}");
        let printed =
            format!("bucket 0/{bucket} exclusive, that of u1 or another path in the same bucket");
        assert!(text.contains(&printed), "{text}");
        assert_eq!(shown[1]["waits_for"]["relation"], "same-slot");
        drop(clients);
        wait_until_free(server);
        locks_of_run_are_listed(server, server.url(), has_labels);
        return;
    }
    let holder = &shown[0];
    assert_eq!(holder["application"], "billing", "{holder}");
    assert_eq!((&holder["program"], &holder["host"]), (&"re index".into(), &"web-3".into()));
    assert_eq!(
        (&holder["client_pid"], &holder["unconfirmed_paths"][0]),
        (&4711.into(), &"u7/a1".into())
    );
    let holds = holder["holds"].as_array().unwrap().iter();
    let path: Vec<_> = holds.filter(|lock| lock["paths"][0] == "u1").collect();
    assert_eq!(path.len(), 1, "{holder}");
    assert_eq!(path[0]["relation"], "node");
    assert_eq!(shown[1]["waits_for"]["paths"][0], other.to_string(), "{snapshot}");
    let relation = if is_postgres { "node" } else { "other-path-in-bucket" };
    assert_eq!(shown[1]["waits_for"]["relation"], relation, "{snapshot}");
    // The label of another node is not shown as a path.
    assert_eq!(shown[2]["waits_for"]["paths"].as_array().unwrap().len(), 0, "{snapshot}");
    assert!(text.contains("billing/re index on web-3, process 4711"), "{text}");
    // MariaDB does not show the mode: the held lock is known only from its waiters.
    let mode = if server.engine() == Engine::Mariadb { "" } else { " exclusive" };
    assert!(text.contains(&format!("holds u1{mode} (")), "{text}");
    assert!(is_postgres || text.contains("another path in the same bucket"), "{text}");
    // Sessions are not listed for an unrelated node.
    assert_eq!(rows(&locks_json(server, &["u2"])), []);
    drop(clients);
    wait_until_free(server);
    locks_of_run_are_listed(server, server.url(), has_labels);
    if is_postgres {
        rows_of_postgres_are_identified_by_their_waiters(server, &striped);
    }
}

fn start_holder(url: &str, target: &str) -> Holder {
    let mut command = hierlock(&["run", "--url", url, target]);
    command.args(["--", "sh", "-c", "echo $$; exec cat"]);
    Holder::start(command)
}

fn locks_of_run_are_listed(server: &Sandbox, url: &str, has_labels: bool) {
    let holder = start_holder(url, "u1/a1");
    let snapshot = locks_json(server, &["u1/a1"]);
    assert_eq!(rows(&snapshot), []);
    // MariaDB lists locks only if a session waits for them.
    if server.engine() != Engine::Mariadb {
        let held = snapshot["sessions"][0]["holds"].as_array().unwrap();
        assert!(held.iter().any(|lock| lock["paths"][0] == "u1/a1"), "{snapshot}");
    } else if !has_labels {
        // The first keep-alive of the holder writes its label to a table.
        until("the label is listed", || {
            let snapshot = locks_json(server, &["u1/a1"]);
            let session = &snapshot["sessions"][0];
            session["unconfirmed_paths"][0] == "u1/a1"
                && session["program"] == "sh"
                && session["host"].is_string()
                && session["client_pid"].is_u64()
        });
        let text = locks(server, &["u1/a1"]);
        assert!(text.contains("claims to lock u1/a1"), "{text}");
    }
    let text = locks(server, &[]);
    assert!(text.contains("no session waits; 1 session holds locks"), "{text}");
    let mut waiter =
        hierlock(&["run", "--url", url, "--quiet", "u1", "--", "true"]).spawn().unwrap();
    until("the waiter is listed with its program and path", || {
        let snapshot = locks_json(server, &["u1"]);
        let mut sessions = snapshot["sessions"].as_array().unwrap().iter();
        sessions
            .any(|session| session["program"] == "true" && session["waits_for"]["paths"][0] == "u1")
    });
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(waiter.wait().unwrap().code(), Some(0));
}

/// On PostgreSQL the bucket of a row is known from its waiters.
fn rows_of_postgres_are_identified_by_their_waiters(server: &Sandbox, url: &str) {
    let holder = start_holder(url, "u1/a1");
    let mut waiter =
        hierlock(&["run", "--url", url, "--quiet", "u1", "--", "true"]).spawn().unwrap();
    let mut snapshot = Value::Null;
    until("the waiter is listed", || {
        snapshot = locks_json(server, &["u1"]);
        rows(&snapshot).len() == 2
    });
    let bucket = Target::user("u1").unwrap().bucket(Buckets::new(BUCKETS).unwrap());
    let waiting = snapshot["trees"][0]["sessions"][1]["id"].as_i64().unwrap();
    let wanted = &session(&snapshot, waiting)["waits_for"]["slot"]["bucket"]["number"];
    assert_eq!(*wanted, bucket, "{snapshot}");
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(waiter.wait().unwrap().code(), Some(0));
}
