//! Names and values that could break out of a statement, and keys of every shape.

use super::is_engine;
use crate::support::{Store, TestEngine, on_every_engine};
use hierlock::optimistic::{Changes, UpdateOutcome, VersionedTable, WaitPolicy};
use hierlock_sandbox::Engine;

on_every_engine! {
    all_names_are_quoted,
    values_cannot_break_out_of_a_statement,
    a_key_can_have_several_columns,
    a_table_can_be_in_another_schema,
    a_key_can_be_cast_to_another_type,
    a_transaction_of_sqlx_can_be_used,
}

/// Returns a quoted name for the engine.
fn quoted(store: &Store, name: &str) -> String {
    match store.engine {
        TestEngine::Server(Engine::Mysql | Engine::Mariadb) => {
            format!("`{}`", name.replace('`', "``"))
        }
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

async fn all_names_are_quoted(store: Store) {
    let names = ["select", "it's?", "a\"b", "a`b", "x; DROP TABLE y --", "席 1", "$1", "a.b"];
    for (number, name) in names.into_iter().enumerate() {
        // A dot in the name of a table separates its schema.
        let table = if name.contains('.') { "dotted" } else { name };
        let [t, key, version, column] =
            [table.to_owned(), format!("{name}k"), format!("{name}v"), name.to_owned()];
        let [q_t, q_key, q_version, q_column] =
            [&t, &key, &version, &column].map(|name| quoted(&store, name));
        store
            .run(&format!(
                "CREATE TABLE {q_t} ({q_key} INT PRIMARY KEY, {q_version} INT NOT NULL, {q_column} INT)"
            ))
            .await;
        store.run(&format!("INSERT INTO {q_t} VALUES (1, 1, 0), (2, 1, 0)")).await;
        let row = VersionedTable::new(&t, &version).unwrap().row(&key, 1).unwrap();
        let mut tx = store.database.begin().await.unwrap();
        let changes = Changes::new().set(&column, number as i64 + 10);
        assert_eq!(
            row.update(&mut tx, 1, changes).await.unwrap(),
            UpdateOutcome::Updated(2),
            "{name}"
        );
        let stale = UpdateOutcome::Stale { expected: 1, current: 2 };
        assert_eq!(row.bump_if(&mut tx, 1).await.unwrap(), stale, "{name}");
        row.lock(&mut tx, 2, WaitPolicy::NoWait).await.unwrap().current().unwrap();
        tx.commit().await.unwrap();
        let is_set = format!("SELECT COUNT(*) FROM {q_t} WHERE {q_column} = {}", number + 10);
        assert_eq!(store.number(&is_set).await, 1, "{name}");
    }
}

async fn values_cannot_break_out_of_a_statement(store: Store) {
    let keys = ["it's", "\"q\"", "`b`", "?", "$1", "\\", "' OR 1=1 --", "席", "%", ""];
    store
        .run("CREATE TABLE notes (k VARCHAR(40) PRIMARY KEY, note VARCHAR(40), v INT NOT NULL)")
        .await;
    let notes = VersionedTable::new("notes", "v").unwrap();
    let mut tx = store.database.begin().await.unwrap();
    for key in keys {
        tx.execute("INSERT INTO notes VALUES (?, '', 1)", [key.into()]).await.unwrap();
    }
    for key in keys {
        let row = notes.row("k", key).unwrap();
        let change = Changes::new().set("note", key);
        assert_eq!(
            row.update(&mut tx, 1, change).await.unwrap(),
            UpdateOutcome::Updated(2),
            "{key}"
        );
    }
    let rows = tx.fetch("SELECT k, note FROM notes WHERE v = 2", []).await.unwrap();
    assert_eq!(rows.len(), keys.len());
    for row in rows {
        assert_eq!(row.text(0).unwrap(), row.text(1).unwrap());
    }
    tx.commit().await.unwrap();
}

async fn a_key_can_have_several_columns(store: Store) {
    store
        .run(
            "CREATE TABLE seats (hall VARCHAR(9), line INT, seat INT, version INT NOT NULL, \
             PRIMARY KEY (hall, line, seat))",
        )
        .await;
    store.run("INSERT INTO seats VALUES ('A', 1, 1, 1), ('A', 1, 2, 1), ('A', 2, 1, 1), ('B', 1, 1, 1)").await;
    let seats = VersionedTable::new("seats", "version").unwrap();
    let row = seats.row("hall", "A").unwrap().and("line", 1).unwrap().and("seat", 1).unwrap();
    let mut tx = store.database.begin().await.unwrap();
    assert_eq!(row.bump_if(&mut tx, 1).await.unwrap(), UpdateOutcome::Updated(2));
    let stale = UpdateOutcome::Stale { expected: 1, current: 2 };
    assert_eq!(row.bump_if(&mut tx, 1).await.unwrap(), stale);
    tx.commit().await.unwrap();
    assert_eq!(store.number("SELECT COUNT(*) FROM seats WHERE version = 2").await, 1);
}

async fn a_table_can_be_in_another_schema(store: Store) {
    let schema = match store.engine {
        TestEngine::Sqlite => "main".to_owned(),
        TestEngine::Server(_) => format!("shop_{}", store.url.rsplit('/').next().unwrap()),
    };
    let make = match store.engine {
        TestEngine::Sqlite => "SELECT 1".to_owned(),
        TestEngine::Server(_) => format!("CREATE SCHEMA {schema}"),
    };
    store.run(&make).await;
    store.run(&format!("CREATE TABLE {schema}.seats (id INT PRIMARY KEY, v INT NOT NULL)")).await;
    store.run(&format!("INSERT INTO {schema}.seats VALUES (1, 1)")).await;
    let seat = VersionedTable::new(&format!("{schema}.seats"), "v").unwrap().row("id", 1).unwrap();
    let mut tx = store.database.begin().await.unwrap();
    assert_eq!(seat.bump_if(&mut tx, 1).await.unwrap(), UpdateOutcome::Updated(2));
    let stale = UpdateOutcome::Stale { expected: 1, current: 2 };
    assert_eq!(seat.bump_if(&mut tx, 1).await.unwrap(), stale);
    tx.commit().await.unwrap();
    assert_eq!(store.number(&format!("SELECT COUNT(*) FROM {schema}.seats WHERE v = 2")).await, 1);
}

async fn a_key_can_be_cast_to_another_type(store: Store) {
    let id = "0b9f3a0e-1111-4222-8333-444455556666";
    let is_postgres = is_engine(&store, Engine::Postgres);
    let kind = if is_postgres { "UUID" } else { "CHAR(36)" };
    store.run(&format!("CREATE TABLE docs (id {kind} PRIMARY KEY, v INT NOT NULL)")).await;
    store.run(&format!("INSERT INTO docs VALUES ('{id}', 1)")).await;
    let expression = if is_postgres { "CAST(? AS uuid)" } else { "LOWER(?)" };
    let docs = VersionedTable::new("docs", "v").unwrap();
    let doc = docs.row_expr("id", expression, [id.to_uppercase().into()]).unwrap();
    let mut tx = store.database.begin().await.unwrap();
    assert_eq!(doc.bump_if(&mut tx, 1).await.unwrap(), UpdateOutcome::Updated(2));
    assert_eq!(doc.version(&mut tx).await.unwrap(), Some(2));
}

async fn a_transaction_of_sqlx_can_be_used(store: Store) {
    let seat = super::seat(&store).await;
    macro_rules! on {
        ($pool:ty, $url:expr) => {{
            let pool = <$pool>::connect($url).await.unwrap();
            let mut tx = pool.begin().await.unwrap();
            let sold = Changes::new().set("holder", "ada");
            assert_eq!(seat.update(&mut tx, 1, sold).await.unwrap(), UpdateOutcome::Updated(2));
            tx.commit().await.unwrap();
            pool.close().await;
        }};
    }
    match store.engine {
        TestEngine::Sqlite => on!(sqlx::SqlitePool, &store.url),
        TestEngine::Server(Engine::Postgres) => on!(sqlx::PgPool, &store.url),
        TestEngine::Server(_) => on!(sqlx::MySqlPool, &store.url.replacen("mariadb", "mysql", 1)),
    }
    assert_eq!(super::read_seat(&store).await, (Some("ada".to_owned()), 100, 2));
}
