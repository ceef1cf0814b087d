//! `hierlock lease` and `hierlock queue` on servers. Each server has one test, because a start takes seconds.

use crate::support::{code, stderr};
use crate::test_database::TestDatabase;
use crate::{lease, queue};
use hierlock_sandbox::Engine;

#[test]
fn mysql() {
    leases_and_queues_work(Engine::Mysql);
}

#[test]
fn mariadb() {
    leases_and_queues_work(Engine::Mariadb);
}

#[test]
fn postgres() {
    leases_and_queues_work(Engine::Postgres);
}

fn leases_and_queues_work(engine: Engine) {
    let Some(mut database) = TestDatabase::server(engine) else { return };
    missing_tables_are_reported(&database);
    provision_creates_the_tables(&database, engine);
    lease::a_lease_excludes_others_until_it_is_taken_away(&database);
    queue::jobs_are_run_and_dead_ones_retried(&database);
    queue::a_database_that_goes_away_is_reported_and_ends_the_commands(&mut database);
}

fn missing_tables_are_reported(database: &TestDatabase) {
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
        let printed = database.fails(69, arguments);
        let fix = format!("`hierlock {} provision`", arguments[0]);
        assert!(printed.contains(&fix), "{arguments:?}: {printed}");
    }
}

/// Provisions with the command, and with the printed SQL in the server's client.
fn provision_creates_the_tables(database: &TestDatabase, engine: Engine) {
    let script = database.ok(&["lease", "provision", "--print-sql"]);
    assert!(
        database.fails(69, &["lease", "list"]).contains("lease provision"),
        "--print-sql must not create tables"
    );
    match engine {
        Engine::Postgres => {
            let client = std::process::Command::new("psql")
                .args([&database.url, "-q", "-v", "ON_ERROR_STOP=1", "-c", &script])
                .output()
                .unwrap();
            assert_eq!(code(&client), Some(0), "{}", stderr(&client));
        }
        Engine::Mysql | Engine::Mariadb => {
            assert_eq!(database.ok(&["lease", "provision"]), "ready\n");
        }
    }
    assert_eq!(database.ok(&["lease", "list"]), "no leases\n");
    assert_eq!(database.ok(&["lease", "provision"]), "ready\n", "provision can be repeated");
    assert_eq!(database.ok(&["queue", "provision"]), "ready\n");
    assert_eq!(database.ok(&["queue", "stats"]), "no jobs\n");
}
