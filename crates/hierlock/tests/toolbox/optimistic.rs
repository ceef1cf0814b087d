//! Rows with a version, on every engine.

mod names;
mod outcomes;
mod races;

use crate::support::{Store, TestEngine};
use hierlock::database::Transaction;
use hierlock::optimistic::{VersionedRow, VersionedTable};
use hierlock_sandbox::Engine;

const SEATS: &str = "CREATE TABLE seats (id BIGINT PRIMARY KEY, holder VARCHAR(80), \
                     price BIGINT NOT NULL, version BIGINT NOT NULL)";

/// Creates two free seats for 100, at version 1, and returns the first.
async fn seat(store: &Store) -> VersionedRow {
    store.run(SEATS).await;
    store.run("INSERT INTO seats VALUES (7, NULL, 100, 1), (8, NULL, 100, 1)").await;
    VersionedTable::new("seats", "version").unwrap().row("id", 7).unwrap()
}

/// Returns the holder, the price and the version of the first seat.
async fn read_seat(store: &Store) -> (Option<String>, i64, i64) {
    let mut tx = store.database.begin().await.unwrap();
    let rows = tx.fetch("SELECT holder, price, version FROM seats WHERE id = 7", []).await.unwrap();
    tx.commit().await.unwrap();
    (rows[0].text_or_null(0).unwrap(), rows[0].int(1).unwrap(), rows[0].int(2).unwrap())
}

/// Increments the version of a row and commits.
async fn bump(store: &Store, row: &VersionedRow) -> i64 {
    let mut tx = store.database.begin().await.unwrap();
    let version = row.bump(&mut tx).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    version
}

fn is_engine(store: &Store, engine: Engine) -> bool {
    store.engine == TestEngine::Server(engine)
}

/// Begins a transaction that reads from the snapshot of its first read.
async fn begin_with_snapshot(store: &Store) -> Transaction {
    begin_at(store, "REPEATABLE READ").await
}

/// Begins a transaction at that isolation level; SQLite has only one, here without IMMEDIATE.
async fn begin_at(store: &Store, level: &str) -> Transaction {
    let mut tx = store.database.begin().await.unwrap();
    let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
    let restart = match store.engine {
        TestEngine::Sqlite => "ROLLBACK; BEGIN".to_owned(),
        TestEngine::Server(Engine::Postgres) => set,
        TestEngine::Server(_) => format!("ROLLBACK; {set}; START TRANSACTION"),
    };
    tx.run(&restart).await.unwrap();
    tx
}
