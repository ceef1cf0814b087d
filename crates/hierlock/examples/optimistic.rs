//! A cinema: eight people look at the same seat plan, and all want the best seat. One gets it; the updates of the others
//! are stale, so they read again and take another seat. Then the holder of the best seat pays.
//!
//! `cargo run -p hierlock --example optimistic`

use hierlock::database::{Database, Transaction};
use hierlock::optimistic::{
    Changes, UpdateOutcome, VersionCheck, VersionedTable, WaitPolicy, until_current,
};
use std::sync::Arc;
use tokio::sync::Barrier;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const PEOPLE: [&str; 8] = ["ada", "bob", "cy", "dee", "eve", "fay", "gil", "hal"];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("cinema.db");
    let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
    let mut tx = database.begin().await?;
    tx.run(
        "CREATE TABLE seats (id INTEGER PRIMARY KEY, holder TEXT, paid INTEGER NOT NULL DEFAULT 0, \
         version INTEGER NOT NULL DEFAULT 1)",
    )
    .await?;
    for id in 1..=PEOPLE.len() as i64 {
        tx.execute("INSERT INTO seats (id) VALUES (?)", [id.into()]).await?;
    }
    tx.commit().await?;

    // All people have read the seat plan before the first one clicks.
    let all_have_read = Arc::new(Barrier::new(PEOPLE.len()));
    let people: Vec<_> = PEOPLE
        .map(|name| tokio::spawn(take_a_seat(database.clone(), name, all_have_read.clone())))
        .into_iter()
        .collect();
    for person in people {
        println!("{}", person.await??);
    }

    let mut tx = database.begin().await?;
    let sold = tx.fetch("SELECT COUNT(DISTINCT holder) FROM seats", []).await?[0].int(0)?;
    tx.commit().await?;
    println!("{sold} people on {} seats", PEOPLE.len());
    assert_eq!(sold, PEOPLE.len() as i64);
    pay(&database).await
}

/// Returns the first free seat and its version, read together.
async fn best_seat(tx: &mut Transaction) -> hierlock::Result<(i64, i64)> {
    let free = "SELECT id, version FROM seats WHERE holder IS NULL ORDER BY id LIMIT 1";
    let free = tx.fetch(free, []).await?;
    Ok((free[0].int(0)?, free[0].int(1)?))
}

async fn take_a_seat(
    database: Database,
    name: &'static str,
    all_have_read: Arc<Barrier>,
) -> Result<String, BoxError> {
    let seats = VersionedTable::new("seats", "version")?;
    let taken = until_current(100, |attempt| {
        let (database, seats, all_have_read) = (&database, &seats, &all_have_read);
        async move {
            let mut tx = database.begin().await?;
            let (id, version) = best_seat(&mut tx).await?;
            tx.commit().await?;
            // The person thinks. No transaction is open, and no lock is held.
            if attempt == 1 {
                all_have_read.wait().await;
            }
            let mut tx = database.begin().await?;
            let taken = Changes::new().set("holder", name);
            seats.row("id", id)?.update(&mut tx, version, taken).await?.updated()?;
            let message = format!("{name} has seat {id} at attempt {attempt}");
            tx.commit().await.map(|()| message)
        }
    });
    Ok(taken.await?)
}

/// Locks the seat and compares its version before the payment, so that no one pays for a seat that has changed.
async fn pay(database: &Database) -> Result<(), BoxError> {
    let seat = VersionedTable::new("seats", "version")?.row("id", 1)?;
    let expected = 2; // the version when its holder got the seat
    for _ in 0..2 {
        let mut tx = database.begin().await?;
        match seat.lock(&mut tx, expected, WaitPolicy::Wait).await? {
            VersionCheck::Current => {
                println!("seat 1 is unchanged: the card is charged");
                let paid = seat.update(&mut tx, expected, Changes::new().set("paid", 1)).await?;
                assert_eq!(paid, UpdateOutcome::Updated(3));
                tx.commit().await?;
            }
            VersionCheck::Stale { current, .. } => {
                println!("seat 1 is at version {current}: the card is not charged");
            }
            VersionCheck::Missing => println!("seat 1 does not exist"),
        }
    }
    Ok(())
}
