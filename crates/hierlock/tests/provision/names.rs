//! A table has one agreement, however it was named; and a name may be any word.

use crate::striped;
use crate::support::{Database, Setup};
use hierlock::sql::Strategy;
use hierlock::{Buckets, Hierlock, Target};
use hierlock_sandbox::{Engine, on_each_server};

on_each_server! {
    the_default_table_by_its_name_is_the_default_table,
    agreements_of_older_releases_are_followed,
    a_table_that_was_named_apart_stays_apart,
    a_reserved_word_is_a_name_of_a_table,
}

const NAMED: &str = "&table=hier_lock_buckets";
const SPACES: &str = "SELECT space FROM hier_lock_meta ORDER BY space";

fn buckets(count: u32) -> Buckets {
    Buckets::new(count).unwrap()
}

fn node() -> Target {
    Target::resource("u1", "a1", "r1").unwrap()
}

/// Do the two exclude each other?
async fn share(one: &Hierlock, other: &Hierlock) {
    let guard = one.acquire(node()).await.unwrap();
    assert!(other.try_acquire(node()).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.try_acquire(node()).await.unwrap().is_some());
}

/// `?table=hier_lock_buckets` was another agreement than none: a client without it was told that there was no
/// table, and after a rebucket through one of the two the clients of the other were refused.
async fn the_default_table_by_its_name_is_the_default_table(engine: Engine) {
    for (first, second) in [(NAMED, ""), ("", NAMED), ("", "&table=HIER_lock_Buckets")] {
        let Some(database) = striped(engine).await else { return };
        let url = format!("{first}&buckets=100");
        database.provisioner(&url).await.run(|_| ()).await.unwrap();
        let clients = [
            database.try_connect(first).await.unwrap(),
            database.try_connect(second).await.unwrap(),
        ];
        share(&clients[0], &clients[1]).await;
        let provision = database.provisioner(second).await;
        provision.rebucket(buckets(140), |_| ()).await.unwrap();
        share(&clients[1], &clients[0]).await;
        share(&clients[0], &database.try_connect(first).await.unwrap()).await;
        for more in [first, second] {
            let again = database.provisioner(more).await.run(|_| ()).await.unwrap();
            assert_eq!((again.rows, again.inserted), (420, 0));
        }
        database.assert_rows(140).await;
        assert_eq!(database.outside().await.rows(SPACES).await, [["default"]]);
    }
}

/// Older releases wrote the agreement of a default table that was named under its name, maybe beside the other.
async fn agreements_of_older_releases_are_followed(engine: Engine) {
    let Some(database) = striped(engine).await else { return };
    database.provisioner("&buckets=100").await.run(|_| ()).await.unwrap();
    let mut outside = database.outside().await;
    // Only by its name.
    let rename = "UPDATE hier_lock_meta SET space = 'hier_lock_buckets' WHERE space = 'default'";
    outside.run(rename).await;
    let [plain, named] =
        [database.try_connect("").await.unwrap(), database.try_connect(NAMED).await.unwrap()];
    share(&plain, &named).await;
    database.provisioner("").await.rebucket(buckets(120), |_| ()).await.unwrap();
    share(&named, &plain).await;
    // Both, and only that of the name knows of the last change.
    let both = "INSERT INTO hier_lock_meta (space, strategy, buckets, levels, key_version, state) \
                SELECT 'default', strategy, 100, levels, key_version, state FROM hier_lock_meta";
    outside.run(both).await;
    let [plain, named] =
        [database.try_connect("").await.unwrap(), database.try_connect(NAMED).await.unwrap()];
    share(&plain, &named).await;
    assert_eq!(database.provisioner("").await.scheme().slots(), named_slots(120));
    // A change of today is known under both names, so that clients of older releases follow as well.
    database.provisioner(NAMED).await.rebucket(buckets(160), |_| ()).await.unwrap();
    share(&named, &plain).await;
    let counts = "SELECT DISTINCT buckets FROM hier_lock_meta";
    assert_eq!(outside.rows(counts).await, [["160"]]);
    database.assert_rows(160).await;
}

fn named_slots(count: u32) -> hierlock::Slots {
    hierlock::Slots::Buckets(buckets(count))
}

/// Those who name no table have agreed on rows by ID. Whoever names the table of buckets keeps apart from them, as
/// with any other name; who names none is told that the others have agreed on something else.
async fn a_table_that_was_named_apart_stays_apart(engine: Engine) {
    let setup = Setup { engine, strategy: Strategy::PerId };
    let Some(by_id) = Database::empty(setup).await else { return };
    by_id.provisioner("").await.run(|_| ()).await.unwrap();
    by_id.provisioner("").await.add(&[node()]).await.unwrap();
    let striped = Database {
        url: by_id.url.replace("per-id", "striped"),
        setup: Setup { engine, strategy: Strategy::Striped },
    };
    let refused = |error: hierlock::Error| {
        let message = error.to_string();
        assert!(message.contains("the strategy per-id, not striped"), "{message}");
    };
    refused(striped.try_connect("").await.unwrap_err());
    striped.provisioner("&table=hier_lock_buckets&buckets=50").await.run(|_| ()).await.unwrap();
    let apart = striped.try_connect(NAMED).await.unwrap();
    let _guard = apart.acquire(node()).await.unwrap();
    let by_name = by_id.try_connect("&table=hier_locks").await.unwrap();
    share(&by_id.try_connect("").await.unwrap(), &by_name).await;
    refused(striped.try_connect("").await.unwrap_err());
    let error = striped.try_connect("&table=hier_locks").await.unwrap_err();
    refused(error);
    let spaces = striped.outside().await.rows(SPACES).await;
    assert_eq!(spaces, [["default"], ["hier_lock_buckets"]]);
}

/// `table=select` was a syntax error of the server, raw.
async fn a_reserved_word_is_a_name_of_a_table(engine: Engine) {
    for strategy in [Strategy::Striped, Strategy::PerId, Strategy::OnDemand] {
        let Some(database) = Database::empty(Setup { engine, strategy }).await else { return };
        let word = "&table=Select";
        if strategy != Strategy::OnDemand {
            let few = if strategy == Strategy::Striped { "&buckets=30" } else { "" };
            let provision = database.provisioner(&format!("{word}{few}")).await;
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
        share(&one, &other).await;
        // What is in the way is found out in other ways for an update lock, and for a wait.
        let reader = one.request(node()).mode(hierlock::Mode::Update).acquire().await.unwrap();
        let limit = std::time::Duration::from_millis(50);
        let waits = other.request(node()).mode(hierlock::Mode::Update).within(limit);
        assert!(waits.acquire().await.unwrap_err().is_timeout());
        drop(reader);
    }
}
