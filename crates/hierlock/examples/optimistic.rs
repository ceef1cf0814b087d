//! A cinema: eight people look at the same plan of seats, and all want the best one. One gets it; the
//! others are told, look again, and take what is left. Then the winner pays.
//!
//! `cargo run -p hierlock --example optimistic`

use hierlock::database::{Database, Transaction};
use hierlock::optimistic::{
    Changes, UpdateOutcome, VersionCheck, VersionedTable, WaitPolicy, until_current,
};
use std::sync::Arc;
use tokio::sync::Barrier;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PEOPLE: [&str; 8] = ["ada", "bob", "cy", "dee", "eve", "fay", "gil", "hal"];

#[tokio::main]
async fn main() -> Result<(), Failure> {
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

    // All have looked before anyone clicks.
    let all_have_looked = Arc::new(Barrier::new(PEOPLE.len()));
    let people: Vec<_> = PEOPLE
        .map(|name| tokio::spawn(take_a_seat(database.clone(), name, all_have_looked.clone())))
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

/// The first free seat, and its version, read together.
async fn best(tx: &mut Transaction) -> hierlock::Result<(i64, i64)> {
    let free = "SELECT id, version FROM seats WHERE holder IS NULL ORDER BY id LIMIT 1";
    let free = tx.fetch(free, []).await?;
    Ok((free[0].int(0)?, free[0].int(1)?))
}

async fn take_a_seat(
    database: Database,
    name: &'static str,
    all_have_looked: Arc<Barrier>,
) -> Result<String, Failure> {
    let seats = VersionedTable::new("seats", "version")?;
    let taken = until_current(100, |attempt| {
        let (database, seats, all_have_looked) = (&database, &seats, &all_have_looked);
        async move {
            let mut tx = database.begin().await?;
            let (id, seen) = best(&mut tx).await?;
            tx.commit().await?;
            // A person thinks. No transaction is open, and nobody is kept from anything.
            if attempt == 1 {
                all_have_looked.wait().await;
            }
            let mut tx = database.begin().await?;
            let taken = Changes::new().set("holder", name);
            seats.row("id", id)?.update(&mut tx, seen, taken).await?.updated()?;
            let told = format!("{name} has seat {id} at attempt {attempt}");
            tx.commit().await.map(|()| told)
        }
    });
    Ok(taken.await?)
}

/// The second variant: locked and compared first, so that nobody pays for a seat that is no longer theirs.
async fn pay(database: &Database) -> Result<(), Failure> {
    let seat = VersionedTable::new("seats", "version")?.row("id", 1)?;
    let seen = 2; // as it was when its holder got it
    for _ in 0..2 {
        let mut tx = database.begin().await?;
        match seat.lock(&mut tx, seen, WaitPolicy::Wait).await? {
            VersionCheck::Current => {
                println!("seat 1 is as it was: the card is charged now, and not for nothing");
                let paid = seat.update(&mut tx, seen, Changes::new().set("paid", 1)).await?;
                assert_eq!(paid, UpdateOutcome::Updated(3));
                tx.commit().await?;
            }
            VersionCheck::Stale { current, .. } => {
                println!("seat 1 is at version {current}: the card is left alone");
            }
            VersionCheck::Missing => println!("seat 1 was taken out"),
        }
    }
    Ok(())
}
