//! `hierlock locks` on row locks of PostgreSQL, which `pg_locks` does not list. The extension pgrowlocks must list the
//! same locks.

use crate::client_program::ClientProgram;
use crate::locks::{locks, locks_json, session, wait_until_free};
use crate::support::{Holder, code, hierlock, stderr, stdout, until};
use hierlock::{Buckets, Target};
use hierlock_sandbox::{Engine, Sandbox};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Stdio;

const BUCKETS: u32 = 100;

/// A lock table, with the URL for its clients.
struct RowTable {
    url: String,
    name: &'static str,
    /// The name of a row `t` as an SQL expression.
    key: &'static str,
}

#[test]
fn row_locks_that_nobody_waits_for_are_listed() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let mut admin = ClientProgram::start(&server);
    admin.run("CREATE EXTENSION pgrowlocks;");
    let table = |strategy: &str, name, key| RowTable {
        url: format!("{}?strategy={strategy}&table={name}", server.url()),
        name,
        key,
    };
    let striped = table("striped", "by_bucket", "t.level || ', ' || t.bucket");
    let per_id = table("per-id", "by_id", "t.lock_key::text");
    let on_demand = table("on-demand", "by_demand", "t.lock_key::text");
    provision(&striped.url, &["--buckets", &BUCKETS.to_string()]);
    provision(&per_id.url, &["u1/a1/r1", "u1/a1/r2"]);
    // The first client creates the table.
    assert_eq!(hold(&on_demand, &["u9"]).finish().0, Some(0));
    wait_until_free(&server);
    for table in [&striped, &per_id, &on_demand] {
        the_extension_lists_the_same_locks(&server, &mut admin, table);
        wait_until_free(&server);
        update_locks_are_shown_by_slot(&server, &mut admin, table);
        wait_until_free(&server);
    }
    let checks: [fn(&Sandbox, &mut ClientProgram, &RowTable); 5] = [
        a_label_without_a_row_lock_is_not_a_hold,
        locks_after_a_savepoint_are_listed,
        the_rows_of_a_requested_path_are_read,
        a_path_that_does_not_fit_into_the_label_is_found,
        a_missing_privilege_on_the_rows_is_reported,
    ];
    for check in checks {
        check(&server, &mut admin, &striped);
        wait_until_free(&server);
    }
    locks_does_not_wait_for_a_locked_table(&server, &mut admin, &striped);
}

fn provision(url: &str, arguments: &[&str]) {
    let output = hierlock(&[&["provision", "--url", url][..], arguments].concat()).output();
    let output = output.unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
}

fn hold(table: &RowTable, arguments: &[&str]) -> Holder {
    let mut command = hierlock(&["run", "--url", &table.url]);
    command.args(arguments).args(["--", "sh", "-c", "echo $$; exec cat"]);
    Holder::start(command)
}

/// Returns all row locks as `session row mode`.
fn row_locks(snapshot: &Value) -> BTreeSet<String> {
    let mut locks = BTreeSet::new();
    for session in snapshot["sessions"].as_array().unwrap() {
        let holds = session["holds"].as_array().unwrap().iter();
        for lock in holds.filter(|lock| lock["kind"] == "row") {
            let [row, mode] = ["record", "mode"].map(|field| lock[field].as_str().unwrap());
            locks.insert(format!("{} {row} {mode}", session["id"]));
        }
    }
    locks
}

