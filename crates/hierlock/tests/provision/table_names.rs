//! Names of tables: a default table has one agreement, with or without its name in the URL, and any word can name a table.

use crate::striped;
use crate::support::{Database, Setup};
use hierlock::sql::Strategy;
use hierlock::{Buckets, Hierlock, Target};
use hierlock_sandbox::{Engine, on_each_server};

on_each_server! {
    clients_with_and_without_the_default_name_share_a_table,
    agreements_of_older_releases_are_followed,
    a_named_table_is_independent_of_the_default_agreement,
    a_reserved_word_can_name_a_table,
}

const TABLE_PARAMETER: &str = "&table=hier_lock_buckets";
const SELECT_SPACES: &str = "SELECT space FROM hier_lock_meta ORDER BY space";

fn buckets(count: u32) -> Buckets {
    Buckets::new(count).unwrap()
}

fn node() -> Target {
    Target::resource("u1", "a1", "r1").unwrap()
}

/// Checks that two clients exclude each other.
async fn assert_exclusive(one: &Hierlock, other: &Hierlock) {
    let guard = one.acquire(node()).await.unwrap();
    assert!(other.try_acquire(node()).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.try_acquire(node()).await.unwrap().is_some());
}

/// The failure this prevents: `?table=hier_lock_buckets` had its own agreement. A client without the parameter failed with
/// "no lock table", and after a rebucket with one form of the URL, clients with the other were refused.
async fn clients_with_and_without_the_default_name_share_a_table(engine: Engine) {
    for (first, second) in
        [(TABLE_PARAMETER, ""), ("", TABLE_PARAMETER), ("", "&table=HIER_lock_Buckets")]
    {
        let Some(database) = striped(engine).await else { return };
        let url = format!("{first}&buckets=100");
        database.provisioner(&url).await.run(|_| ()).await.unwrap();
        let clients = [
            database.try_connect(first).await.unwrap(),
            database.try_connect(second).await.unwrap(),
        ];
        assert_exclusive(&clients[0], &clients[1]).await;
        let provision = database.provisioner(second).await;
        provision.rebucket(buckets(140), |_| ()).await.unwrap();
        assert_exclusive(&clients[1], &clients[0]).await;
        assert_exclusive(&clients[0], &database.try_connect(first).await.unwrap()).await;
        for more in [first, second] {
            let again = database.provisioner(more).await.run(|_| ()).await.unwrap();
            assert_eq!((again.rows, again.inserted), (420, 0));
        }
        database.assert_rows(140).await;
        assert_eq!(database.outside().await.rows(SELECT_SPACES).await, [["default"]]);
    }
}

/// If a URL named a default table, older releases wrote the agreement under that name, sometimes in addition to `default`.
async fn agreements_of_older_releases_are_followed(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=100").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    // The agreement is only under the name of the table.
    let rename = "UPDATE hier_lock_meta SET space = 'hier_lock_buckets' WHERE space = 'default'";
    outside.run(rename).await;
    let [plain, named] = [
        database.try_connect("").await.unwrap(),
        database.try_connect(TABLE_PARAMETER).await.unwrap(),
    ];
    assert_exclusive(&plain, &named).await;
    database.provisioner("").await.rebucket(buckets(120), |_| ()).await.unwrap();
    assert_exclusive(&named, &plain).await;
    // There are two agreements, and only the one under the name of the table has the current count.
    let both = "INSERT INTO hier_lock_meta (space, strategy, buckets, levels, key_version, state) \
                SELECT 'default', strategy, 100, levels, key_version, state FROM hier_lock_meta";
    outside.run(both).await;
    let [plain, named] = [
        database.try_connect("").await.unwrap(),
        database.try_connect(TABLE_PARAMETER).await.unwrap(),
    ];
    assert_exclusive(&plain, &named).await;
    assert_eq!(
        database.provisioner("").await.scheme().slots(),
        hierlock::Slots::Buckets(buckets(120))
    );
    // A rebucket updates both agreements, so that clients of older releases follow it.
    database.provisioner(TABLE_PARAMETER).await.rebucket(buckets(160), |_| ()).await.unwrap();
    assert_exclusive(&named, &plain).await;
    let counts = "SELECT DISTINCT buckets FROM hier_lock_meta";
    assert_eq!(outside.rows(counts).await, [["160"]]);
    database.assert_rows(160).await;
}

/// The default agreement is for rows by ID. A client that names the table of buckets is independent of it, as with any other
/// name. A client with another strategy that names no table is refused.
async fn a_named_table_is_independent_of_the_default_agreement(engine: Engine) {
    let setup = Setup { engine, strategy: Strategy::PerId };
    let Some(by_id) = Database::empty(setup).await else { return };
    by_id.provisioner("").await.run(|_| ()).await.unwrap();
    by_id.provisioner("").await.add(&[node()]).await.unwrap();
    let striped = Database {
        url: by_id.url.replace("per-id", "striped"),
        setup: Setup { engine, strategy: Strategy::Striped },
    };
    let assert_refused = |error: hierlock::Error| {
        let message = error.to_string();
        assert!(message.contains("the strategy per-id, not striped"), "{message}");
    };
    assert_refused(striped.try_connect("").await.unwrap_err());
    striped.provisioner("&table=hier_lock_buckets&buckets=50").await.run(|_| ()).await.unwrap();
    let striped_locks = striped.try_connect(TABLE_PARAMETER).await.unwrap();
    let _guard = striped_locks.acquire(node()).await.unwrap();
    let by_name = by_id.try_connect("&table=hier_locks").await.unwrap();
    assert_exclusive(&by_id.try_connect("").await.unwrap(), &by_name).await;
    assert_refused(striped.try_connect("").await.unwrap_err());
    assert_refused(striped.try_connect("&table=hier_locks").await.unwrap_err());
    let spaces = striped.outside().await.rows(SELECT_SPACES).await;
    assert_eq!(spaces, [["default"], ["hier_lock_buckets"]]);
}

/// The failure this prevents: `table=select` failed with a syntax error of the server.
async fn a_reserved_word_can_name_a_table(engine: Engine) {
    for strategy in [Strategy::Striped, Strategy::PerId, Strategy::OnDemand] {
        let Some(database) = Database::empty(Setup { engine, strategy }).await else { return };
        let word = "&table=Select";
        if strategy != Strategy::OnDemand {
            let count = if strategy == Strategy::Striped { "&buckets=30" } else { "" };
            let provision = database.provisioner(&format!("{word}{count}")).await;
            provision.run(|_| ()).await.unwrap();
            if strategy == Strategy::Striped {
                provision.rebucket(buckets(20), |_| ()).await.unwrap();
                let provision = database.provisioner(word).await;
                assert!(provision.check(|_| ()).await.unwrap().is_clean());
            } else {
                provision.add(&[node()]).await.unwrap();
            }
        }
        let [one, other] =
            [database.try_connect(word).await.unwrap(), database.try_connect(word).await.unwrap()];
        assert_exclusive(&one, &other).await;
        // Other queries look up the blocker of an update lock and of a wait.
        let updater = one.request(node()).mode(hierlock::Mode::Update).acquire().await.unwrap();
        let limit = std::time::Duration::from_millis(50);
        let waits = other.request(node()).mode(hierlock::Mode::Update).within(limit);
        assert!(waits.acquire().await.unwrap_err().is_timeout());
        drop(updater);
    }
}
