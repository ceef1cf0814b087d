//! The outcomes of an update, and the errors of rows without a proper version.

use super::{SEATS, read_seat, seat};
use crate::support::{Store, TestEngine, on_every_engine};
use hierlock::optimistic::{Changes, UpdateOutcome, VersionCheck, VersionedTable, WaitPolicy};
use hierlock::retry::{RetryCause, Retryable};
use hierlock_sandbox::Engine;

on_every_engine! {
    a_current_row_is_changed_and_its_version_incremented,
    a_stale_row_is_not_changed,
    a_missing_row_is_reported,
    outcomes_are_the_same_at_every_isolation_level,
    a_row_is_deleted_only_at_the_expected_version,
    a_bump_changes_only_the_version,
    a_stale_outcome_converts_to_an_error,
    an_expression_reads_the_old_row,
    a_comment_in_an_expression_does_not_hide_the_condition,
    a_key_of_several_rows_is_an_error,
    a_version_can_have_any_integer_type,
    an_invalid_version_is_an_error,
    a_missing_column_is_an_error,
    an_update_prevented_by_a_trigger_is_an_error,
    the_maximum_version_cannot_be_incremented,
}

async fn a_current_row_is_changed_and_its_version_incremented(store: Store) {
    let seat = seat(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    assert_eq!(seat.version(&mut tx).await.unwrap(), Some(1));
    let sold = Changes::new().set("holder", "it's \"ada\" \\ ?").set_expr(
        "price",
        "price - ?",
        [5.into()],
    );
    assert_eq!(seat.update(&mut tx, 1, sold).await.unwrap(), UpdateOutcome::Updated(2));
    assert_eq!(seat.version(&mut tx).await.unwrap(), Some(2));
    // A change to the same value increments the version as well.
    let same = Changes::new().set("price", 95);
    assert_eq!(seat.update(&mut tx, 2, same).await.unwrap(), UpdateOutcome::Updated(3));
    tx.commit().await.unwrap();
    assert_eq!(read_seat(&store).await, (Some("it's \"ada\" \\ ?".to_owned()), 95, 3));
    assert_eq!(store.number("SELECT version FROM seats WHERE id = 8").await, 1);

    let mut tx = store.database.begin().await.unwrap();
    let free = Changes::new().set("holder", None::<String>);
    assert_eq!(seat.update(&mut tx, 3, free).await.unwrap(), UpdateOutcome::Updated(4));
    tx.commit().await.unwrap();
    assert_eq!(read_seat(&store).await, (None, 95, 4));
}

async fn a_stale_row_is_not_changed(store: Store) {
    let seat = seat(&store).await;
    super::bump(&store, &seat).await;
    for expected in [1, 3, -1, i64::MIN] {
        let mut tx = store.database.begin().await.unwrap();
        let sold = Changes::new().set("holder", "bob");
        let stale = UpdateOutcome::Stale { expected, current: 2 };
        assert_eq!(seat.update(&mut tx, expected, sold).await.unwrap(), stale);
        assert_eq!(seat.bump_if(&mut tx, expected).await.unwrap(), stale);
        let stale = VersionCheck::Stale { expected, current: 2 };
        assert_eq!(seat.delete(&mut tx, expected).await.unwrap(), stale);
        for policy in [WaitPolicy::Wait, WaitPolicy::NoWait] {
            assert_eq!(seat.lock(&mut tx, expected, policy).await.unwrap(), stale);
        }
        tx.commit().await.unwrap();
    }
    assert_eq!(read_seat(&store).await, (None, 100, 2));
}

async fn a_missing_row_is_reported(store: Store) {
    seat(&store).await;
    let none = VersionedTable::new("seats", "version").unwrap().row("id", 9).unwrap();
    let mut tx = store.database.begin().await.unwrap();
    let sold = Changes::new().set("holder", "bob");
    assert_eq!(none.update(&mut tx, 1, sold).await.unwrap(), UpdateOutcome::Missing);
    assert_eq!(none.bump_if(&mut tx, 1).await.unwrap(), UpdateOutcome::Missing);
    assert_eq!(none.delete(&mut tx, 1).await.unwrap(), VersionCheck::Missing);
    assert_eq!(none.lock(&mut tx, 1, WaitPolicy::Wait).await.unwrap(), VersionCheck::Missing);
    assert_eq!(none.version(&mut tx).await.unwrap(), None);
    assert_eq!(none.bump(&mut tx).await.unwrap(), None);
    tx.commit().await.unwrap();
    assert_eq!(store.number("SELECT COUNT(*) FROM seats WHERE version = 1").await, 2);
}

async fn outcomes_are_the_same_at_every_isolation_level(store: Store) {
    let seat = seat(&store).await;
    let none = VersionedTable::new("seats", "version").unwrap().row("id", 9).unwrap();
    let levels = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    for (level, current) in levels.into_iter().zip(1..) {
        let mut tx = super::begin_at(&store, level).await;
        let stale = UpdateOutcome::Stale { expected: 0, current };
        assert_eq!(seat.bump_if(&mut tx, 0).await.unwrap(), stale, "{level}");
        let stale = VersionCheck::Stale { expected: 0, current };
        assert_eq!(seat.lock(&mut tx, 0, WaitPolicy::NoWait).await.unwrap(), stale, "{level}");
        assert_eq!(seat.delete(&mut tx, 0).await.unwrap(), stale, "{level}");
        assert_eq!(none.bump_if(&mut tx, 0).await.unwrap(), UpdateOutcome::Missing, "{level}");
        assert_eq!(seat.version(&mut tx).await.unwrap(), Some(current), "{level}");
        assert_eq!(seat.bump(&mut tx).await.unwrap(), Some(current + 1), "{level}");
        tx.commit().await.unwrap();
    }
}

async fn a_row_is_deleted_only_at_the_expected_version(store: Store) {
    let seat = seat(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    let stale = VersionCheck::Stale { expected: 2, current: 1 };
    assert_eq!(seat.delete(&mut tx, 2).await.unwrap(), stale);
    assert_eq!(seat.delete(&mut tx, 1).await.unwrap(), VersionCheck::Current);
    assert_eq!(seat.delete(&mut tx, 1).await.unwrap(), VersionCheck::Missing);
    tx.commit().await.unwrap();
    assert_eq!(store.number("SELECT id FROM seats").await, 8);
}

async fn a_bump_changes_only_the_version(store: Store) {
    let seat = seat(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    assert_eq!(seat.bump(&mut tx).await.unwrap(), Some(2));
    assert_eq!(seat.bump(&mut tx).await.unwrap(), Some(3));
    assert_eq!(seat.bump_if(&mut tx, 3).await.unwrap(), UpdateOutcome::Updated(4));
    // An update without changes does the same.
    assert_eq!(seat.update(&mut tx, 4, Changes::new()).await.unwrap(), UpdateOutcome::Updated(5));
    tx.commit().await.unwrap();
    assert_eq!(read_seat(&store).await, (None, 100, 5));
}

async fn a_stale_outcome_converts_to_an_error(store: Store) {
    let seat = seat(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    assert_eq!(seat.bump_if(&mut tx, 1).await.unwrap().updated().unwrap(), 2);
    seat.lock(&mut tx, 2, WaitPolicy::Wait).await.unwrap().current().unwrap();
    for error in [
        seat.bump_if(&mut tx, 1).await.unwrap().updated().unwrap_err(),
        seat.lock(&mut tx, 1, WaitPolicy::Wait).await.unwrap().current().unwrap_err(),
    ] {
        assert!(error.is_stale() && !error.is_missing() && !error.is_usage(), "{error}");
        assert_eq!(error.retry_cause(), Some(RetryCause::Stale));
        assert!(error.to_string().contains("at version 2, not at 1"), "{error}");
    }
    let none = VersionedTable::new("seats", "version").unwrap().row("id", 9).unwrap();
    let error = none.bump_if(&mut tx, 1).await.unwrap().updated().unwrap_err();
    assert!(error.is_missing() && error.retry_cause().is_none(), "{error}");
}

/// MySQL evaluates SET from left to right: in another order the expression would read the new price.
async fn an_expression_reads_the_old_row(store: Store) {
    let seat = seat(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    let changes =
        Changes::new().set("price", 7).set_expr("holder", "CONCAT(price, '/', version)", []);
    assert_eq!(seat.update(&mut tx, 1, changes).await.unwrap(), UpdateOutcome::Updated(2));
    tx.commit().await.unwrap();
    assert_eq!(read_seat(&store).await, (Some("100/1".to_owned()), 7, 2));
}

/// Without the condition the update would change every row.
async fn a_comment_in_an_expression_does_not_hide_the_condition(store: Store) {
    let seat = seat(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    let changes = Changes::new().set_expr("price", "price * 2 -- twice as much", []);
    assert_eq!(seat.update(&mut tx, 1, changes).await.unwrap(), UpdateOutcome::Updated(2));
    tx.commit().await.unwrap();
    assert_eq!(read_seat(&store).await, (None, 200, 2));
    assert_eq!(store.number("SELECT price FROM seats WHERE id = 8").await, 100);
}

async fn a_key_of_several_rows_is_an_error(store: Store) {
    seat(&store).await;
    let both = VersionedTable::new("seats", "version").unwrap().row("price", 100).unwrap();
    let mut tx = store.database.begin().await.unwrap();
    for error in [
        both.version(&mut tx).await.unwrap_err(),
        both.lock(&mut tx, 1, WaitPolicy::Wait).await.unwrap_err(),
        both.bump(&mut tx).await.unwrap_err(),
        both.delete(&mut tx, 2).await.unwrap_err(),
    ] {
        assert!(error.is_usage() && error.to_string().contains("matches 2 rows"), "{error}");
    }
}

async fn a_version_can_have_any_integer_type(store: Store) {
    let innodb =
        ["TINYINT", "MEDIUMINT", "TINYINT UNSIGNED", "SMALLINT UNSIGNED", "BIGINT UNSIGNED"];
    let is_innodb = matches!(store.engine, TestEngine::Server(Engine::Mysql | Engine::Mariadb));
    let innodb = if is_innodb { &innodb[..] } else { &[] };
    for (number, integer) in ["SMALLINT", "INTEGER", "BIGINT"].iter().chain(innodb).enumerate() {
        let table = format!("t{number}");
        store
            .run(&format!("CREATE TABLE {table} (id INT PRIMARY KEY, v {integer} NOT NULL)"))
            .await;
        store.run(&format!("INSERT INTO {table} VALUES (1, 41)")).await;
        let row = VersionedTable::new(&table, "v").unwrap().row("id", 1).unwrap();
        let mut tx = store.database.begin().await.unwrap();
        assert_eq!(row.version(&mut tx).await.unwrap(), Some(41), "{integer}");
        assert_eq!(row.bump(&mut tx).await.unwrap(), Some(42), "{integer}");
        assert_eq!(
            row.bump_if(&mut tx, 42).await.unwrap(),
            UpdateOutcome::Updated(43),
            "{integer}"
        );
        let stale = UpdateOutcome::Stale { expected: 42, current: 43 };
        assert_eq!(row.bump_if(&mut tx, 42).await.unwrap(), stale, "{integer}");
        assert_eq!(row.delete(&mut tx, 43).await.unwrap(), VersionCheck::Current, "{integer}");
        tx.commit().await.unwrap();
    }
}

async fn an_invalid_version_is_an_error(store: Store) {
    let mut invalid = vec![
        ("BIGINT", "NULL", "is NULL"),
        ("VARCHAR(9)", "'abc'", "a version is an integer"),
        ("DOUBLE PRECISION", "1.5", "a version is an integer"),
    ];
    if matches!(store.engine, TestEngine::Server(Engine::Mysql | Engine::Mariadb)) {
        invalid.push(("BIGINT UNSIGNED", "9223372036854775808", "a version is an integer"));
    }
    for (number, (kind, value, expected)) in invalid.into_iter().enumerate() {
        let table = format!("t{number}");
        store.run(&format!("CREATE TABLE {table} (id INT PRIMARY KEY, v {kind})")).await;
        store.run(&format!("INSERT INTO {table} VALUES (1, {value})")).await;
        let row = VersionedTable::new(&table, "v").unwrap().row("id", 1).unwrap();
        let mut tx = store.database.begin().await.unwrap();
        let mut errors = vec![
            row.version(&mut tx).await.unwrap_err(),
            row.lock(&mut tx, 1, WaitPolicy::Wait).await.unwrap_err(),
        ];
        // Servers have their own error for the comparison of such a text with a number.
        if kind != "VARCHAR(9)" || store.engine == TestEngine::Sqlite {
            errors.push(row.bump_if(&mut tx, 3).await.unwrap_err());
        }
        for error in errors {
            let message = error.to_string();
            let column = format!("`v` of the row of `{table}`");
            assert!(message.contains(expected) && message.contains(&column), "{message}");
            assert!(!error.is_usage() && error.retry_cause().is_none(), "{error}");
        }
    }
}

/// SQLite treats an unknown name in double quotes as a string, and would find no row.
async fn a_missing_column_is_an_error(store: Store) {
    seat(&store).await;
    let seats = VersionedTable::new("seats", "version").unwrap();
    for row in [
        seats.row("idd", 7).unwrap(),
        VersionedTable::new("seats", "versio").unwrap().row("id", 7).unwrap(),
        VersionedTable::new("seat", "version").unwrap().row("id", 7).unwrap(),
    ] {
        for operation in ["read the version", "change the row", "delete the row"] {
            let mut tx = store.database.begin().await.unwrap();
            let error = match operation {
                "read the version" => row.version(&mut tx).await.unwrap_err(),
                "change the row" => row.bump_if(&mut tx, 1).await.unwrap_err(),
                _ => row.delete(&mut tx, 1).await.unwrap_err(),
            };
            assert!(error.to_string().contains(operation), "{error}");
        }
    }
}

async fn an_update_prevented_by_a_trigger_is_an_error(store: Store) {
    let seat = seat(&store).await;
    let trigger = match store.engine {
        TestEngine::Sqlite => {
            "CREATE TRIGGER keep BEFORE UPDATE ON seats BEGIN SELECT RAISE(IGNORE); END"
        }
        TestEngine::Server(Engine::Postgres) => {
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
             CREATE TRIGGER keep BEFORE UPDATE ON seats FOR EACH ROW EXECUTE FUNCTION keep()"
        }
        // On the others a trigger cannot skip an update.
        TestEngine::Server(_) => return,
    };
    store.run(trigger).await;
    let mut tx = store.database.begin().await.unwrap();
    let error = seat.bump_if(&mut tx, 1).await.unwrap_err();
    assert!(error.to_string().contains("does not change"), "{error}");
}

async fn the_maximum_version_cannot_be_incremented(store: Store) {
    store.run(SEATS).await;
    store.run(&format!("INSERT INTO seats VALUES (7, NULL, 100, {})", i64::MAX)).await;
    let seat = VersionedTable::new("seats", "version").unwrap().row("id", 7).unwrap();
    let mut tx = store.database.begin().await.unwrap();
    let error = seat.bump_if(&mut tx, i64::MAX).await.unwrap_err();
    assert!(error.is_usage(), "{error}");
    seat.bump(&mut tx).await.unwrap_err();
    tx.rollback().await.unwrap();
    assert_eq!(read_seat(&store).await.2, i64::MAX);
}