/// Returns the same from the extension. It writes modes differently if several transactions have locked a row, and has the
/// process id 0 for a transaction that has ended.
fn row_locks_by_extension(admin: &mut ClientProgram, table: &RowTable) -> BTreeSet<String> {
    let RowTable { name, key, .. } = table;
    let locks = admin.ask(&format!(
        "SELECT COALESCE(string_agg(p.pid || ' ' || ({key}) || ' For ' || replace(m.mode, 'For ', ''), ';'), '') \
         FROM pgrowlocks('{name}') r JOIN {name} t ON t.ctid = r.locked_row, \
         unnest(r.pids) WITH ORDINALITY p(pid, n), unnest(r.modes) WITH ORDINALITY m(mode, n) \
         WHERE p.n = m.n AND p.pid <> 0;"
    ));
    locks.split(';').filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

fn the_extension_lists_the_same_locks(
    server: &Sandbox,
    admin: &mut ClientProgram,
    table: &RowTable,
) {
    let assert_same_locks = |admin: &mut ClientProgram, count: usize| {
        let snapshot = locks_json(server, &[]);
        let listed = row_locks(&snapshot);
        assert_eq!(listed, row_locks_by_extension(admin, table), "{}: {snapshot}", table.name);
        assert_eq!(listed.len(), count, "{}: {listed:?}", table.name);
        snapshot
    };
    assert_same_locks(admin, 0);
    let first = hold(table, &["u1/a1/r1"]);
    let snapshot = assert_same_locks(admin, 3);
    let holds = snapshot["sessions"][0]["holds"].as_array().unwrap();
    let paths: BTreeSet<&str> = holds.iter().filter_map(|lock| lock["paths"][0].as_str()).collect();
    assert_eq!(paths, BTreeSet::from(["u1", "u1/a1", "u1/a1/r1"]), "{snapshot}");
    assert_eq!(snapshot["sessions"][0]["unconfirmed_paths"], serde_json::json!([]), "{snapshot}");
    assert_eq!(snapshot["sessions"][0]["has_unlisted_locks"], false, "{snapshot}");
    assert_eq!(snapshot["notes"], serde_json::json!([]), "{snapshot}");
    let text = locks(server, &["u1/a1/r1"]);
    for part in ["holds u1 shared (", "holds u1/a1 shared (", "holds u1/a1/r1 exclusive ("] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // `locks kill` shows the locks of the session before it asks for confirmation.
    let id = snapshot["sessions"][0]["id"].to_string();
    let kill = ["locks", "kill", &id, "--reason", "x", "--url", server.url()];
    let prompt = stderr(&hierlock(&kill).stdin(Stdio::null()).output().unwrap());
    assert!(prompt.contains("holds u1/a1/r1 exclusive ("), "{prompt}");
    // Two sessions share the rows of the ancestors. Then one of them ends.
    let second = hold(table, &["--mode", "shared", "u1/a1/r2"]);
    assert_same_locks(admin, 6);
    let text = locks(server, &["u1/a1/r2"]);
    assert!(text.contains("holds u1/a1/r2 shared ("), "{text}");
    assert!(
        !text.contains("u1/a1/r1 "),
        "a session that only shares the ancestors is listed: {text}"
    );
    assert_eq!(first.finish().0, Some(0));
    wait_for_sessions(server, 1);
    assert_same_locks(admin, 3);
    // The row still contains the id of the ended transaction, which is no lock.
    assert_eq!(second.finish().0, Some(0));
    wait_until_free(server);
    assert_same_locks(admin, 0);
}

fn wait_for_sessions(server: &Sandbox, count: usize) {
    until("the other sessions have ended", || {
        locks_json(server, &[])["sessions"].as_array().unwrap().len() == count
    });
}

fn update_locks_are_shown_by_slot(server: &Sandbox, _: &mut ClientProgram, table: &RowTable) {
    let holder = hold(table, &["--mode", "update", "u1/a1/r1"]);
    let text = locks(server, &["u1/a1/r1"]);
    assert!(text.contains("holds u1/a1/r1 update ("), "{text}");
    assert!(!text.contains("holds advisory") && !text.contains("holds u1/a1/r1 shared"), "{text}");
    let mut command = hierlock(&["run", "--quiet", "--url", &table.url, "--mode", "update"]);
    let mut waiter = command.args(["u1/a1/r1", "--", "true"]).spawn().unwrap();
    let mut text = String::new();
    // A snapshot may list a session before it has set its label, and then its wait.
    until("the second update lock waits", || {
        text = locks(server, &[]);
        text.contains("1 session waits\n") && text.contains("for u1/a1/r1 update (")
    });
    assert!(text.contains("holds u1/a1/r1 update (") && !text.contains("s advisory"), "{text}");
    let hot = ["hot", "--for", "500ms", "--json", "--url", server.url()];
    let hot: Value = serde_json::from_str(&stdout(&hierlock(&hot).output().unwrap())).unwrap();
    assert_eq!(hot["slots"][0]["false_contention"], "no", "{hot}");
    assert_eq!(hot["slots"][0]["wanted"][0], "u1/a1/r1", "{hot}");
    assert_eq!(holder.finish().0, Some(0));
    assert_eq!(waiter.wait().unwrap().code(), Some(0));
}

/// Locks the row of a node with plain SQL.
fn lock_row(client: &mut ClientProgram, table: &RowTable, path: &str) {
    let node: Target = path.parse().unwrap();
    let (level, bucket) = (node.level(), node.bucket(Buckets::new(BUCKETS).unwrap()));
    client.run(&format!(
        "DO $$ BEGIN PERFORM FROM {} WHERE level = {level} AND bucket = {bucket} FOR UPDATE; END $$;",
        table.name
    ));
}

/// The label names u5 and u6, but the session has locked only u6.
fn a_label_without_a_row_lock_is_not_a_hold(
    server: &Sandbox,
    _: &mut ClientProgram,
    table: &RowTable,
) {
    let mut client = ClientProgram::start(server);
    client.run("SET application_name = 'x@h:1 u5 u6'; BEGIN;");
    lock_row(&mut client, table, "u6");
    let shown = session(&locks_json(server, &[]), client.id);
    assert_eq!(shown["unconfirmed_paths"], serde_json::json!(["u5"]), "{shown}");
    let holds = shown["holds"].as_array().unwrap().iter().filter(|lock| lock["kind"] == "row");
    let paths: Vec<&Value> = holds.map(|lock| &lock["paths"]).collect();
    assert_eq!(paths, [&serde_json::json!(["u6"])], "{shown}");
}

/// The extension does not know the process of a subtransaction.
fn locks_after_a_savepoint_are_listed(
    server: &Sandbox,
    admin: &mut ClientProgram,
    table: &RowTable,
) {
    let mut client = ClientProgram::start(server);
    client.run("SET application_name = 'x@h:1 u5 u6'; BEGIN; SAVEPOINT s;");
    lock_row(&mut client, table, "u5");
    assert_eq!(row_locks_by_extension(admin, table), BTreeSet::new());
    let snapshot = locks_json(server, &["u5"]);
    assert_eq!(row_locks(&snapshot).len(), 1, "{snapshot}");
    // The row still contains the id of the subtransaction that was rolled back, which is no lock.
    client.run("ROLLBACK TO SAVEPOINT s;");
    lock_row(&mut client, table, "u6");
    let shown = session(&locks_json(server, &[]), client.id);
    assert_eq!(shown["unconfirmed_paths"], serde_json::json!(["u5"]), "{shown}");
}

/// A session without a label.
fn the_rows_of_a_requested_path_are_read(
    server: &Sandbox,
    _: &mut ClientProgram,
    table: &RowTable,
) {
    let mut client = ClientProgram::start(server);
    client.run("BEGIN;");
    lock_row(&mut client, table, "u5");
    let text = locks(server, &["u5"]);
    assert!(text.contains("that of u5 or another path in the same bucket"), "{text}");
    let all = locks_json(server, &[]);
    assert_eq!(session(&all, client.id)["has_unlisted_locks"], true, "{all}");
    assert!(all["notes"][0].as_str().unwrap().contains("not listed"), "{all}");
}

fn a_path_that_does_not_fit_into_the_label_is_found(
    server: &Sandbox,
    _: &mut ClientProgram,
    table: &RowTable,
) {
    let id = "018f3c5a-7b1e-7c3d-9e4f-aaaaaaaaaaaa";
    let path = format!("u1/{id}/{id}");
    let holder = hold(table, &[&path]);
    let snapshot = locks_json(server, &[&path]);
    let holds = snapshot["sessions"][0]["holds"].as_array().unwrap();
    let rows = holds.iter().filter(|lock| lock["kind"] == "row").count();
    assert_eq!(rows, 3, "{snapshot}");
    let text = locks(server, &[]);
    assert!(text.contains("holds u1 shared ("), "{text}");
    assert!(text.contains("holds locks that the server does not list"), "{text}");
    assert_eq!(holder.finish().0, Some(0));
}

fn a_missing_privilege_on_the_rows_is_reported(
    server: &Sandbox,
    admin: &mut ClientProgram,
    table: &RowTable,
) {
    let RowTable { name, .. } = table;
    admin.run("CREATE ROLE reader LOGIN PASSWORD 'hunter2';");
    admin.run("GRANT SELECT ON hier_lock_meta, by_id, by_demand TO reader;");
    let holder = hold(table, &["u1/a1/r1"]);
    let port = server.url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let url = format!("postgres://reader:hunter2@127.0.0.1:{port}/postgres");
    let locks = || {
        let output = hierlock(&["locks", "--url", &url]).output().unwrap();
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let (text, grant) = (locks(), format!("GRANT SELECT ON \"public\".\"{name}\" TO reader"));
    assert!(text.contains(&grant), "{text}");
    assert!(text.contains("claims to lock u1/a1/r1"), "{text}");
    admin.run(&format!("{grant};"));
    let text = locks();
    assert!(
        text.contains("holds u1/a1/r1 exclusive (") && !text.contains("GRANT SELECT"),
        "{text}"
    );
    assert_eq!(holder.finish().0, Some(0));
}

fn locks_does_not_wait_for_a_locked_table(
    server: &Sandbox,
    admin: &mut ClientProgram,
    table: &RowTable,
) {
    let holder = hold(table, &["u1/a1/r1"]);
    let mut client = ClientProgram::start(server);
    // The ALTER TABLE waits for the holder, and every reader of the table waits behind it.
    client.send(&format!("ALTER TABLE {} ADD x INT;", table.name));
    until("the ALTER TABLE waits", || {
        admin.ask(&format!("SELECT cardinality(pg_blocking_pids({}));", client.id)) == "1"
    });
    let text = locks(server, &[]);
    assert!(
        text.contains(&format!("who has locked which row of {} could not be read", table.name)),
        "{text}"
    );
    assert!(text.contains("claims to lock u1/a1/r1"), "{text}");
    assert_eq!(holder.finish().0, Some(0));
}
