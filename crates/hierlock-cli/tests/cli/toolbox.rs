//! `hierlock lease` and `hierlock queue` on servers: one test for each, because a start takes seconds.

use crate::support::{code, stderr};
use crate::test_database::TestDatabase;
use crate::{lease, queue};
use hierlock_sandbox::Engine;

#[test]
fn mysql() {
    a_round(Engine::Mysql);
}

#[test]
fn mariadb() {
    a_round(Engine::Mariadb);
}

#[test]
fn postgres() {
    a_round(Engine::Postgres);
}

fn a_round(engine: Engine) {
    let Some(mut store) = TestDatabase::server(engine) else { return };
    without_tables_it_says_how_to_make_them(&store);
    provisioned(&store, engine);
    lease::acquired_held_forced_and_lost(&store);
    queue::added_worked_dead_and_retried(&store);
    queue::a_database_that_goes_away_is_reported_and_ends_the_commands(&mut store);
}

fn without_tables_it_says_how_to_make_them(store: &TestDatabase) {
    for arguments in [
        &["lease", "acquire", "u1", "--owner", "ada"][..],
        &["lease", "list"],
        &["lease", "renew", "1"],
        &["lease", "release", "1"],
        &["lease", "force-release", "1", "--actor", "root", "--reason", "x"],
        &["lease", "audit"],
        &["lease", "sweep"],
        &["queue", "add", "mail", "x"],
        &["queue", "stats"],
        &["queue", "stats", "mail"],
        &["queue", "dead", "mail"],
        &["queue", "retry-dead", "mail", "--all"],
        &["queue", "work", "mail", "--", "true"],
    ] {
        let said = store.fails(69, arguments);
        let makes = format!("`hierlock {} provision`", arguments[0]);
        assert!(said.contains(&makes), "{arguments:?}: {said}");
    }
}

/// Provisions with the command, and with the printed SQL in the server's client.
fn provisioned(store: &TestDatabase, engine: Engine) {
    let script = store.ok(&["lease", "provision", "--print-sql"]);
    assert!(store.fails(69, &["lease", "list"]).contains("lease provision"), "nothing was done");
    match engine {
        Engine::Postgres => {
            let client = std::process::Command::new("psql")
                .args([&store.url, "-q", "-v", "ON_ERROR_STOP=1", "-c", &script])
                .output()
                .unwrap();
            assert_eq!(code(&client), Some(0), "{}", stderr(&client));
        }
        Engine::Mysql | Engine::Mariadb => {
            assert_eq!(store.ok(&["lease", "provision"]), "ready\n");
        }
    }
    assert_eq!(store.ok(&["lease", "list"]), "no leases\n");
    assert_eq!(store.ok(&["lease", "provision"]), "ready\n", "once more does no harm");
    assert_eq!(store.ok(&["queue", "provision"]), "ready\n");
    assert_eq!(store.ok(&["queue", "stats"]), "no jobs\n");
}
