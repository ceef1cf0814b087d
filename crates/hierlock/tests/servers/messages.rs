//! Error messages of servers. The failure this prevents: "relation "t" does not exist at line 1392" contained a line number
//! of the server's own source code, which readers took for a line of their statement.

use crate::support::{Database, Setup, on_each_engine, target};
use hierlock::database::Database as Toolbox;
use hierlock::sql::{Provision, Strategy};
use hierlock::{Error, Hierarchy, Hierlock};
use hierlock_sandbox::Engine;

on_each_engine!(errors_quote_the_server_without_its_source_line);

async fn errors_quote_the_server_without_its_source_line(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let mut outside = database.outside().await;
    let mut errors: Vec<(&str, Error)> = Vec::new();

    // While connecting: locks, provisioning, the toolbox.
    let elsewhere = database.url.replacen("hierlock_test_", "hierlock_none_", 1);
    errors.push(("lock", Hierlock::connect(&elsewhere).await.unwrap_err()));
    let bare = elsewhere.split('?').next().unwrap();
    errors.push(("toolbox", Toolbox::connect(bare).await.unwrap_err()));
    if setup.strategy == Strategy::Striped {
        let provision = Provision::connect(&elsewhere, Hierarchy::default()).await;
        errors.push(("provision", provision.err().unwrap()));
    }

    // A statement of the caller, and one of the toolbox.
    let toolbox = Toolbox::connect(database.bare_url()).await.unwrap();
    let mut tx = toolbox.begin().await.unwrap();
    errors.push(("statement", tx.run("SELECT * FROM nowhere").await.unwrap_err()));
    drop(tx);

    // A session that was killed.
    let locks = database.connect_with("connections=1&keep_alive_ms=100").await;
    let guard = locks.acquire(target("u1")).await.unwrap();
    let holder = outside.busy_session().await;
    outside.kill(holder).await;
    errors.push(("lost", guard.lost().await));
    drop(guard);

    // A table with a renamed column.
    if setup.strategy == Strategy::Striped {
        outside.run("ALTER TABLE hier_lock_buckets RENAME COLUMN bucket TO pail").await;
        errors.push(("acquire", locks.acquire(target("u1")).await.unwrap_err()));
        let provision = Provision::connect(&database.url, Hierarchy::default()).await;
        let checked = match provision {
            Ok(provision) => provision.check(|_| ()).await.map(drop),
            Err(error) => Err(error),
        };
        errors.push(("check", checked.unwrap_err()));
    }

    for (operation, error) in errors {
        let message = error.to_string();
        println!("{operation}: {message}");
        assert!(!message.contains("returned from database"), "{operation}: {message}");
        // MySQL and MariaDB name a line of the statement only for syntax errors, which do not occur here.
        assert!(!message.contains(" at line "), "{operation}: {message}");
        if setup.engine == Engine::Postgres {
            let codes = ["3D000: ", "42P01: ", "42703: ", "57P01: ", "ended the connection"];
            assert!(codes.iter().any(|code| message.contains(code)), "{operation}: {message}");
        }
    }
}
